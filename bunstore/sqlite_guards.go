package bunstore

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
)

// sqliteGuards is what one transaction guards, by resource. The file's write lock keeps everybody else out, but not the
// transaction itself, and SQLite has nothing that would remember it for the time of a transaction. So Go does, for all
// handles that the host has on one transaction: those of its savepoints are handles of their own.
type sqliteGuards struct {
	mu        sync.Mutex
	resources map[string]int // how many handles guard it
}

func (g *sqliteGuards) has(resource string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resources[resource] > 0
}

func (g *sqliteGuards) add(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resources[resource]++
}

func (g *sqliteGuards) remove(resources []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, resource := range resources {
		g.resources[resource]--
	}
}

// sqliteTransactions are the guards of the transactions that there are. It does not keep a transaction alive: nobody has
// to say how one ended that only guards.
type sqliteTransactions struct {
	mu     sync.Mutex
	guards map[weak.Pointer[sql.Tx]]*sqliteGuards
}

func newSQLiteTransactions() *sqliteTransactions {
	return &sqliteTransactions{guards: map[weak.Pointer[sql.Tx]]*sqliteGuards{}}
}

// guardsOf returns the guards of the transaction. A connection on which the host begins transactions by hand has no name
// for one: there each handle is a transaction.
func (s *sqliteTransactions) guardsOf(q transaction.Querier) *sqliteGuards {
	tx, ok := q.(*sql.Tx)
	if !ok {
		return &sqliteGuards{resources: map[string]int{}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := weak.Make(tx)
	guards := s.guards[key]
	if guards == nil {
		guards = &sqliteGuards{resources: map[string]int{}}
		s.guards[key] = guards
		runtime.AddCleanup(tx, s.forget, key)
	}
	return guards
}

func (s *sqliteTransactions) forget(key weak.Pointer[sql.Tx]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.guards, key)
}
