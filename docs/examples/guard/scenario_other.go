//go:build !unix

package main

import (
	"context"
	"errors"
)

// runScenario needs what this system does not have.
func runScenario(context.Context, config) error {
	return errors.New("this program stops a process and wakes it (SIGSTOP, SIGCONT): it needs Linux, macOS or another Unix")
}
