package fence

import "github.com/rowlease/rowlease/locks"

// DefaultTokenColumn is where the token is stored unless [WithTokenColumn] names another column.
const DefaultTokenColumn = "fence_token"

// Option configures one call. The first bad one is the call's error.
type Option func(*config) error

type config struct {
	tokenColumn string
	columns     []string // nil: all, or none beside sets
	sets        []expression
}

type expression struct {
	query string
	args  []any
}

// WithTokenColumn names the column that stores the token, fence_token by default. With a dot in its name it cannot be
// upserted: bun takes that for a qualified one.
func WithTokenColumn(name string) Option {
	return func(c *config) error {
		if name == "" {
			return &locks.InvalidError{Field: "token column", Reason: "must not be empty"}
		}
		c.tokenColumn = name
		return nil
	}
}

// WithColumns writes only these columns of the model, by their SQL names and each once. The default is every column but the primary
// key, the token and those with bun's option skipupdate.
func WithColumns(names ...string) Option {
	return func(c *config) error {
		if len(names) == 0 {
			return &locks.InvalidError{Field: "columns", Reason: "must name at least one"}
		}
		c.columns = append(c.columns, names...)
		return nil
	}
}

// WithSet sets by an expression instead of the model's value, in bun's syntax: WithSet("balance = balance - ?", 5). With
// it only the columns of [WithColumns] are written from the model, by default none. The expression's result is not read
// back into the struct. In an upsert it is for the row that is there, whose columns are written ?TableAlias.balance.
func WithSet(query string, args ...any) Option {
	return func(c *config) error {
		if query == "" {
			return &locks.InvalidError{Field: "set", Reason: "must not be empty"}
		}
		c.sets = append(c.sets, expression{query, args})
		return nil
	}
}
