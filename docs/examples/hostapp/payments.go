package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/uptrace/bun"
)

// maxWork is the longest that ?work= may make a payment take.
const maxWork = time.Minute

// payment is a row, and the answer to the request that made it.
type payment struct {
	bun.BaseModel `bun:"table:payments" json:"-"`

	ID             string    `bun:"id,pk" json:"id"`
	IdempotencyKey string    `bun:"idempotency_key" json:"idempotency_key"`
	Amount         int64     `bun:"amount" json:"amount"`
	CreatedAt      time.Time `bun:"created_at" json:"created_at"`
}

type payments struct {
	db *bun.DB
}

// create answers POST /payments?work=2s {"amount":100}. The middleware has seen to it that no other request with this
// Idempotency-Key runs now, and it ends the request's context should that no longer be certain.
//
// A lease serialises; it does not deduplicate. That is the table's work: a request that comes again when the first
// has been answered finds that payment, and gets the same answer. The unique key is the last fence, too: should this
// process sleep past its lease, and another take the payment meanwhile, then this row is refused.
func (p *payments) create(c echo.Context) error {
	ctx := c.Request().Context()
	key := c.Request().Header.Get(keyHeader)
	work, amount, err := readPayment(c)
	if err != nil {
		return err
	}

	made, found, err := p.find(ctx, key)
	switch {
	case err != nil:
		return because(ctx, err)
	case found && made.Amount != amount:
		return echo.NewHTTPError(http.StatusUnprocessableEntity, "this Idempotency-Key was used for another amount")
	case found:
		c.Response().Header().Set("Idempotent-Replayed", "true")
		return c.JSON(http.StatusCreated, made)
	}

	if err := wait(ctx, work); err != nil {
		return err
	}
	made = payment{ID: "pay_" + rand.Text(), IdempotencyKey: key, Amount: amount, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	if err := p.insert(ctx, made); err != nil {
		return because(ctx, err)
	}
	return c.JSON(http.StatusCreated, made)
}

// find returns the payment that was made for the key, and whether there is one.
func (p *payments) find(ctx context.Context, key string) (made payment, found bool, err error) {
	err = p.db.NewSelect().Model(&made).Where("idempotency_key = ?", key).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return made, false, nil
	}
	return made, err == nil, err
}

func (p *payments) insert(ctx context.Context, made payment) error {
	result, err := p.db.NewInsert().Model(&made).On("CONFLICT (idempotency_key) DO NOTHING").Exec(ctx)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	return errOvertaken
}

// errOvertaken: while this process slept past its lease, another made the payment.
var errOvertaken = errors.New("another request made the payment meanwhile")

// readPayment reads what the request asks for.
func readPayment(c echo.Context) (work time.Duration, amount int64, err error) {
	if text := c.QueryParam("work"); text != "" {
		if work, err = time.ParseDuration(text); err != nil || work < 0 || work > maxWork {
			return 0, 0, echo.NewHTTPError(http.StatusBadRequest, fmt.Sprintf("work must be a duration from 0s to %v, such as 2s", maxWork))
		}
	}
	var body struct {
		Amount *int64 `json:"amount"`
	}
	decoder := json.NewDecoder(c.Request().Body)
	decoder.DisallowUnknownFields()
	var refused *echo.HTTPError // by the limit on bodies
	switch err := decoder.Decode(&body); {
	case errors.As(err, &refused):
		return 0, 0, refused
	case err != nil || decoder.Decode(new(any)) != io.EOF:
		return 0, 0, echo.NewHTTPError(http.StatusBadRequest, `the body must be JSON such as {"amount":100}, with a whole number`)
	case body.Amount == nil || *body.Amount < 1 || *body.Amount > 1_000_000_000:
		return 0, 0, echo.NewHTTPError(http.StatusUnprocessableEntity, "amount must be from 1 to 1000000000")
	}
	return work, *body.Amount, nil
}

// wait is the work: a call to a bank, in a real application. It ends with the context, and tells why that ended.
func wait(ctx context.Context, work time.Duration) error {
	timer := time.NewTimer(work)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// because returns why the context has ended, if it has: drivers only tell that it did. Otherwise it tells a database that
// is down or busy from a mistake of ours.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errOvertaken) || isMistake(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errDatabase, err)
}
