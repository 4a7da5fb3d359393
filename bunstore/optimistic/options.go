package optimistic

import "github.com/rowlease/rowlease/locks"

// DefaultVersionColumn is the version's column unless [WithVersionColumn] names another.
const DefaultVersionColumn = "version"

// Option configures one call. The first bad one is the call's error.
type Option func(*config) error

type config struct {
	versionColumn string
	columns       []string // nil: all
}

// WithVersionColumn names the version's column, version by default. The model has to have it, as a Go integer.
func WithVersionColumn(name string) Option {
	return func(c *config) error {
		if name == "" {
			return &locks.InvalidError{Field: "version column", Reason: "must not be empty"}
		}
		c.versionColumn = name
		return nil
	}
}

// WithColumns writes only these columns, by their SQL names and each once, and the version. The default is every column but the primary
// key and those with bun's option skipupdate. [Delete] has no use for it.
func WithColumns(names ...string) Option {
	return func(c *config) error {
		if len(names) == 0 {
			return &locks.InvalidError{Field: "columns", Reason: "must name at least one"}
		}
		c.columns = append(c.columns, names...)
		return nil
	}
}
