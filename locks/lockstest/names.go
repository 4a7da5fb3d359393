package lockstest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rowlease/rowlease/locks"
)

func namePromises() []promise {
	return []promise{
		{name: "resources are told apart by their bytes and come back as given", test: namesApart},
		{name: "owners are told apart by their bytes and come back as given", test: namesOwners},
		{name: "attempts are told apart by their bytes", test: namesAttempts},
		{name: "lists order names by their bytes", test: namesOrder},
		{name: "names out of rule are refused everywhere", test: namesRefused},
	}
}

// goodNames are names that some engine, driver or collation folds, cuts, quotes, formats or confuses. All are at most
// 255 bytes, so that they are owners and attempts too.
func goodNames() []string {
	return []string{
		"a", "A", "b", "foo", "Foo", "FOO", "foo ", " foo", "foo  ", "fo o", " ", "  ", ".", "..", "0", "00", "1", "1.0", "1e0", "null", "NULL", "true",
		"\u00e9", "e\u0301", "E\u0301", "\u00c9", "\u00c5", "\u212b", "A\u030a", "\ufb01", "fi", "\u00df", "ss", "SS", "\u1e9e", "\u0130", "i\u0307", "\u0131", "i", "I",
		"a_b", "axb", "a%b", "ab", "a%", "a_", "%", "_", "a\\b", "a\\\\b", `a\_b`, "\\", "a'b", "a''b", "'", `a"b`, `"`, "`", "a;b", "--", "/*", "a--b",
		"?", "??", "a?b", "$1", "$$", "a$1b", ":name", ":1", "@name", "#", "%s", "%d", "{}", "{0}", "${x}", "?0", "?TableName", "?name", "$tag$", "E'\\n'", "\\x41", "\\u0041", `\0`,
		"a/b", "a%2Fb", "a%252Fb", "a b", "a+b", "100%25", "a&b", "a=b", "a#b", "http:POST:/payments", "job:42", "job:42:", "job::42",
		"\u4f60\u597d", "\u4f60", "\u3042", "\u30a2", "\uff71", "\u0627\u0644\u0639", "\u202eabc", "abc\u200f", "\u200b", "a\u200bb", "\u00a0", "\u2028", "\ufeff", "\ufeffa", "\ufffd",
		"\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001f468\U0001f469", "\U0010ffff", "a\U0010ffff", "\ud7ff", "\ue000", "\uffff", "\U00010000", "~",
		"\u00f6", "o\u0308", "z", "Z", "\u00e4", "ae", "\u0441", "c", "\u0430",
	}
}

// longNames differ only at their ends, past what shorter columns and index keys keep.
func longNames() []string {
	return []string{
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 511), strings.Repeat("x", 512), strings.Repeat("x", 511) + "y",
		strings.Repeat("x", 511) + " ", strings.Repeat("\u00e9", 256), strings.Repeat("\U0001f600", 128), strings.Repeat("\U0010ffff", 127) + "\u00e9\u00e8",
	}
}

func namesApart(c *check) {
	names := append(goodNames(), longNames()...)
	held := make([]locks.Lock, len(names))
	for i, name := range names {
		held[i] = c.acquire(c.stores[i%2], name, fmt.Sprintf("worker-%d", i))
		if held[i].Resource != name {
			c.Errorf("Acquire(%q) was answered with %q", name, held[i].Resource)
		}
	}
	c.wantRows(len(names))
	for i, name := range names {
		c.wantSame("Get", c.get(c.stores[1-i%2], name), held[i])
		_, err := c.a.Acquire(c.Context(), c.request(name, "another"))
		c.wantHeld(err, held[i])
	}
	for i, name := range names {
		if i%2 == 0 {
			c.release(c.b, c.renew(c.a, held[i].Grant(), ttl).Grant())
		} else {
			c.expire(name)
		}
		if _, err := c.a.Get(c.Context(), name); err == nil {
			c.Errorf("%q is still held", name)
		}
		if i+1 < len(names) {
			c.wantSame("the next name", c.get(c.a, names[i+1]), held[i+1])
		}
	}
}

func namesOwners(c *check) {
	names := append(goodNames(), strings.Repeat("x", locks.MaxOwnerBytes), strings.Repeat("x", locks.MaxOwnerBytes-1), strings.Repeat("\u00e9", 127))
	for i, owner := range names {
		lock := c.acquire(c.a, resource, owner)
		if lock.Owner != owner {
			c.Errorf("granted to %q, want %q", lock.Owner, owner)
		}
		// a few others: all pairs would take too long on a database
		for _, other := range []string{names[(i+1)%len(names)], names[(i+len(names)-1)%len(names)], owner + " ", strings.ToUpper(owner) + "_"} {
			if len(other) > locks.MaxOwnerBytes {
				continue
			}
			_, err := c.b.Acquire(c.Context(), c.request(resource, other))
			c.wantHeld(err, lock)
			late := locks.Grant{Resource: resource, Owner: other, Token: lock.Token}
			c.wantLost(c.b.Release(c.Context(), late), late, locks.ErrNotOwner)
		}
		c.release(c.b, lock.Grant())
	}
}

func namesAttempts(c *check) {
	names := append(goodNames(), strings.Repeat("x", locks.MaxAttemptBytes), strings.Repeat("x", locks.MaxAttemptBytes-1))
	var last locks.Lock
	for _, attempt := range names {
		request := locks.Request{Resource: resource, Owner: "worker-1", Attempt: attempt, TTL: ttl}
		lock := c.grant(c.a, request)
		if lock.Token <= last.Token {
			c.Errorf("attempt %q was taken for the one before it", attempt)
		}
		c.wantSame("the same attempt", c.grant(c.b, request), lock)
		last = lock
	}
	for _, attempt := range names[:len(names)-1] {
		c.wantNoAttempt(locks.Request{Resource: resource, Owner: "worker-1", Attempt: attempt})
	}
	if err := c.b.ReleaseAttempt(c.Context(), resource, "worker-1", names[len(names)-1]); err != nil {
		c.Errorf("ReleaseAttempt: %v", err)
	}
}

func namesOrder(c *check) {
	lister := c.lister(c.a)
	names := append(goodNames(), longNames()...)
	for i, name := range names {
		c.acquire(c.stores[i%2], name, "worker-1")
	}
	slices.Sort(names)
	for _, limit := range []int{locks.MaxListLimit, 7} {
		c.wantNames(fmt.Sprintf("all, by %d", limit), c.listAll(lister, locks.ListQuery{Limit: limit}), names)
	}
	for _, name := range names {
		var want []string
		for _, n := range names {
			if strings.HasPrefix(n, name) {
				want = append(want, n)
			}
		}
		c.wantNames(fmt.Sprintf("prefix %.80q", name), c.listAll(lister, locks.ListQuery{Prefix: name}), want)
	}
}

// badNames break a rule for resources, owners and attempts alike.
func badNames() []string {
	bad := []string{
		"", strings.Repeat("x", 513), strings.Repeat("x", 2704), strings.Repeat("x", 10000), strings.Repeat("\u00e9", 257), strings.Repeat("x", 511) + "\u00e9",
		"\xff", "a\xc3", "\xc3(", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\xe9t\xe9",
	}
	for _, control := range []string{"\x00", "\x01", "\t", "\n", "\r", "\x1b", "\x1f", "\x7f", "\u0080", "\u0085", "\u009f"} {
		bad = append(bad, control, "a"+control, control+"a", "a"+control+"b")
	}
	return bad
}

func namesRefused(c *check) {
	held := c.acquire(c.a, resource, "worker-1")
	tooLong := strings.Repeat("x", locks.MaxOwnerBytes+1)
	for _, bad := range badNames() {
		for _, call := range calls() {
			for _, field := range call.names {
				c.wantRefused(call, arguments{field: bad}, field)
			}
		}
	}
	for _, call := range calls() {
		for _, field := range call.names {
			if field == "owner" || field == "attempt" {
				c.wantRefused(call, arguments{field: tooLong}, field)
			}
		}
	}
	c.wantStored(held)
	c.wantRows(1)
}
