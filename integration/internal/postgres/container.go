package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcpostgres "github.com/testcontainers/testcontainers-go/modules/postgres"
)

// credentials of the superuser; the port is published on localhost where that is
// possible at all.
const (
	user     = "postgres"
	password = "postgres"
)

// container is one PostgreSQL container.
type container struct {
	testcontainers.Container
	client *testcontainers.DockerClient
	host   string
	port   int
}

// run starts a container and waits until it answers.
func (e *environment) run(ctx context.Context, s settings) (*container, error) {
	// Docker picks a new host port at each start unless it is told which, and the
	// DSN has to survive a restart. So we pick; should another process have taken
	// the port meanwhile, we pick again.
	const attempts = 5

	var errs []error
	for range attempts {
		ctr, err := e.tryRun(ctx, s)
		if err == nil {
			return ctr, nil
		}
		errs = append(errs, err)
		if !portTaken(err) {
			break
		}
	}

	return nil, fmt.Errorf("start %s: %w", e.image, errors.Join(errs...))
}

func (e *environment) tryRun(ctx context.Context, s settings) (*container, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	binding := network.PortBinding{HostPort: strconv.Itoa(port)}
	if ip, err := netip.ParseAddr(e.host); err == nil && ip.IsLoopback() {
		binding.HostIP = ip
	}

	// No wait strategy: they look at the log, where a restart finds the lines of
	// the start before. waitReady asks the server itself.
	pg, err := tcpostgres.Run(ctx, e.image,
		tcpostgres.WithUsername(user),
		tcpostgres.WithPassword(password),
		testcontainers.WithEnv(map[string]string{
			// The data need not survive the machine, whatever the server's fsync says.
			"POSTGRES_INITDB_ARGS": "--no-sync",
		}),
		testcontainers.WithCmd(s.command()...),
		testcontainers.WithLabels(ownLabels()),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			hc.PortBindings = network.PortMap{network.MustParsePort("5432/tcp"): {binding}}
		}),
	)
	if err != nil {
		if pg != nil {
			err = errors.Join(err, testcontainers.TerminateContainer(pg))
		}
		return nil, err
	}

	ctr := &container{Container: pg.Container, client: e.client, host: e.host, port: port}
	if err := ctr.waitReady(ctx); err != nil {
		logs := ctr.logs(context.WithoutCancel(ctx))
		err = errors.Join(err, ctr.remove(context.WithoutCancel(ctx)))
		return nil, fmt.Errorf("%w; its last words:\n%s", err, tail(logs, 15))
	}

	return ctr, nil
}

func (c *container) dsn() *url.URL {
	return &url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(user, password),
		Host:     net.JoinHostPort(c.host, strconv.Itoa(c.port)),
		Path:     "/" + user,
		RawQuery: "sslmode=disable",
	}
}

// waitReady waits until the server answers a query. While the image initialises
// its cluster the server does not listen on TCP, so an answer is one of the final
// server.
func (c *container) waitReady(ctx context.Context) error {
	const (
		pause = 50 * time.Millisecond
		limit = 5 * time.Second // for one attempt: a lost packet must not cost the whole wait
	)

	attempt := func() error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()

		conn, err := pgx.Connect(ctx, c.dsn().String())
		if err != nil {
			return err
		}
		defer conn.Close(ctx) //nolint:errcheck // nothing depends on a polite goodbye

		return conn.Ping(ctx)
	}

	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if state, stateErr := c.State(ctx); stateErr == nil && !state.Running {
			return fmt.Errorf("the container has exited with status %d", state.ExitCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func (c *container) logs(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lifecycleLimit)
	defer cancel()

	r, err := c.Logs(ctx)
	if err != nil {
		return fmt.Sprintf("(no logs: %v)", err)
	}
	defer r.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Sprintf("%s\n(logs cut short: %v)", text, err)
	}

	return string(text)
}

// remove ends the container without letting the server shut down: its data go
// with it.
func (c *container) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lifecycleLimit)
	defer cancel()

	// A frozen container cannot be stopped. All others refuse, which is fine.
	_, _ = c.client.ContainerUnpause(ctx, c.GetContainerID(), client.ContainerUnpauseOptions{})

	return testcontainers.TerminateContainer(c.Container,
		testcontainers.StopContext(ctx), testcontainers.StopTimeout(0))
}

// freePort picks a port that is free now and that the kernel will not hand out to
// an outgoing connection while the server is down for a restart: the ephemeral
// ports begin at 32768 on Linux and higher elsewhere. (For a Docker daemon on
// another machine it is a guess, and run picks again if it was wrong.)
func freePort(ctx context.Context) (int, error) {
	const lowest, highest = 15000, 32000

	var (
		config net.ListenConfig
		last   error
	)
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}

	return 0, fmt.Errorf("no free port: %w", last)
}

func portTaken(err error) bool {
	for _, text := range []string{"port is already allocated", "address already in use", "ports are not available"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}

	return false
}
