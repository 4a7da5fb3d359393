package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Labels that say whose a container is. The owner is "host pid start", where start
// tells a process from a later one with the same number.
const (
	ownLabel   = "rowlease.test"
	ownerLabel = "rowlease.test.owner"
)

// strangerAge is when a container whose owner cannot be asked after, since it ran
// on another machine against the same daemon, counts as left behind.
const strangerAge = time.Hour

func ownLabels() map[string]string {
	host, _ := os.Hostname()
	pid := os.Getpid()

	return map[string]string{
		ownLabel:   "true",
		ownerLabel: fmt.Sprintf("%s %d %s", host, pid, processStart(pid)),
	}
}

// removeLeftovers removes the containers of test processes that ended without
// doing so: killed, timed out, panicked. It matters where testcontainers' reaper
// is not running.
//
// A container of a live process is left alone however old it is: benchmarks and
// soak tests may take hours.
func removeLeftovers(ctx context.Context, docker *testcontainers.DockerClient) error {
	ctx, cancel := context.WithTimeout(ctx, lifecycleLimit)
	defer cancel()

	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", ownLabel+"=true"),
	})
	if err != nil {
		return err
	}

	var errs []error
	for _, c := range list.Items {
		if !leftBehind(c.Labels[ownerLabel], time.Unix(c.Created, 0)) {
			continue
		}
		// Force includes a frozen container: it is unpaused and killed.
		_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		// Another test process may be removing the same one.
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

func leftBehind(owner string, created time.Time) bool {
	host, _ := os.Hostname()
	fields := strings.SplitN(owner, " ", 3)
	if len(fields) != 3 || fields[0] != host {
		return time.Since(created) > strangerAge
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return time.Since(created) > strangerAge
	}

	return !alive(pid) || processStart(pid) != fields[2]
}

// alive asks with signal 0, which is checked but not delivered. Windows knows no
// such signal, but there looking a process up already fails when it is gone.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	if runtime.GOOS == "windows" {
		return p.Release() == nil
	}
	err = p.Signal(syscall.Signal(0))

	return err == nil || errors.Is(err, os.ErrPermission)
}

// processStart is when a process started, in the kernel's ticks since boot. It is
// empty where there is no /proc; then the number alone has to do. For a process
// that has ended and only waits for its parent to notice, it is "zombie".
func processStart(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the command in parentheses, and may contain anything, so
	// fields are counted from its end: first the state, which is the third of them
	// all, and then the start, which is the 22nd.
	const state, start = 0, 22 - 3

	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	switch {
	case len(fields) <= start:
		return ""
	case fields[state] == "Z":
		return "zombie"
	default:
		return fields[start]
	}
}
