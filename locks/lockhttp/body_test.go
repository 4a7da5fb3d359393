package lockhttp_test

import (
	"strings"
	"testing"
)

// Everything that a body can get wrong, for acquire: what is malformed is 400, what breaks a rule 422.
func TestRefusedBodies(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, row := range []struct {
		name, body, headers string
		status              int
		problem, field      string
	}{
		{"no body", "", "Content-Type: application/json", 400, "malformed-request", "body"},
		{"blanks", " \n", "", 400, "malformed-request", "body"},
		{"no JSON", "owner=w1", "", 400, "malformed-request", "body"},
		{"array", `[{"owner":"w1"}]`, "", 400, "malformed-request", "body"},
		{"string", `"w1"`, "", 400, "malformed-request", "body"},
		{"null", `null`, "", 400, "malformed-request", "body"},
		{"cut", `{"owner":"w1"`, "", 400, "malformed-request", "body"},
		{"trailing data", `{"owner":"w1"}{}`, "", 400, "malformed-request", "body"},
		{"trailing word", `{"owner":"w1"} x`, "", 400, "malformed-request", "body"},
		{"trailing comma", `{"owner":"w1",}`, "", 400, "malformed-request", "body"},
		{"byte order mark", "\ufeff" + `{"owner":"w1"}`, "", 400, "malformed-request", "body"},
		{"bad UTF-8", "{\"owner\":\"w\xff\"}", "", 400, "malformed-request", "body"},
		{"UTF-8 surrogate", "{\"owner\":\"\xed\xa0\x80\"}", "", 400, "malformed-request", "body"},
		{"high surrogate", `{"owner":"\ud800"}`, "", 400, "malformed-request", "owner"},
		{"low surrogate", `{"owner":"\udc00x"}`, "", 400, "malformed-request", "owner"},
		{"turned pair", `{"owner":"\udc00\ud800"}`, "", 400, "malformed-request", "owner"},
		{"half pair", `{"owner":"\uD83D\n"}`, "", 400, "malformed-request", "owner"},
		{"surrogate name", `{"owner":"w1","\ud800":1}`, "", 400, "malformed-request", "body"},
		{"unknown", `{"owner":"w1","extra":1}`, "", 400, "malformed-request", "extra"},
		{"empty name", `{"owner":"w1","":1}`, "", 400, "malformed-request", ""},
		{"long name", `{"owner":"w1","` + long(99) + `":1}`, "", 400, "malformed-request", long(64) + "…"},
		{"token", `{"owner":"w1","token":1}`, "", 400, "malformed-request", "token"},
		{"case", `{"Owner":"w1"}`, "", 400, "malformed-request", "owner"},
		{"case, folded", `{"owner":"w1","ttl_ſeconds":1}`, "", 400, "malformed-request", "ttl_seconds"},
		{"duplicate", `{"owner":"w1","owner":"w1"}`, "", 400, "malformed-request", "owner"},
		{"escaped duplicate", `{"owner":"w1","\u006fwner":"w2"}`, "", 400, "malformed-request", "owner"},
		{"null owner", `{"owner":null}`, "", 400, "malformed-request", "owner"},
		{"null TTL", `{"owner":"w1","ttl_seconds":null}`, "", 400, "malformed-request", "ttl_seconds"},
		{"null metadata", `{"owner":"w1","metadata":null}`, "", 400, "malformed-request", "metadata"},
		{"number owner", `{"owner":1}`, "", 400, "malformed-request", "owner"},
		{"bool owner", `{"owner":true}`, "", 400, "malformed-request", "owner"},
		{"object owner", `{"owner":{"a":1}}`, "", 400, "malformed-request", "owner"},
		{"float TTL", `{"owner":"w1","ttl_seconds":30.0}`, "", 400, "malformed-request", "ttl_seconds"},
		{"exponent TTL", `{"owner":"w1","ttl_seconds":1e3}`, "", 400, "malformed-request", "ttl_seconds"},
		{"string TTL", `{"owner":"w1","ttl_seconds":"30"}`, "", 400, "malformed-request", "ttl_seconds"},
		{"bool TTL", `{"owner":"w1","ttl_seconds":false}`, "", 400, "malformed-request", "ttl_seconds"},
		{"array TTL", `{"owner":"w1","ttl_seconds":[30]}`, "", 400, "malformed-request", "ttl_seconds"},
		{"string shared", `{"owner":"w1","shared":"true"}`, "", 400, "malformed-request", "shared"},
		{"number shared", `{"owner":"w1","shared":1}`, "", 400, "malformed-request", "shared"},
		{"null shared", `{"owner":"w1","shared":null}`, "", 400, "malformed-request", "shared"},
		{"cased shared", `{"owner":"w1","Shared":true}`, "", 400, "malformed-request", "shared"},
		{"float slots", `{"owner":"w1","slots":5.0}`, "", 400, "malformed-request", "slots"},
		{"string slots", `{"owner":"w1","slots":"5"}`, "", 400, "malformed-request", "slots"},
		{"bool slots", `{"owner":"w1","slots":true}`, "", 400, "malformed-request", "slots"},
		{"null slots", `{"owner":"w1","slots":null}`, "", 400, "malformed-request", "slots"},
		{"slots twice", `{"owner":"w1","slots":5,"slots":5}`, "", 400, "malformed-request", "slots"},
		{"array metadata", `{"owner":"w1","metadata":[]}`, "", 400, "malformed-request", "metadata"},
		{"string metadata", `{"owner":"w1","metadata":"{}"}`, "", 400, "malformed-request", "metadata"},
		{"duplicate in metadata", `{"owner":"w1","metadata":{"a":[{"b":1,"\u0062":2}]}}`, "", 400, "malformed-request", "metadata"},
		{"surrogate in metadata", `{"owner":"w1","metadata":{"a":["\ud800"]}}`, "", 400, "malformed-request", "metadata"},

		{"no owner", `{}`, "", 422, "invalid-field", "owner"},
		{"empty owner", `{"owner":""}`, "", 422, "invalid-field", "owner"},
		{"long owner", `{"owner":"` + long(256) + `"}`, "", 422, "invalid-field", "owner"},
		{"NUL owner", `{"owner":"a\u0000b"}`, "", 422, "invalid-field", "owner"},
		{"C1 owner", `{"owner":"a\u0085b"}`, "", 422, "invalid-field", "owner"},
		{"TTL 0", `{"owner":"w1","ttl_seconds":0}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL -0", `{"owner":"w1","ttl_seconds":-0}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL -1", `{"owner":"w1","ttl_seconds":-1}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL over a day", `{"owner":"w1","ttl_seconds":86401}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL that wraps", `{"owner":"w1","ttl_seconds":18446744073709551646}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL whose nanoseconds wrap", `{"owner":"w1","ttl_seconds":9223372036854775807}`, "", 422, "invalid-field", "ttl_seconds"},
		{"TTL of many digits", `{"owner":"w1","ttl_seconds":1` + strings.Repeat("0", 999) + `}`, "", 422, "invalid-field", "ttl_seconds"},
		{"0 slots", `{"owner":"w1","slots":0}`, "", 422, "invalid-field", "slots"},
		{"-1 slots", `{"owner":"w1","slots":-1}`, "", 422, "invalid-field", "slots"},
		{"too many slots", `{"owner":"w1","slots":10001}`, "", 422, "invalid-field", "slots"},
		{"slots that wrap", `{"owner":"w1","slots":18446744073709551617}`, "", 422, "invalid-field", "slots"},
		{"slots and shared", `{"owner":"w1","slots":5,"shared":true}`, "", 422, "invalid-field", "slots"},
		{"large metadata", `{"owner":"w1","metadata":{"a":"` + long(4089) + `"}}`, "", 422, "invalid-field", "metadata"},
		{"deep metadata", `{"owner":"w1","metadata":{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}}`, "", 422, "invalid-field", "metadata"},
		{"very deep metadata", `{"owner":"w1","metadata":{"a":` + strings.Repeat("[", 8000) + strings.Repeat("]", 8000) + `}}`, "", 422, "invalid-field", "metadata"},

		{"too large", `{"owner":"w1"}` + strings.Repeat(" ", 16<<10), "", 413, "body-too-large", "body"},
		{"no type", `{"owner":"w1"}`, "Content-Type: ", 415, "unsupported-media-type", "Content-Type"},
		{"neither type nor body", ``, "", 415, "unsupported-media-type", "Content-Type"},
		{"form", `owner=w1`, "Content-Type: application/x-www-form-urlencoded", 415, "unsupported-media-type", "Content-Type"},
		{"text", `{"owner":"w1"}`, "Content-Type: text/plain", 415, "unsupported-media-type", "Content-Type"},
		{"another JSON", `{"owner":"w1"}`, "Content-Type: application/vnd.api+json", 415, "unsupported-media-type", "Content-Type"},
		{"broken type", `{"owner":"w1"}`, "Content-Type: application/json; charset", 415, "unsupported-media-type", "Content-Type"},
		{"latin1", `{"owner":"w1"}`, "Content-Type: application/json; charset=latin1", 415, "unsupported-media-type", "Content-Type"},
		{"gzip", `{"owner":"w1"}`, "Content-Encoding: gzip", 415, "unsupported-media-type", "Content-Encoding"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newRig(t)
			var headers []string
			if row.headers != "" {
				headers = []string{row.headers}
			}
			want(t, g.send("POST", "/locks/r", row.body, headers...), row.status, row.problem, row.field)
			if g.store.Rows() != 0 {
				t.Error("a refused request made a row")
			}
		})
	}
}

func TestTakenBodies(t *testing.T) {
	for name, row := range map[string]struct{ body, header string }{
		"charset":            {`{"owner":"w1"}`, "Content-Type: application/json; charset=utf-8"},
		"charset in capital": {`{"owner":"w1"}`, `Content-Type: Application/JSON;charset="UTF-8"`},
		"identity":           {`{"owner":"w1"}`, "Content-Encoding: identity"},
		"blanks around":      {" \r\n\t{ \"owner\" : \"w1\" } \n", "X: y"},
		"escaped owner":      {`{"owner":"\u0077\u0031"}`, "X: y"},
		"whole pair":         {`{"owner":"w1","metadata":{"\ud83d\ude00":"\uD83D\uDE00","\\ud800":"\\\\ud800"}}`, "X: y"},
		"null inside":        {`{"owner":"w1","metadata":{"a":null,"b":[1e400,-0.0]}}`, "X: y"},
		"names per object":   {`{"owner":"w1","metadata":{"a":{"a":1},"b":{"a":1}}}`, "X: y"},
		"31 inside":          {`{"owner":"w1","metadata":{"a":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}}`, "X: y"},
		"largest metadata":   {`{"owner":"w1","metadata":{"a":"` + strings.Repeat("x", 4088) + `"}}`, "X: y"},
		"largest body":       {`{"owner":"w1"}` + strings.Repeat(" ", 16<<10-len(`{"owner":"w1"}`)), "X: y"},
		"longest TTL":        {`{"owner":"w1","ttl_seconds":86400}`, "X: y"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			want(t, g.send("POST", "/locks/r", row.body, row.header), 200)
			if g.holder("r") != "w1" {
				t.Errorf("holder = %q, want w1", g.holder("r"))
			}
		})
	}
}

func TestOwnersThatContradictInBodyAndQuery(t *testing.T) {
	g := newRig(t)
	want(t, g.send("POST", "/locks/r?owner=w2", `{"owner":"w1"}`), 400, "malformed-request", "owner")
	want(t, g.send("POST", "/locks/other?owner=w1", `{}`), 200)
	want(t, g.send("POST", "/locks/r?owner=w1&x=%2", `{"owner":"w1"}`), 400, "malformed-request", "query")
	want(t, g.send("POST", "/locks/r?owner=w1", `{"owner":"w1"}`), 200)
	want(t, g.send("POST", "/locks/r/renew?owner=w2", `{"owner":"w1"}`), 400, "malformed-request", "owner")
	want(t, g.send("POST", "/locks/r/renew?token=5", `{"owner":"w1","token":6}`), 400, "malformed-request", "token")
}
