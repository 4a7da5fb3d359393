package pgdriverwaker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun/driver/pgdriver"
)

// A bad DSN is refused at once, in words that help and do not show the password.
func TestNewRefusesABadDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                 "postgres://",
		"secret":                           "postgres://",
		"host=a password=secret":           "postgres://",
		"mysql://u:secret@h/db":            "invalid scheme: mysql",
		"postgres://u:secret@h:port/db":    "not a valid URL",
		"postgres://u:secret%zz@h/db":      "not a valid URL",
		"postgres://u:se/secret@h/db":      "not a valid URL",
		"postgres://u:secret@h/db\n":       "not a valid URL",
		"postgres://u:secret@h/?sslmode=x": "sslmode 'x'",
		"postgres://u:secret@h/?timeout=x": "timeout",
		"unix://u:secret@db":               "requires a path",
		"postgres://u:secret@h/?sslmode=verify-full&sslrootcert=/no/such/file": "/no/such/file",
	} {
		waker, err := New(dsn)
		if waker != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "secret") {
			t.Errorf("New(%q) = %v, %v; want an error with %q and without the password", dsn, waker, err, want)
		}
	}
}

func TestNewFromConnectorRefusesWhatCannotConnect(t *testing.T) {
	for what, connector := range map[string]*pgdriver.Connector{
		"nil":       nil,
		"empty":     {},
		"no user":   pgdriver.NewConnector(func(c *pgdriver.Config) { c.User = "" }),
		"no dialer": pgdriver.NewConnector(pgdriver.WithConfig(&pgdriver.Config{User: "u"})),
	} {
		if waker, err := NewFromConnector(connector); waker != nil || err == nil {
			t.Errorf("%s: NewFromConnector = %v, %v; want an error", what, waker, err)
		}
	}
}

// The connection has a name of its own unless the host gave it one, and the host's configuration stays as it is.
func TestTheNameOfTheConnection(t *testing.T) {
	for want, option := range map[string]pgdriver.Option{
		appName: func(*pgdriver.Config) {},
		"shop":  pgdriver.WithApplicationName("shop"),
		"":      pgdriver.WithConnParams(map[string]any{"application_name": "shop"}), // is set by a statement
	} {
		connector := pgdriver.NewConnector(option)
		before := connector.Config().AppName
		waker, err := NewFromConnector(connector)
		if err != nil {
			t.Fatal(err)
		}
		if got := waker.config.AppName; got != want || connector.Config().AppName != before {
			t.Errorf("AppName = %q, and the connector's %q; want %q and %q", got, connector.Config().AppName, want, before)
		}
	}
}
