package pgxwaker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A bad connection string is refused at once, in words that help and do not show the password.
func TestNewRefusesABadConnString(t *testing.T) {
	for connString, want := range map[string]string{
		"secret":                                            "postgres://",
		"u:secret@h/db":                                     "postgres://",
		"host=a password=secret port=x":                     "key=value",
		"host=a password='secret":                           "key=value",
		"host=a port=x":                                     "invalid port",
		"mysql://u:secret@h/db":                             "neither a postgres:// URL",
		"postgres://u:secret@h:port/db":                     "not a valid URL",
		"postgres://u:secret%zz@h/db":                       "not a valid URL",
		"postgres://u:se/secret@h/db":                       "not a valid URL",
		"postgres://u:secret@h/db\n":                        "not a valid URL",
		"postgres://u:secret@h:99999/db":                    "invalid port",
		"postgres://u:secret@h/?sslmode=x":                  "sslmode is invalid",
		"postgres://h/?sslmode=x&password=secret":           "sslmode is invalid",
		"postgres://h/?connect_timeout=x&pass%77ord=secret": "connect_timeout",
		"postgres://h/?sslmode=x&password=a`: secret":       "sslmode is invalid",
		"postgres://u:secret@h/?sslrootcert=/no/such/file":  "/no/such/file",
	} {
		waker, err := New(connString)
		if waker != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "secret") {
			t.Errorf("New(%q) = %v, %v; want an error with %q and without the password", connString, waker, err, want)
		}
	}
}

func TestNewFromConfigRefusesWhatCannotConnect(t *testing.T) {
	config, err := pgx.ParseConfig("host=h user=u")
	if err != nil {
		t.Fatal(err)
	}
	for what, make := range map[string]func() (*Waker, error){
		"nil":          func() (*Waker, error) { return NewFromConfig(nil) },
		"made by hand": func() (*Waker, error) { return NewFromConfig(&pgx.ConnConfig{}) },
		"nil option":   func() (*Waker, error) { return NewFromConfig(config, nil) },
		"nil hook":     func() (*Waker, error) { return New("host=h user=u", WithBeforeConnect(nil)) },
	} {
		if waker, err := make(); waker != nil || err == nil || !strings.HasPrefix(err.Error(), "pgxwaker: ") {
			t.Errorf("%s: %v, %v; want an error", what, waker, err)
		}
	}
}

// The connection has a name of its own unless the host gave it one, a limit, and the host's configuration stays as it is.
func TestTheConfigurationOfTheConnection(t *testing.T) {
	for connString, want := range map[string]string{
		"host=h user=u": appName,
		"host=h user=u application_name=shop connect_timeout=3": "shop",
	} {
		config, err := pgx.ParseConfig(connString)
		if err != nil {
			t.Fatal(err)
		}
		before := config.RuntimeParams["application_name"]
		waker, err := NewFromConfig(config, WithBeforeConnect(func(context.Context, *pgx.ConnConfig) error { return nil }))
		if err != nil {
			t.Fatal(err)
		}
		if got := waker.config.RuntimeParams["application_name"]; got != want || config.RuntimeParams["application_name"] != before {
			t.Errorf("application_name = %q, and the host's %q; want %q and %q", got, config.RuntimeParams["application_name"], want, before)
		}
		most := limit
		if config.ConnectTimeout > 0 {
			most = min(limit, config.ConnectTimeout)
		}
		if got := waker.config.ConnectTimeout; got != most {
			t.Errorf("ConnectTimeout = %v, want %v", got, most)
		}
	}
}
