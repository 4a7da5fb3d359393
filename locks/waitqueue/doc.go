// Package waitqueue makes a queue of a store's rows: it is what the stores of this project build [locks.Queuer] on, and
// what any other store can.
//
// The queue itself is rows in the store, tickets, so that it is one for all processes (see [Backend]). A [Front] is what a
// process has of it: all that wait in the process share one goroutine, one statement that keeps their tickets, one
// that looks whose turn it is, and, with a [locks.Waker], one connection on which the turns are heard. Only the waiter
// whose turn it is acts. Nothing runs while nobody waits.
//
// Looking is the truth, hearing is faster: a front that hears nothing polls, after pauses that grow from MinPoll to MaxPoll,
// and one that does hear looks when a lease or ticket before its own can end, and each third of the TTL. So a turn whose
// announcement is lost is found by then, and with every announcement lost all still have their turn.
//
// # Order
//
// The order is that of the tickets' numbers, which is the order in which they can be seen, in all processes: who can see that
// another one waits is behind it. It is not the order in which the calls began: of two that queue at the same time either may
// be first, and who is refused and has not queued yet has no place. The first one has the turn until it is granted, leaves, or
// its ticket ends; if its process is slow to take it, the others wait for as long.
//
// # A ticket's lease
//
// A ticket ends a TTL, 15 s, after it was drawn or last kept, by the store's clock. The front keeps all of them each third of
// that. A process that was killed so delays those behind it by the TTL at most. One that was paused or cut off for as long
// has lost its places: who waited there is told ([locks.Place]'s Lapsed), and queues again behind those who came meanwhile.
//
// # What it costs
//
// While somebody waits in a process: a statement each third of the TTL for each 1,000 tickets, and looks, one for up to
// 500 resources together. Of the waiters for one resource only the first is looked at, so it does not matter how many there
// are. Without a waker a resource is looked at each 25 ms to 1 s by default, seldom more than once in 500 ms when it
// waits for long; with one, each 5 s and when a lease can end. A process that waits for many resources does not look more
// often than each MinPoll, so that with more than 10,000 of them the looks at each become rarer.
//
// A waker costs one connection, which the pool does not know of, and one announcement to ourselves each third of the
// TTL, which does go through the pool: what comes back shows that turns are heard. While nothing comes back the front polls, says
// so in the log, once, and dials again after pauses that grow from 100 ms to 30 s. The connection stays for a second
// after the last waiter. A notification is sent only to a process that waits, when a resource becomes free.
package waitqueue
