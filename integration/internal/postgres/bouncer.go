package postgres

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
)

const bouncerVariable = "ROWLEASE_PGBOUNCER_IMAGE"

// Bouncer runs PgBouncer in a container beside the server's and returns where it
// is reached. The script is for sh, runs as nobody, is told the server's address
// in $1 and has to listen on the port in $2. The container is removed when the
// test is over. A test whose server is borrowed (ROWLEASE_POSTGRES_DSN) is skipped:
// where a container would reach that one is not known.
//
// ROWLEASE_PGBOUNCER_IMAGE names an image with pgbouncer and sh. Without it the one
// that postgres-image/build.sh makes is used, also where the server itself runs in
// the official image, which has none.
func (s *Server) Bouncer(tb testing.TB, script string) (addr string) {
	tb.Helper()

	if s.ctr == nil {
		tb.Skipf("not tested: %s needs PgBouncer beside the server, and with %s set the server is a borrowed one", tb.Name(), dsnVariable)
	}
	image, err := bouncerImage()
	requireServer(tb, err)

	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()

	ctr, addr, err := s.ctr.runBouncer(ctx, image, script)
	if err != nil {
		tb.Fatalf("start PgBouncer for %s: %v", tb.Name(), err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("PgBouncer's last words:\n%s", tail(ctr.logs(context.WithoutCancel(tb.Context())), 30))
		}
		if err := ctr.remove(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("remove the PgBouncer container: %v", err)
		}
	})

	return addr
}

var bouncerImage = sync.OnceValues(func() (string, error) {
	if image := os.Getenv(bouncerVariable); image != "" {
		return image, nil
	}

	return buildScript(context.Background())
})

func (c *container) runBouncer(ctx context.Context, image, script string) (*container, string, error) {
	const port = "6432/tcp"

	server, err := c.ContainerIP(ctx)
	if err != nil {
		return nil, "", err
	}
	var binding network.PortBinding // Docker picks the port: this container is never restarted
	if ip, err := netip.ParseAddr(c.host); err == nil && ip.IsLoopback() {
		binding.HostIP = ip
	}

	generic, err := testcontainers.Run(ctx, image,
		testcontainers.WithEntrypoint("sh", "-c", script, "sh"),
		testcontainers.WithCmd(server, network.MustParsePort(port).Port()),
		testcontainers.WithLabels(ownLabels()),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithConfigModifier(func(config *dockercontainer.Config) { config.User = "65534:65534" }),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			hc.PortBindings = network.PortMap{network.MustParsePort(port): {binding}}
		}),
	)
	if err != nil {
		if generic != nil {
			err = errors.Join(err, testcontainers.TerminateContainer(generic))
		}
		return nil, "", err
	}
	bouncer := &container{Container: generic, client: c.client, host: c.host}
	mapped, err := generic.MappedPort(ctx, port)
	if err != nil {
		return nil, "", errors.Join(err, bouncer.remove(context.WithoutCancel(ctx)))
	}
	bouncer.port = int(mapped.Num())

	return bouncer, net.JoinHostPort(c.host, strconv.Itoa(bouncer.port)), nil
}
