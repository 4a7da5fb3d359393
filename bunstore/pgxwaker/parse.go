package pgxwaker

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// parse is pgx's, with an error that cannot show the password: pgx takes what looks like one out of its own, which for a
// string that it could not read is a guess.
func parse(connString string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, fmt.Errorf("pgxwaker: the connection string cannot be parsed: %s", reason(connString))
	}
	return config, nil
}

// reason tells what pgx says of the same string without a password, if that can be told apart.
func reason(connString string) string {
	const neither = "it is neither a postgres:// URL nor a list of key=value whose values are valid"
	harmless := connString
	if strings.HasPrefix(connString, "postgres://") || strings.HasPrefix(connString, "postgresql://") {
		u, err := url.Parse(connString)
		if err != nil {
			return "it is not a valid URL (what is special in a URL is percent-encoded in names and passwords)"
		}
		harmless = withoutPassword(u)
	} else if strings.Contains(strings.ToLower(connString), "pass") || !strings.Contains(connString, "=") {
		return neither
	}
	_, err := pgx.ParseConfig(harmless)
	if err != nil {
		if _, text, found := strings.Cut(err.Error(), "`: "); found {
			return text
		}
	}
	return "one of its values is not valid"
}

func withoutPassword(u *url.URL) string {
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for key := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
