// Package lockhttp is the REST API of leases without a framework: requests, answers, problem details and the table of
// statuses. It knows [net/http] and package locks, and nothing else.
//
//	POST   /locks/{resource}           {"owner":"w1","ttl_seconds":30,"metadata":{…}}    acquire
//	POST   /locks/{resource}/renew     {"owner":"w1","ttl_seconds":30,"token":7}         renew
//	GET    /locks/{resource}           ?owner=w1                                         get (HEAD too)
//	GET    /locks/{resource}/waiters   ?owner=w1&limit=                                  who waits for it
//	GET    /locks/{resource}/holders   ?owner=w1&limit=                                  who shares it
//	DELETE /locks/{resource}           ?owner=w1&token=7, or the same as a JSON body     release
//
// and, as a mount of its own with an authorizer of its own ([Admin]),
//
//	GET    /admin/locks                      ?prefix=&owner=&limit=&cursor=             list
//	GET    /admin/locks/{resource}                                                      inspect
//	GET    /admin/locks/{resource}/waiters   ?owner=&limit=                             who waits for it
//	GET    /admin/locks/{resource}/holders   ?owner=&limit=                             who shares it
//	DELETE /admin/locks/{resource}           If-Match: "7", ?reason=…                   force release
//
// A host on net/http mounts [API.Handler] and [Admin.Handler]; a host on a framework calls the methods, with the
// resource that [PathResource] finds. Package echolock does that for echo.
//
// # Answers
//
// Success is JSON, in the members and the order that each method names. Times are RFC 3339 in UTC with six digits of
// fraction. A refusal is a [Problem] (RFC 9457) whose type, a URN that starts with [TypePrefix], is what a program
// branches on; "field" names what is at fault. No answer carries a Go error's text, or the owner, token or metadata of
// a lease that is not the asker's (see [Config.ShowHolders]). Every answer says "Cache-Control: no-store".
//
// # Waiting
//
// An acquire is one try, unless it asks for a wait, by the header Prefer: wait=30 or by ?wait=30s: see [API.Acquire]. While it
// waits the request has no connection to the database; how long it may is [Config.MaxWait].
//
// # Requests are read strictly
//
// Names are case-sensitive and known, given once, and of their own type: 30.0 and "30" are not integers, null is
// nothing at all. An owner and a token may stand in the query instead of the body, or in both if they
// agree. What is not JSON in that sense is 400, what is well-formed and breaks a rule is 422, and nothing was changed in
// either case. Other query parameters than ours are the host's and are left alone; one of ours on a route where it has no
// meaning, or in another case, is 400.
//
// # Retries
//
// An acquire may carry an Idempotency-Key: it is the attempt, taken as it is written, quotes included, so that the same
// request sent again finds the same grant, token included. Without one every acquire of the holder is a new grant with
// a larger token, and a grant whose answer cannot be delivered is released again.
package lockhttp
