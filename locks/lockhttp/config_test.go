package lockhttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func yes(*http.Request, lockhttp.Action, string) error { return nil }

func TestNewNamesTheFirstBadField(t *testing.T) {
	store := memstore.New()
	for field, config := range map[string]lockhttp.Config{
		"Store":      {Anyone: true},
		"Authorize":  {Store: store},
		"Anyone":     {Store: store, Authorize: yes, Anyone: true},
		"HeldStatus": {Store: store, Anyone: true, HeldStatus: 404},
		"MinTTL":     {Store: store, Anyone: true, MinTTL: 500 * time.Millisecond},
		"MinTTL ":    {Store: store, Anyone: true, MinTTL: 1500 * time.Millisecond},
		"MaxTTL":     {Store: store, Anyone: true, MaxTTL: 25 * time.Hour},
		"MaxTTL ":    {Store: store, Anyone: true, MinTTL: 10 * time.Second, MaxTTL: 5 * time.Second},
		"DefaultTTL": {Store: store, Anyone: true, DefaultTTL: time.Millisecond},
		"MaxWait":    {Store: store, Anyone: true, MaxWait: 1500 * time.Millisecond},
		"MaxWait ":   {Store: store, Anyone: true, MaxWait: 25 * time.Hour},
		"MaxWaiters": {Store: store, Anyone: true, MaxWaiters: -1},
		"CallLimit":  {Store: store, Anyone: true, CallLimit: -1},
		"Challenge":  {Store: store, Anyone: true, Challenge: "Basic\r\nX: y"},
	} {
		api, err := lockhttp.New(config)
		checkOption(t, strings.TrimSpace(field), api == nil, err)
	}
	for _, status := range []int{0, 200, 409, 423} {
		if _, err := lockhttp.New(lockhttp.Config{Store: store, Authorize: yes, HeldStatus: status}); err != nil {
			t.Errorf("HeldStatus %d: %v", status, err)
		}
	}
}

// bare is a store that can do what every store must, and no more.
type bare struct{ locks.Store }

type lister struct{ locks.Store }

func (lister) List(context.Context, locks.ListQuery) (locks.Page, error) { return locks.Page{}, nil }

func TestNewAdminNeedsAnAuthorizerAndAnAbleStore(t *testing.T) {
	store := memstore.New()
	for field, config := range map[string]lockhttp.AdminConfig{
		"Store":     {Authorize: yes},
		"Store ":    {Store: bare{store}, Authorize: yes},
		"Store  ":   {Store: lister{store}, Authorize: yes},
		"Authorize": {Store: store},
		"CallLimit": {Store: store, Authorize: yes, CallLimit: -1},
	} {
		admin, err := lockhttp.NewAdmin(config)
		checkOption(t, strings.TrimSpace(field), admin == nil, err)
	}
}

func checkOption(t *testing.T, field string, none bool, err error) {
	t.Helper()
	var invalid *locks.InvalidError
	if !none || !errors.As(err, &invalid) || invalid.Field != field || !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("%s: err = %v, want an InvalidError of this field", field, err)
	}
}
