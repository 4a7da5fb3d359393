package optimistic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore/optimistic"
)

type note struct {
	ID        int64 `bun:",pk"`
	Version   int64
	DeletedAt time.Time `bun:",soft_delete,nullzero"`
}

func TestDelete(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil), (*note)(nil))
	insert(t, db, &account{ID: 7, Version: 3})
	insert(t, db, &note{ID: 7, Version: 3})

	if err := optimistic.Delete(t.Context(), db, &account{ID: 7, Version: 2}); !errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("Delete at another version = %v, want a conflict", err)
	}
	a := account{ID: 7, Version: 3}
	if err := optimistic.Delete(t.Context(), db, &a); err != nil || a.Version != 3 {
		t.Errorf("Delete = %v, version %d", err, a.Version)
	}
	if err := optimistic.Delete(t.Context(), db, &a); !errors.Is(err, optimistic.ErrNotFound) {
		t.Errorf("Delete again = %v, want ErrNotFound", err)
	}

	n := note{ID: 7, Version: 2}
	if err := optimistic.Delete(t.Context(), db, &n); !errors.Is(err, optimistic.ErrConflict) || n != (note{ID: 7, Version: 2}) {
		t.Errorf("soft Delete at another version = %v, the struct is %+v", err, n)
	}
	n.Version = 3
	if err := optimistic.Delete(t.Context(), db, &n); err != nil || n.DeletedAt.IsZero() {
		t.Errorf("soft Delete = %v, the struct is %+v", err, n)
	}
	if err := optimistic.Update(t.Context(), db, &note{ID: 7, Version: 3}); !errors.Is(err, optimistic.ErrNotFound) {
		t.Errorf("Update of a soft-deleted row = %v, want ErrNotFound", err)
	}
}
