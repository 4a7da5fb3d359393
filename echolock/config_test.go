package echolock_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

func TestSetUpNamesTheFirstBadField(t *testing.T) {
	locker := newGuardRig(t).locker
	patient := newGuardRig(t, locks.WithRenewalInterval(10*time.Second)).locker
	for name, test := range map[string]struct {
		config echolock.Config
		field  string
	}{
		"no locker":              {echolock.Config{}, "Locker"},
		"two ways to a key":      {echolock.Config{Locker: locker, KeyLookup: "query:k", KeyFunc: keyOf("k", nil)}, "KeyFunc"},
		"unknown source":         {echolock.Config{Locker: locker, KeyLookup: "body:k"}, "KeyLookup"},
		"no source":              {echolock.Config{Locker: locker, KeyLookup: "k"}, "KeyLookup"},
		"no name":                {echolock.Config{Locker: locker, KeyLookup: "query:"}, "KeyLookup"},
		"one of two":             {echolock.Config{Locker: locker, KeyLookup: "query:k,"}, "KeyLookup"},
		"twice the same":         {echolock.Config{Locker: locker, KeyLookup: "header:a,header:A"}, "KeyLookup"},
		"no such header":         {echolock.Config{Locker: locker, KeyLookup: "header:Idempotency Key"}, "KeyLookup"},
		"echo's prefix to cut":   {echolock.Config{Locker: locker, KeyLookup: "header:Authorization:Bearer "}, "KeyLookup"},
		"a header net/http eats": {echolock.Config{Locker: locker, KeyLookup: "header:host"}, "KeyLookup"},
		"no such cookie":         {echolock.Config{Locker: locker, KeyLookup: "cookie:a=b"}, "KeyLookup"},
		"a route's colon":        {echolock.Config{Locker: locker, KeyLookup: "param::id"}, "KeyLookup"},
		"MaxKeyBytes":            {echolock.Config{Locker: locker, MaxKeyBytes: -1}, "MaxKeyBytes"},
		"BodyLimit":              {echolock.Config{Locker: locker, BodyLimit: -1}, "BodyLimit"},
		"WaitTimeout":            {echolock.Config{Locker: locker, WaitTimeout: -1}, "WaitTimeout"},
		"MaxWaiters":             {echolock.Config{Locker: locker, WaitTimeout: 1, MaxWaiters: -1}, "MaxWaiters"},
		"MaxWaiters without":     {echolock.Config{Locker: locker, MaxWaiters: 1}, "MaxWaiters"},
		"MaxHold":                {echolock.Config{Locker: locker, MaxHold: -1}, "MaxHold"},
		"HeldStatus":             {echolock.Config{Locker: locker, HeldStatus: http.StatusOK}, "HeldStatus"},
		"MissingKey":             {echolock.Config{Locker: locker, MissingKey: 2}, "MissingKey"},
		"TTL below 0":            {echolock.Config{Locker: locker, TTL: -1}, "TTL"},
		"TTL too short":          {echolock.Config{Locker: locker, TTL: time.Millisecond}, "ttl"},
		"TTL too long":           {echolock.Config{Locker: locker, TTL: 25 * time.Hour}, "ttl"},
		"TTL and the locker's":   {echolock.Config{Locker: patient, TTL: 20 * time.Second}, "renewal interval"},
	} {
		t.Run(name, func(t *testing.T) {
			middleware, err := test.config.ToMiddleware()
			var invalid *locks.InvalidError
			if middleware != nil || !errors.As(err, &invalid) || invalid.Field != test.field {
				t.Errorf("ToMiddleware = %v, want the field %q", err, test.field)
			}
			defer func() {
				if p := recover(); p == nil {
					t.Error("MiddlewareWithConfig did not panic")
				}
			}()
			echolock.MiddlewareWithConfig(test.config)
		})
	}
}

func TestMiddlewarePanicsOnBadSetUp(t *testing.T) {
	locker := newGuardRig(t).locker
	for name, build := range map[string]func(){
		"no locker":  func() { echolock.Middleware(nil, "header:Idempotency-Key") },
		"no lookup":  func() { echolock.Middleware(locker, "") },
		"bad lookup": func() { echolock.Middleware(locker, "Idempotency-Key") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, locks.ErrInvalid) {
					t.Errorf("panic = %v, want ErrInvalid", err)
				}
			}()
			build()
		})
	}
}

func TestSetUpDoesNotAskTheStoreOrStartAnything(t *testing.T) {
	told := 0
	rig := newGuardRig(t, locks.WithObserver(locks.ObserverFunc(func(context.Context, locks.Event) { told++ })))
	rig.guard(func(config *echolock.Config) { config.TTL, config.MaxHold = time.Minute, time.Hour })
	if rig.store.calls.Load() != 0 || told != 0 {
		t.Errorf("store asked %d times, observer told %d times", rig.store.calls.Load(), told)
	}
}

func TestTheDefaultsAreThoseOfTheIdempotencyKey(t *testing.T) {
	rig := newGuardRig(t)
	config := echolock.DefaultConfig
	config.Locker = rig.locker
	config.Skipper = middleware.DefaultSkipper
	withDefaults, err := config.ToMiddleware()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(c echo.Context) error { return c.String(http.StatusOK, echolock.LeaseFrom(c).Resource()) }
	rig.POST("/a", answer, withDefaults)
	rig.POST("/b", answer, rig.guard())
	rig.POST("/c", answer, echolock.Middleware(rig.locker, "header:Idempotency-Key"))
	for _, path := range []string{"/a", "/b", "/c"} {
		if w := rig.serve(ask(path, "", "Idempotency-Key: k")); w.Body.String() != resource("POST", path, "k") {
			t.Errorf("%s: answer = %d %s", path, w.Code, w.Body)
		}
		wantCode(t, rig.serve(ask(path, "")), http.StatusBadRequest)
	}
	config.KeyFunc = keyOf("own", nil) // to start from the defaults is no contradiction
	if _, err := config.ToMiddleware(); err != nil {
		t.Error(err)
	}
}

func TestTheLargestLimitsAreAccepted(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(created, func(config *echolock.Config) {
		config.MaxKeyBytes, config.BodyLimit, config.KeyLookup = math.MaxInt, math.MaxInt64, "form:key"
	})
	wantCode(t, rig.serve(ask("/pay", "key=a1")), http.StatusCreated)
}

func TestTTLAndMaxHoldReachTheLease(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		if left := echolock.LeaseFrom(c).Lock().Remaining; left > time.Minute || left < 50*time.Second {
			t.Errorf("remaining = %v, want a minute", left)
		}
		return created(c)
	}, func(config *echolock.Config) { config.TTL = time.Minute })
	wantCode(t, rig.post("a1"), http.StatusCreated)
}
