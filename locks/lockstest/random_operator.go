package lockstest

import (
	"errors"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// The steps of a walk that are not an owner's: time's and the operator's.

func (w *walk) end(locks.Store) {
	resource := w.resource()
	w.note("Expire %s", resource)
	w.c.expire(resource)
	if row := w.model.rows[resource]; row != nil {
		row.ended = true
	}
}

func (w *walk) list(store locks.Store) {
	lister, ok := store.(locks.Lister)
	if !ok {
		return
	}
	query := locks.ListQuery{Limit: 1 + w.random.IntN(3)}
	if w.random.IntN(2) == 0 {
		query.Owner = w.owner()
	}
	var want []string
	for name := range w.model.rows {
		if lock := w.model.live(name); lock != nil && (query.Owner == "" || lock.Owner == query.Owner) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	got := w.c.listAll(lister, query)
	w.note("List of owner %q: got %d, want %d", query.Owner, len(got), len(want))
	w.c.wantNames("List", got, want)
	for _, lock := range got {
		if want := w.model.live(lock.Resource); want != nil {
			w.c.wantSame("List", lock, *want)
		}
	}
}

// purge deletes all ended rows: which of them a smaller limit leaves is the store's affair.
func (w *walk) purge(store locks.Store) {
	purger, ok := store.(locks.Purger)
	if !ok {
		return
	}
	want := 0
	for name, row := range w.model.rows {
		if row.ended {
			delete(w.model.rows, name)
			want++
		}
	}
	n, err := purger.Purge(w.c.Context(), 10)
	w.note("Purge: want %d, got %d, %v", want, n, err)
	if n != want || err != nil {
		w.c.Errorf("Purge = %d, %v, want %d", n, err, want)
	}
}

func (w *walk) force(store locks.Store) {
	forcer, ok := store.(locks.ForceReleaser)
	if !ok {
		return
	}
	grant := w.grant()
	if grant.Token == locks.AnyToken {
		return
	}
	want := w.model.live(grant.Resource)
	lock, err := forcer.ForceRelease(w.c.Context(), grant.Resource, grant.Token)
	w.note("ForceRelease %s, token %d: got token %d, %v", grant.Resource, grant.Token, lock.Token, err)
	switch {
	case want == nil:
		if !errors.Is(err, locks.ErrNotFound) {
			w.c.Errorf("err = %v, want ErrNotFound", err)
		}
	case want.Token != grant.Token:
		if !errors.Is(err, locks.ErrSuperseded) {
			w.c.Errorf("err = %v, want ErrSuperseded", err)
		}
	case err != nil:
		w.c.Errorf("err = %v, want a release", err)
	default:
		w.c.wantSame("ForceRelease", lock, *want)
		delete(w.model.rows, grant.Resource)
	}
}

func (w *walk) deleteRow(locks.Store) {
	if w.c.h.DeleteRow != nil {
		resource := w.resource()
		w.note("delete the row of %s by hand", resource)
		w.c.deleteRow(resource)
		delete(w.model.rows, resource)
	}
}

func (w *walk) truncate(store locks.Store) {
	if w.c.h.Truncate != nil {
		w.note("empty the table by hand")
		w.c.h.Truncate(w.c.TB, store)
		clear(w.model.rows)
		clear(w.model.ids) // identities restart
	}
}
