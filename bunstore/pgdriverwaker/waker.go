package pgdriverwaker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"github.com/uptrace/bun/driver/pgdriver"
)

// limit is how long a connection may take to be opened, unless the driver's own timeouts are shorter, and then to listen.
const limit = 10 * time.Second

// appName is what the connection is called in pg_stat_activity.
const appName = "rowlease waker"

// ErrPooler is what [Waker.Listen] returns where a pooler in transaction mode is between: LISTEN does not work through one.
var ErrPooler = errors.New("a pooler in transaction mode is between, through which LISTEN does not work")

// Waker hears notifications, each call of [Waker.Listen] over a connection of its own. It implements the interface Waker of
// package locks, and is safe for concurrent use. It holds nothing while no call runs, and so has no Close.
type Waker struct{ config *pgdriver.Config }

// New returns a waker for a DSN as [pgdriver.WithDSN] takes it, the environment's PGHOST and its kin included. It does not
// connect. The error of a bad DSN tells what is wrong with it and not the password.
func New(dsn string) (*Waker, error) {
	connector, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return NewFromConnector(connector)
}

// NewFromConnector returns a waker that connects as this connector does, by the copy of its configuration that is made
// now: for hosts that set TLS or the dialer in Go. It does not connect. Neither ResetSessionFunc nor the ReadTimeout
// has a meaning for a connection that listens.
func NewFromConnector(connector *pgdriver.Connector) (*Waker, error) {
	if connector == nil || connector.Config() == nil {
		return nil, errors.New("pgdriverwaker: the connector must not be nil")
	}
	config := *connector.Config()
	if config.User == "" || config.Dialer == nil { // of a Config that pgdriver's options did not make
		return nil, errors.New("pgdriverwaker: the connector needs a user and a dialer")
	}
	config.ConnParams = maps.Clone(config.ConnParams)
	if config.AppName == "" && config.ConnParams["application_name"] == nil {
		config.AppName = appName
	}
	return &Waker{config: &config}, nil
}

// plain is what a channel is called: it stands in the statement as it is. 63 bytes is the longest name PostgreSQL keeps.
var plain = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Listen opens a connection, listens on the channel, calls listening once it does, and then heard with the payload of
// each notification on that channel, one after another, until ctx ends or the connection fails. The channel is a plain
// identifier of lower-case letters, digits and underscores.
//
// It closes the connection before it returns, which takes a second at most, and always returns an error: the context's,
// wrapped, if that has ended; [ErrPooler]; or what was wrong with the connection. To connect it has 10 s, and to listen
// as much. A network that swallows everything is noticed within about a minute, by TCP's keepalive; a caller that wants
// to know earlier lets itself be sent something now and then.
func (w *Waker) Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error {
	if !plain.MatchString(channel) {
		return fmt.Errorf("pgdriverwaker: channel %q is not a plain identifier", channel)
	}
	err := w.listen(ctx, channel, listening, heard)
	if ctx.Err() != nil { // whatever the driver and the network called it
		err = ctx.Err()
	}
	return fmt.Errorf("pgdriverwaker: %w", err)
}

func (w *Waker) listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	s, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	early, err := w.start(ctx, s, channel)
	if err != nil {
		return err
	}
	defer s.until(ctx)()
	listening()
	for _, n := range early {
		if n.channel == channel {
			heard(n.payload)
		}
	}
	return s.hear(channel, heard)
}

// start makes the session listen, and returns what it has heard by then.
func (w *Waker) start(ctx context.Context, s *session, channel string) (early []notification, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := s.until(ctx)
	err = w.checkPooler(ctx, s)
	if err == nil {
		// A session that listens is idle by nature. Servers before 14 do not know the setting.
		_, err = s.ask(`SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'`)
	}
	if err == nil {
		_, err = s.ask(`LISTEN "` + channel + `"`)
	}
	if !stop() {
		err = fmt.Errorf("not listening within %v: %w", limit, ctx.Err())
	}
	return s.early, err
}
