package postgres

import (
	"maps"
	"slices"
)

// settings are the server's parameters, given as -c key=value.
type settings map[string]string

// Option changes the parameters of a server that [Start] runs.
type Option func(settings)

// Setting gives the server -c key=value.
func Setting(key, value string) Option {
	return func(s settings) { s[key] = value }
}

// Durable makes the server write to the disk as it does in production, for tests
// that are about a crash of the machine, and for benchmarks. Other tests do
// without: the page cache survives even [Server.Kill].
func Durable() Option {
	return func(s settings) {
		s["fsync"] = "on"
		s["full_page_writes"] = "on"
	}
}

// newSettings holds what makes tests fast without changing what SQL sees:
// synchronous_commit stays as it is, since the code under test sets and reads it.
func newSettings(opts []Option) settings {
	s := settings{
		"fsync":            "off",
		"full_page_writes": "off",
		"max_connections":  "200",
	}
	for _, opt := range opts {
		opt(s)
	}

	return s
}

// command is the server's command line, in a stable order.
func (s settings) command() []string {
	cmd := []string{"postgres"}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		cmd = append(cmd, "-c", key+"="+s[key])
	}

	return cmd
}
