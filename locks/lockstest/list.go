package lockstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rowlease/rowlease/locks"
)

func listPromises() []promise {
	return []promise{
		{name: "a list has the full records, in the order of the resources", test: listRecords},
		{name: "free and ended resources are not listed, and fill no page", test: listLive},
		{name: "pages cover every lease once", test: listPages},
		{name: "the default limit is 100", test: listDefaultLimit},
		{name: "prefixes are bytes, not patterns", test: listPrefix},
		{name: "an owner's leases, and filters together", test: listOwner},
		{name: "after may name no lease", test: listAfter},
	}
}

// lister returns the store's ability to list, or skips the test.
func (c *check) lister(store locks.Store) locks.Lister {
	c.Helper()
	lister, ok := store.(locks.Lister)
	if !ok {
		c.Skipf("not tested: lists (%T is no locks.Lister)", store)
	}
	return lister
}

// listAll follows the pages of a query to the last.
func (c *check) listAll(lister locks.Lister, query locks.ListQuery) []locks.Lock {
	c.Helper()
	var all []locks.Lock
	for range 10000 {
		page, err := lister.List(c.Context(), query)
		if err != nil {
			c.Fatalf("List(%+v): %v", query, err)
		}
		limit := query.Limit
		if limit == 0 {
			limit = locks.DefaultListLimit
		}
		if len(page.Locks) > limit || page.More && len(page.Locks) < limit {
			c.Fatalf("List(%+v) returned %d leases, More = %t", query, len(page.Locks), page.More)
		}
		all = append(all, page.Locks...)
		if !page.More {
			return all
		}
		query.After = page.Locks[len(page.Locks)-1].Resource
	}
	c.Fatalf("List(%+v) has no last page", query)
	return nil
}

func (c *check) wantNames(what string, got []locks.Lock, want []string) {
	c.Helper()
	names := make([]string, len(got))
	for i, lock := range got {
		names[i] = lock.Resource
	}
	if !slices.Equal(names, want) {
		c.Errorf("%s: listed\n     %.2000q\nwant %.2000q", what, names, want)
	}
}

func listRecords(c *check) {
	if got := c.listAll(c.lister(c.a), locks.ListQuery{}); len(got) != 0 {
		c.Errorf("an empty store lists %+v", got)
	}
	var want []locks.Lock
	for i, name := range []string{"c", "a", "d", "b"} {
		request := c.request(name, fmt.Sprintf("worker-%d", i))
		request.Metadata = metadataSamples()[i]
		want = append(want, c.grant(c.stores[i%2], request))
	}
	want[2] = c.renew(c.a, want[2].Grant(), 2*ttl)
	slices.SortFunc(want, func(a, b locks.Lock) int { return strings.Compare(a.Resource, b.Resource) })
	for _, store := range []locks.Store{c.a, c.b} {
		got := c.listAll(c.lister(store), locks.ListQuery{})
		if len(got) != len(want) {
			c.Fatalf("listed %d leases, want %d", len(got), len(want))
		}
		for i := range got {
			c.wantSame("List", got[i], want[i])
			if left := c.get(c.b, want[i].Resource).Remaining; got[i].Remaining < left || got[i].Remaining > 2*ttl {
				c.Errorf("List: Remaining = %v, later Get says %v", got[i].Remaining, left)
			}
		}
	}
}

func listLive(c *check) {
	lister := c.lister(c.a)
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("invoice:%02d", i)
		lock := c.acquire(c.b, name, "worker-1")
		switch i % 3 {
		case 0:
			c.expire(name)
		case 1:
			want = append(want, name)
		case 2:
			c.release(c.a, lock.Grant())
		}
	}
	for _, limit := range []int{0, 1, 2, 3} {
		c.wantNames(fmt.Sprintf("limit %d", limit), c.listAll(lister, locks.ListQuery{Limit: limit}), want)
	}
	c.acquire(c.a, "invoice:00", "worker-2") // taken over: listed again
	c.wantNames("after a takeover", c.listAll(lister, locks.ListQuery{}), append([]string{"invoice:00"}, want...))
	c.wantNames("the new owner's", c.listAll(lister, locks.ListQuery{Owner: "worker-2"}), []string{"invoice:00"})
}

func listPages(c *check) {
	lister := c.lister(c.a)
	var want []string
	for i := range 24 {
		name := fmt.Sprintf("invoice:%d", i*i*7%101)
		c.acquire(c.stores[i%2], name, "worker-1")
		if !slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	for _, limit := range []int{1, 2, 5, len(want) - 1, len(want), len(want) + 1, locks.MaxListLimit} {
		c.wantNames(fmt.Sprintf("limit %d", limit), c.listAll(lister, locks.ListQuery{Limit: limit}), want)
	}
	page, err := lister.List(c.Context(), locks.ListQuery{Limit: len(want) - 1})
	if err != nil || len(page.Locks) != len(want)-1 || !page.More {
		c.Errorf("all but one: %d leases, More = %t, %v, want %d and more", len(page.Locks), page.More, err, len(want)-1)
	}
	page, err = lister.List(c.Context(), locks.ListQuery{Limit: len(want) + 1})
	if err != nil || len(page.Locks) != len(want) || page.More {
		c.Errorf("all: %d leases, More = %t, %v, want %d and no more", len(page.Locks), page.More, err, len(want))
	}
}

func listDefaultLimit(c *check) {
	lister := c.lister(c.a)
	for i := range locks.DefaultListLimit + 1 {
		c.acquire(c.stores[i%2], fmt.Sprintf("invoice:%03d", i), "worker-1")
	}
	page, err := lister.List(c.Context(), locks.ListQuery{})
	if err != nil || len(page.Locks) != locks.DefaultListLimit || !page.More {
		c.Errorf("%d leases, More = %t, %v, want %d and more", len(page.Locks), page.More, err, locks.DefaultListLimit)
	}
	if got := c.listAll(lister, locks.ListQuery{}); len(got) != locks.DefaultListLimit+1 {
		c.Errorf("%d leases in all pages, want %d", len(got), locks.DefaultListLimit+1)
	}
}

func listPrefix(c *check) {
	lister := c.lister(c.b)
	names := []string{
		"job", "job:", "job:1", "job:10", "job:2", "Job:1", "JOB:1", "jobs", "joB:1", "job;1", "a_b", "axb", "a_bc", "a%b", "aXXb", "a%bc", `a\b`, `a\%b`, "a*b", "a?b", "a[x]b",
		"\ud7ff", "\ud7ffa", "\ue000", "\ue000a", "\uffff", "\uffffa", "\U00010000", "x\ud7ff", "x\ud7ffa", "x\ue000", "x\U0010ffff", "x\U0010ffffa", "y",
		"\U0010ffff", "\U0010ffffa", "\U0010ffff\U0010ffff", "\U0010ffff\U0010ffffa", "~", "~~", "\u00e9", "\u00e9a", "e\u0301", "\u00ea", "\u00ff", "\u0100", "x\u00ff", "x\u0100", " ", "  ", " a",
	}
	for i, name := range names {
		c.acquire(c.stores[i%2], name, "worker-1")
	}
	slices.Sort(names)
	for _, prefix := range append(names, "jo", "j", "a", "a_", "a%", "x", "e", "none", "zzz", "job:1 ", strings.Repeat("\U0010ffff", 128)) {
		var want []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for _, limit := range []int{0, 2} {
			c.wantNames(fmt.Sprintf("prefix %q", prefix), c.listAll(lister, locks.ListQuery{Prefix: prefix, Limit: limit}), want)
		}
	}
}

func listOwner(c *check) {
	lister := c.lister(c.a)
	for i := range 12 {
		request := c.request(fmt.Sprintf("%s:%02d", []string{"invoice", "report"}[i%2], i), []string{"w", "W", "w "}[i%3])
		request.Metadata = json.RawMessage(`{"owner":"nobody"}`)
		c.grant(c.stores[i%2], request)
	}
	c.expire("invoice:06")
	for _, limit := range []int{0, 1} {
		c.wantNames("owner w", c.listAll(lister, locks.ListQuery{Owner: "w", Limit: limit}), []string{"invoice:00", "report:03", "report:09"})
		c.wantNames("owner W", c.listAll(lister, locks.ListQuery{Owner: "W", Limit: limit}), []string{"invoice:04", "invoice:10", "report:01", "report:07"})
		c.wantNames("owner w and a blank", c.listAll(lister, locks.ListQuery{Owner: "w ", Limit: limit}),
			[]string{"invoice:02", "invoice:08", "report:05", "report:11"})
		c.wantNames("nobody's", c.listAll(lister, locks.ListQuery{Owner: "nobody", Limit: limit}), nil)
		c.wantNames("owner and prefix", c.listAll(lister, locks.ListQuery{Owner: "W", Prefix: "report:", Limit: limit}), []string{"report:01", "report:07"})
		c.wantNames("owner, prefix and after", c.listAll(lister, locks.ListQuery{Owner: "W", Prefix: "report:", After: "report:01", Limit: limit}),
			[]string{"report:07"})
	}
}

func listAfter(c *check) {
	lister := c.lister(c.b)
	for _, name := range []string{"b", "b:1", "b:2", "b:3", "c"} {
		c.acquire(c.a, name, "worker-1")
	}
	for _, q := range []struct {
		after, prefix string
		want          []string
	}{
		{"a", "", []string{"b", "b:1", "b:2", "b:3", "c"}},
		{"b", "", []string{"b:1", "b:2", "b:3", "c"}},
		{"b:1a", "", []string{"b:2", "b:3", "c"}},
		{"b:2", "", []string{"b:3", "c"}},
		{"c", "", nil},
		{"\U0010ffff", "", nil},
		{"a", "b:", []string{"b:1", "b:2", "b:3"}}, // before the prefix
		{"b:1", "b:", []string{"b:2", "b:3"}},
		{"B:2", "b:", []string{"b:1", "b:2", "b:3"}},
		{"c", "b:", nil}, // behind it
		{strings.Repeat("b", 512), "", []string{"c"}},
	} {
		for _, limit := range []int{0, 1} {
			query := locks.ListQuery{After: q.after, Prefix: q.prefix, Limit: limit}
			c.wantNames(fmt.Sprintf("%+.80v", query), c.listAll(lister, query), q.want)
		}
	}
}
