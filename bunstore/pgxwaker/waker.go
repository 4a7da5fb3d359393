package pgxwaker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

// limit is how long a connection may take with each of the server's addresses, unless connect_timeout is shorter, and
// then to listen.
const limit = 10 * time.Second

// appName is what the connection is called in pg_stat_activity.
const appName = "rowlease waker"

// ErrPooler is what [Waker.Listen] returns where a pooler in transaction mode is between: LISTEN does not work through one.
var ErrPooler = errors.New("a pooler in transaction mode is between, through which LISTEN does not work")

// Waker hears notifications, each call of [Waker.Listen] over a connection of its own. It implements the interface Waker of
// package locks, and is safe for concurrent use. It holds nothing while no call runs, and so has no Close.
type Waker struct {
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error
}

// Option configures a [Waker].
type Option func(*Waker) error

// WithBeforeConnect calls a function before each connection is opened, with a copy of the configuration that it may change:
// for passwords that change, as with the hook of that name in pgxpool and stdlib. Its error is that of [Waker.Listen].
func WithBeforeConnect(hook func(context.Context, *pgx.ConnConfig) error) Option {
	return func(w *Waker) error {
		if hook == nil {
			return errors.New("pgxwaker: the BeforeConnect hook must not be nil")
		}
		w.beforeConnect = hook
		return nil
	}
}

// New returns a waker for a connection string as [pgx.ParseConfig] takes it, the environment's PGHOST and its kin
// included. It does not connect. The error of a bad string tells what is wrong with it and not the password.
//
// A string for pgxpool has settings that only that package knows: see [NewFromConfig].
func New(connString string, options ...Option) (*Waker, error) {
	config, err := parse(connString)
	if err != nil {
		return nil, err
	}
	return NewFromConfig(config, options...)
}

// NewFromConfig returns a waker for a configuration that [pgx.ParseConfig] has made, and that may have been changed
// since: for hosts that set TLS or the dialer in Go, and for those that have a pgxpool, pool.Config().ConnConfig. It is
// copied. Its OnNotification hears nothing. NewFromConfig does not connect.
func NewFromConfig(config *pgx.ConnConfig, options ...Option) (*Waker, error) {
	if config == nil {
		return nil, errors.New("pgxwaker: the configuration must not be nil")
	}
	// pgx panics at the first connection otherwise.
	if config.DialFunc == nil || config.LookupFunc == nil || config.BuildFrontend == nil {
		return nil, errors.New("pgxwaker: the configuration must have been made by pgx.ParseConfig")
	}
	config = config.Copy()
	if config.RuntimeParams == nil {
		config.RuntimeParams = make(map[string]string)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = appName
	}
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > limit {
		config.ConnectTimeout = limit
	}
	w := &Waker{config: config}
	for _, option := range options {
		if option == nil {
			return nil, errors.New("pgxwaker: an option must not be nil")
		}
		if err := option(w); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// plain is what a channel is called: it stands in the statement as it is. 63 bytes is the longest name PostgreSQL keeps.
var plain = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Listen opens a connection, listens on the channel, calls listening once it does, and then heard with the payload of
// each notification on that channel, one after another, until ctx ends or the connection fails. The channel is a plain
// identifier of lower-case letters, digits and underscores.
//
// It closes the connection before it returns, which takes a second at most, and always returns an error: the context's,
// wrapped, if that has ended; [ErrPooler]; or what was wrong with the connection. To connect and listen it has 10 s for
// each address of the server. A network that swallows everything is noticed within about a minute, by TCP's keepalive;
// a caller that wants to know earlier lets itself be sent something now and then.
func (w *Waker) Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error {
	if !plain.MatchString(channel) {
		return fmt.Errorf("pgxwaker: channel %q is not a plain identifier", channel)
	}
	err := w.listen(ctx, channel, listening, heard)
	if ctx.Err() != nil { // whatever pgx and the network called it
		err = ctx.Err()
	}
	return fmt.Errorf("pgxwaker: %w", err)
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
