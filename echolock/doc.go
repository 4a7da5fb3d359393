// Package echolock is the echo (v4) face of package locks: a middleware that lets one request at a time through for each
// key, and the REST API and admin routes of package lockhttp, mounted by [Mount] and [MountAdmin].
//
//	e.POST("/payments", pay, echolock.Middleware(locker, "header:Idempotency-Key"))
//
// # What the middleware promises
//
//   - Two requests for one key never run together, in whatever process they are, as long as a handler returns when its
//     request's context ends. The second is answered 423 with Retry-After and a problem (RFC 9457), or waits its
//     turn if told to ([Config.WaitTimeout]).
//   - The lease is renewed while the handler runs, and freed when it has returned, never before, however that is: an
//     error, a panic, http.ErrAbortHandler, NoContent, a stream, a file, a redirect, a hijacked connection, a client that
//     went away.
//   - The context of the handler's request ends when the client goes or the lease is lost; [context.Cause] tells which.
//     The handler has the lease from [LeaseFrom], and its token to write beside what it protects.
//   - A store that fails lets nobody through: the answer is 503 with Retry-After ([Config.FailOpen] is the other choice).
//   - A lease that was lost under a handler that neither answered nor returned an error is 503 with Retry-After and the
//     type [lockhttp.TypeLost]: the work may not have been alone.
//   - Errors are returned to echo and not written, with Content-Type and Retry-After set beforehand (what that means for an
//     HTTPErrorHandler of the host is told at [Config.ErrorHandler]): a fresh [echo.HTTPError] that is errors.Is(err, [locks.ErrHeld]) where
//     that is the reason. The handler's own error is returned as it is.
//
// # In a transaction
//
// [Config.Tx] opens a transaction for each request that is guarded, acquires the lease in it and hands it to the handler,
// which has it from [TxFrom]. It is committed when the handler returned nil and has not answered with 400 or above, and
// rolled back otherwise, also on a panic: what the handler writes through it is the work of the only holder, or undone.
// The answer is kept back until the commit is known ([Config.ResponseLimit]): no client is told of what was not committed.
// A failed commit is 503 with Retry-After, and one whose answer is missing says so ([TypeOutcomeUnknown]).
//
//   - The handler has the TTL, since nothing renews the lease meanwhile.
//   - A stream, server-sent events, a WebSocket do not go with it: nothing is flushed, Hijack is refused, and the handler's
//     writer has no Unwrap.
//   - middleware.Recover must come before (outside): inside, a panic after an answer looks like a success.
//   - echo's Response.Before and After functions run when the handler writes, and again when the answer is replaced.
//
// # What it does not promise
//
// It serialises; it does not deduplicate. A request that waited runs the handler again after the first one has
// finished, and so does a client that comes back after a 423. Whoever must do a thing once looks, under the lease,
// whether it was done: in the handler, or in [Config.OnAcquired], which can answer instead of it.
//
// A handler that goes on after its context has ended, or a process that was paused past its lease, may run beside the
// next one. What such a handler writes is kept out by the token, not by the middleware.
//
// A goroutine that the handler leaves behind, or a hijacked connection that is used after the handler returned, is not
// under the lease. Neither is what a client sees of an answer that is larger than the server's buffer (about 2 KB) or
// was flushed: it can arrive before the handler has returned, and that client's next request may still find its key held.
//
// # Where it belongs
//
// On a route, on a group, or in Echo.Use; not in Echo.Pre, where the route is not known yet: there a request is refused
// with 500 and an error in the log. Requests that match no route (404, 405) pass, those that [echo.RouteNotFound] answers
// among them, and so does an [echo.Context] made by hand, in a test, that has no SetPath. Behind authentication, so that strangers cannot hold keys; registered twice for
// one request it acts once.
//
//   - middleware.Recover: before or after, either works; with [Config.Tx] before.
//   - middleware.Timeout must come before (outside): it answers while the handler still runs. Outside, the lease is kept
//     until the handler has returned; inside, the lease would be freed under a running handler (and echo's own comment on
//     Timeout warns of data races there).
//   - middleware.ContextTimeout: outside it bounds the wait and the work together, inside only the work.
//   - middleware.BodyLimit and Decompress: before, since the body may be read here, see [Config.BodyLimit].
//
// Where requests may wait, the server's WriteTimeout counts from the end of the wait; under a writer that cannot move its
// deadline the wait is at most half of it. A write deadline that an earlier middleware set by itself, with
// [http.ResponseController], is replaced then; one that the handler sets stays.
//
// The handler's c.Response().Writer is one of ours, which has the host's under Unwrap: so a lost lease is not answered on
// a connection that was hijacked.
//
// # Whose keys
//
// Clients choose keys, so two clients can choose the same. By default keys are told apart by method and route only, and
// one tenant's request can hold, or find out about, the key of another's. Where there are tenants, put the tenant that
// authentication found into [Config.KeyScope]; see [MethodAndRoute]. Route is the pattern: neither the values of its
// parameters nor virtual hosts tell keys apart.
//
// Resources of the middleware begin with [lockhttp.RequestTag]; the REST API refuses those, so that no REST call frees or
// blocks a request. The admin routes show them.
package echolock
