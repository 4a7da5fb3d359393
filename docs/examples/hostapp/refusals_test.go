package main

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// basic is the header of HTTP's basic authentication.
func basic(user, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+secret))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t))
	key := []string{"Idempotency-Key", fresh("bad")}
	large := `{"amount":` + strings.Repeat("1", 100_000) + `}`
	for name, refusal := range map[string]struct {
		method, path, body string
		header             []string
		status             int
	}{
		"no key":                {http.MethodPost, "/payments", `{"amount":1}`, nil, http.StatusBadRequest},
		"empty key":             {http.MethodPost, "/payments", `{"amount":1}`, []string{"Idempotency-Key", ""}, http.StatusBadRequest},
		"no body":               {http.MethodPost, "/payments", ``, key, http.StatusBadRequest},
		"not JSON":              {http.MethodPost, "/payments", `amount=1`, key, http.StatusBadRequest},
		"trailing data":         {http.MethodPost, "/payments", `{"amount":1}{}`, key, http.StatusBadRequest},
		"unknown member":        {http.MethodPost, "/payments", `{"amount":1,"currency":"EUR"}`, key, http.StatusBadRequest},
		"amount as text":        {http.MethodPost, "/payments", `{"amount":"1"}`, key, http.StatusBadRequest},
		"no amount":             {http.MethodPost, "/payments", `{}`, key, http.StatusUnprocessableEntity},
		"amount zero":           {http.MethodPost, "/payments", `{"amount":0}`, key, http.StatusUnprocessableEntity},
		"work is no duration":   {http.MethodPost, "/payments?work=long", `{"amount":1}`, key, http.StatusBadRequest},
		"work too long":         {http.MethodPost, "/payments?work=2h", `{"amount":1}`, key, http.StatusBadRequest},
		"work negative":         {http.MethodPost, "/payments?work=-1s", `{"amount":1}`, key, http.StatusBadRequest},
		"body too large":        {http.MethodPost, "/payments", large, key, http.StatusRequestEntityTooLarge},
		"unknown route":         {http.MethodGet, "/invoices", ``, nil, http.StatusNotFound},
		"wrong method":          {http.MethodGet, "/payments", ``, nil, http.StatusMethodNotAllowed},
		"reserved resource":     {http.MethodPost, "/locks/http:x", `{"owner":"w1"}`, nil, http.StatusForbidden},
		"lease without owner":   {http.MethodPost, "/locks/job:1", `{}`, nil, http.StatusUnprocessableEntity},
		"admin, wrong password": {http.MethodGet, "/admin/locks", ``, []string{"Authorization", "Basic YWRtaW46d3Jvbmc="}, http.StatusUnauthorized},
		"admin, another user":   {http.MethodGet, "/admin/locks", ``, []string{"Authorization", basic("root", password)}, http.StatusUnauthorized},
		"admin, no user":        {http.MethodGet, "/admin/locks", ``, []string{"Authorization", basic("", password)}, http.StatusUnauthorized},
		"admin, no basic auth":  {http.MethodGet, "/admin/locks", ``, []string{"Authorization", "Bearer x"}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			got := app.must(t, refusal.status, refusal.method, refusal.path, refusal.body, refusal.header...)
			if got := got.header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type = %q", got)
			}
			members := got.json(t)
			if members["status"] != float64(refusal.status) || members["title"] == "" || members["type"] == "" {
				t.Errorf("body = %s", got.body)
			}
			for _, text := range []string{"json:", "sql", "strconv", "http:", "echo", "code="} {
				if strings.Contains(strings.ReplaceAll(got.body, "begin with http:", ""), text) {
					t.Errorf("a Go error's text: %s", got.body)
				}
			}
			challenge := got.header.Values("WWW-Authenticate") // browsers ask for the password on it
			if refusal.status == http.StatusUnauthorized && !slices.Equal(challenge, []string{`Basic realm="rowlease", charset="UTF-8"`}) {
				t.Errorf("WWW-Authenticate = %q", challenge)
			}
		})
	}
	if lease := app.leaseOf(t, key[1]); lease != nil {
		t.Errorf("refused requests left a lease: %v", lease)
	}
}

// What cannot start says why, and exits at once.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	file := "DATABASE_URL=file:payments.db"
	for name, attempt := range map[string]struct {
		environment []string
		status      int
		want        string
	}{
		"port in use":      {[]string{file, "ADDR=" + taken.Addr().String()}, 1, "is in use; ADDR names another"},
		"no such database": {[]string{"DATABASE_URL=mysql://root:secret@127.0.0.1/x"}, 1, "must be a postgres:// or file: URL"},
		"database down":    {[]string{"DATABASE_URL=postgres://app:secret@127.0.0.1:1/x"}, 1, "reach the database"},
		"in memory":        {[]string{"DATABASE_URL=file::memory:"}, 1, "must name a file"},
		"TTL is no time":   {[]string{file, "LEASE_TTL=soon"}, 2, "must be a duration"},
		"TTL too short":    {[]string{file, "LEASE_TTL=1ms"}, 1, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, program)
			cmd.Dir = t.TempDir()
			cmd.Env = append(append(os.Environ(), "ADDR=127.0.0.1:0"), attempt.environment...)
			output, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != attempt.status {
				t.Errorf("exit status %d, want %d", got, attempt.status)
			}
			if !strings.Contains(string(output), attempt.want) {
				t.Errorf("no %q in the output:\n%s", attempt.want, output)
			}
			if strings.Contains(string(output), "secret") {
				t.Errorf("the output tells the password:\n%s", output)
			}
		})
	}
}
