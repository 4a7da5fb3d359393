//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a worker, as the process that started it sees it.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startWorker starts this program again, as a worker. It is killed when the context ends.
func startWorker(ctx context.Context, c config, name string, amount int64, ttl time.Duration) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-role=worker", "-name="+name, "-guard="+strconv.FormatBool(c.guard),
		"-account="+strconv.FormatInt(c.account, 10), "-amount="+strconv.FormatInt(amount, 10), "-ttl="+ttl.String())
	cmd.Env = append(os.Environ(), "DATABASE_URL="+c.databaseURL) // no flag: every user of the machine can read those
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{name, cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

// says returns the worker's next line, and shows it; each of several must begin as asked.
func (p *process) says(begin ...string) (line string, err error) {
	for _, begin := range begin {
		if !p.lines.Scan() {
			return "", fmt.Errorf("%s ended before it said %q", p.name, begin)
		}
		line = p.lines.Text()
		fmt.Printf("%s: %s\n", p.name, line)
		if !strings.HasPrefix(line, begin) {
			return "", fmt.Errorf("%s said %q instead of %q", p.name, line, begin)
		}
	}
	return line, nil
}

// goOn lets the worker write.
func (p *process) goOn() error {
	_, err := io.WriteString(p.in, "go on\n")
	return err
}

// stop stops the worker where it stands, and returns when it has stopped.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("wait until %s has stopped: %w", p.name, err)
		case status.Stopped():
			return nil
		default:
			return fmt.Errorf("%s ended instead of stopping", p.name)
		}
	}
}

// end ends the worker if it has not ended, also where it is stopped.
func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
