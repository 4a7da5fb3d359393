package bunstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/internal/pooler"
)

// postgresSessions looks, with a second connection, whether a connection has a backend of its own, and whether an
// advisory lock of one keeps others out. The gate of each resource is such a lock: a database that only knows the
// functions' names would grant a resource twice.
func (c *checker) postgresSessions(ctx context.Context, a rawQuerier) (bool, error) {
	b, ok := c.second(ctx)
	if !ok {
		c.notChecked("a pooler in transaction mode, and whether advisory locks exclude: the pool has no second connection to give")
		return true, ctx.Err()
	}
	defer func() { _ = b.Close() }() // back into the pool
	multiplexed, err := pooler.Multiplexed(ctx, a, b.Conn)
	if err != nil {
		return false, err
	}
	if multiplexed {
		c.report.TransactionPooler = true
		c.warn("connections go through a pooler in transaction mode: set pgx's default_query_exec_mode to cache_describe, exec " +
			"or simple_protocol (pgdriver needs nothing); what needs a session of its own does not work through it")
	}
	var key [8]byte
	if _, err := rand.Read(key[:]); err != nil {
		return false, err
	}
	// Random, so that two programs which check at once do not meet. It is no gate but by a chance of 2^-64.
	p := exclusionProbe{lock: fmt.Sprintf("((%d)::bigint)", int64(binary.LittleEndian.Uint64(key[:])))}
	if err := p.run(ctx, a, b); err != nil {
		return false, err
	}
	if !p.taken || p.excluded || p.shared || !p.freed {
		c.problem("advisory locks do not exclude (taken by one transaction: %t, then also by another: %t, shared: %t, free after "+
			"the rollback: %t): this database only imitates PostgreSQL's, and two owners could be granted one resource",
			p.taken, p.excluded, p.shared, p.freed)
	}
	return true, nil
}

type exclusionProbe struct {
	lock string

	taken                   bool // b's transaction got the lock
	excluded, shared, freed bool // a got it meanwhile, exclusively or shared, and after b's rollback
}

func (p *exclusionProbe) run(ctx context.Context, a rawQuerier, b bun.Conn) error {
	tx, err := b.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has been rolled back, or has failed
	if err := rawQuery(ctx, tx, `SELECT pg_try_advisory_xact_lock(`+p.lock+`)`, nil, &p.taken); err != nil {
		return err
	}
	if err := rawQuery(ctx, a, `SELECT pg_try_advisory_xact_lock(`+p.lock+`)`, nil, &p.excluded); err != nil {
		return err
	}
	if err := rawQuery(ctx, a, `SELECT pg_try_advisory_xact_lock_shared(`+p.lock+`)`, nil, &p.shared); err != nil {
		return err
	}
	if err := tx.Rollback(); err != nil {
		return err
	}
	return rawQuery(ctx, a, `SELECT pg_try_advisory_xact_lock(`+p.lock+`)`, nil, &p.freed)
}
