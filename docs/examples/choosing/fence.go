package main

import (
	"context"
	"path/filepath"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/fence"
)

// report is in another database than the leases, where no transaction can look at them.
type report struct {
	bun.BaseModel `bun:"table:reports"`

	Month string `bun:",pk"`
	Total int64  `bun:",notnull"`
	Token int64  `bun:"fence_token"`
}

func fenceStory(ctx context.Context, a *app) error {
	archive, err := openDatabase("file:" + filepath.Join(a.dir, "archive.db"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if _, err := archive.NewCreateTable().Model((*report)(nil)).Exec(ctx); err != nil {
		return err
	}
	first, err := a.locker.Acquire(ctx, "report:2026-05")
	if err != nil {
		return err
	}
	defer first.Release(ctx) //nolint:errcheck // it is lost by then

	// The first worker sleeps past the end of its lease, and a second one takes over.
	if _, err := a.store.ForceRelease(ctx, first.Resource(), first.Token()); err != nil {
		return err
	}
	second, err := a.locker.Acquire(ctx, "report:2026-05")
	if err != nil {
		return err
	}
	defer second.Release(ctx) //nolint:errcheck // the row is left to its TTL
	err = fence.Upsert(ctx, archive, &report{Month: "2026-05", Total: 230}, second.Token())
	a.say("the second worker archives the report: %s", answer(err))
	err = fence.Upsert(ctx, archive, &report{Month: "2026-05", Total: 180}, first.Token())
	a.say("the first one wakes up, and would write an older one: %s", answer(err))
	kept := report{Month: "2026-05"}
	err = archive.NewSelect().Model(&kept).WherePK().Scan(ctx)
	a.say("the archive has %d, under the second one's token: %t", kept.Total, kept.Token == second.Token())
	return err
}
