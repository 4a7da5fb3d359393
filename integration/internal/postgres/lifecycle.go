package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// lifecycleLimit bounds one change of a container's state.
const lifecycleLimit = time.Minute

// Restart stops the server as an administrator does, which ends all connections,
// and starts it again. It returns when the server answers.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	s.StartAgain(tb)
}

// Stop shuts the server down (PostgreSQL's fast shutdown: transactions are rolled
// back, what was committed is written out). Connections are refused from then on.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.change(tb, "stop", func(ctx context.Context) error {
		_, err := s.ctr.client.ContainerStop(ctx, s.ctr.GetContainerID(), client.ContainerStopOptions{})
		return err
	})
}

// Kill ends the server with SIGKILL, all its processes at once, as a crash does.
// It returns when they are gone.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.change(tb, "kill", func(ctx context.Context) error {
		id := s.ctr.GetContainerID()
		if _, err := s.ctr.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		gone := s.ctr.client.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
		select {
		case <-gone.Result:
			return nil
		case err := <-gone.Error:
			return err
		}
	})
}

// StartAgain starts a server that was stopped or killed, on the same data and
// under the same DSN. It returns when the server answers.
func (s *Server) StartAgain(tb testing.TB) {
	tb.Helper()
	s.change(tb, "start", func(ctx context.Context) error {
		if _, err := s.ctr.client.ContainerStart(ctx, s.ctr.GetContainerID(), client.ContainerStartOptions{}); err != nil {
			return err
		}
		return s.ctr.waitReady(ctx)
	})
}

// Pause freezes the server. Nobody is told: connections stay open, new ones are
// accepted by the kernel, and nothing is answered, as when a machine hangs.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.change(tb, "pause", func(ctx context.Context) error {
		// On a busy machine with version 1 of cgroups the freezer sometimes gives up,
		// and Docker says "unable to freeze". The container then runs on as before.
		const attempts, pause = 20, 100 * time.Millisecond

		var err error
		for range attempts {
			_, err = s.ctr.client.ContainerPause(ctx, s.ctr.GetContainerID(), client.ContainerPauseOptions{})
			if err == nil || !strings.Contains(err.Error(), "unable to freeze") {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause):
			}
		}

		return err
	})
}

// Unpause lets a frozen server go on where it was.
func (s *Server) Unpause(tb testing.TB) {
	tb.Helper()
	s.change(tb, "unpause", func(ctx context.Context) error {
		_, err := s.ctr.client.ContainerUnpause(ctx, s.ctr.GetContainerID(), client.ContainerUnpauseOptions{})
		return err
	})
}

// Logs returns what the server has logged so far, over all its starts. It is
// empty for a server that was not started here.
func (s *Server) Logs(tb testing.TB) string {
	tb.Helper()
	if s.ctr == nil {
		return ""
	}

	return s.ctr.logs(context.WithoutCancel(tb.Context()))
}

// change runs a change of the container's state. It detaches from the test's
// context, which has ended in a Cleanup, where an Unpause may well be called.
func (s *Server) change(tb testing.TB, what string, do func(context.Context) error) {
	tb.Helper()

	if s.shared {
		tb.Fatalf("%s: the server is shared with other tests; use postgres.Start", what)
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), lifecycleLimit)
	defer cancel()

	if err := do(ctx); err != nil {
		tb.Fatal(fmt.Errorf("%s PostgreSQL: %w", what, err))
	}
}
