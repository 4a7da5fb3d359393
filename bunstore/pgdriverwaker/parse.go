package pgdriverwaker

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/uptrace/bun/driver/pgdriver"
)

// parse is the driver's, with an error in which the password is not: the driver's can have the whole DSN in it.
func parse(dsn string) (*pgdriver.Connector, error) {
	connector, err := pgdriver.NewDriver().OpenConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgdriverwaker: the DSN cannot be parsed: %s", reason(dsn))
	}
	made, ok := connector.(*pgdriver.Connector)
	if !ok {
		return nil, errors.New("pgdriverwaker: the driver's connector is of another kind")
	}
	return made, nil
}

// reason tells what the driver says of the same DSN without a password, if that can be told apart.
func reason(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return "it is not a valid URL (what is special in a URL is percent-encoded in names and passwords)"
	}
	if u.Host == "" && u.Path == "" || u.Scheme == "" {
		return "it is neither a postgres:// nor a unix:// URL"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	if _, err := pgdriver.NewDriver().OpenConnector(u.String()); err != nil {
		return strings.TrimPrefix(err.Error(), "pgdriver: ")
	}
	return "one of its values is not valid"
}
