package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

const (
	ryukVariable = "TESTCONTAINERS_RYUK_DISABLED"
	hostVariable = "TESTCONTAINERS_HOST_OVERRIDE"
)

// environment is what there is to run containers with.
type environment struct {
	client *testcontainers.DockerClient
	image  string
	host   string // where published ports are reached
}

// prepare finds out, once per process, whether and how containers can be run.
//
// Everything here goes through the docker command rather than through
// testcontainers, which reads its variables when it is first used and never
// again: they have to be right before.
var prepare = sync.OnceValues(func() (*environment, error) {
	ctx := context.Background()

	if _, err := exec.LookPath("docker"); err != nil {
		return nil, unavailable("no docker command")
	}
	if _, err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return nil, unavailable("Docker does not answer: %v", err)
	}

	image, registry, err := resolveImage(ctx)
	if err != nil {
		return nil, err
	}

	if !testing.Verbose() {
		tclog.SetDefault(tclog.NewNoopLogger())
	}
	if err := setHost(ctx); err != nil {
		return nil, err
	}
	if err := setReaper(ctx, registry); err != nil {
		return nil, err
	}

	client, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("docker client: %w", err)
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("docker provider: %w", err)
	}
	defer provider.Close() //nolint:errcheck // it only drops idle connections
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("docker host: %w", err)
	}
	if host == "localhost" {
		// Ports are published there only, and "localhost" may mean ::1 first.
		host = "127.0.0.1"
	}

	if err := removeLeftovers(ctx, client); err != nil {
		// Somebody else's rubbish is no reason to test nothing.
		fmt.Fprintf(os.Stderr, "remove containers of earlier runs: %v\n", err)
	}

	return &environment{client: client, image: image, host: host}, nil
})

// setHost corrects testcontainers where this machine looks like a container and
// yet runs its own Docker daemon. A container normally reaches published ports
// through its gateway, which is the daemon's machine. But where the daemon's
// bridge is an interface of our own, we are that machine, and the gateway is a
// router that knows nothing.
func setHost(ctx context.Context) error {
	if _, set := os.LookupEnv(hostVariable); set {
		return nil
	}
	if _, err := os.Stat("/.dockerenv"); err != nil {
		return nil //nolint:nilerr // not a container: nothing to correct
	}

	bridge, err := docker(ctx, "network", "inspect", "--format", `{{index .Options "com.docker.network.bridge.name"}}`, "bridge")
	if err != nil {
		return nil //nolint:nilerr // no such network: leave it to testcontainers
	}
	if _, err := net.InterfaceByName(bridge); err != nil {
		return nil //nolint:nilerr // not our interface: an ordinary container
	}

	return os.Setenv(hostVariable, "localhost")
}

// setReaper does without testcontainers' reaper where its image cannot be had;
// otherwise no container would start at all. Main and removeLeftovers do its work
// then.
func setReaper(ctx context.Context, registry bool) error {
	if _, set := os.LookupEnv(ryukVariable); set {
		return nil
	}

	reaper := hubName(testcontainers.ReaperDefaultImage) //nolint:staticcheck // deprecated without another way to learn which image it will be
	if haveImage(ctx, reaper) || registry && pullImage(ctx, reaper) == nil {
		return nil
	}

	return os.Setenv(ryukVariable, "true")
}

// docker runs the docker command and returns what it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
	}

	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second

	out, err := cmd.Output()
	switch {
	case err == nil:
		return strings.TrimSpace(string(out)), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("docker %s: %w", args[0], ctx.Err())
	case stderr.Len() > 0:
		return "", fmt.Errorf("docker %s: %s", args[0], tail(stderr.String(), 1))
	default:
		return "", fmt.Errorf("docker %s: %w", args[0], err)
	}
}
