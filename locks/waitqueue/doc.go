// Package waitqueue makes a queue of a store's rows: it is what the stores of this project build [locks.Queuer] on, and
// what any other store can.
//
// The queue itself is rows in the store, tickets, so that it is one for all processes (see [Backend]). A [Front] is what a
// process has of it: all that wait in the process share one goroutine, one statement that keeps their tickets, one
// that looks whose turn it is, and, with a [locks.Waker], one connection on which the turns are heard. Only the waiter
// whose turn it is acts. Nothing runs while nobody waits.
//
// Looking is the truth, hearing is faster: a front that hears nothing polls, after pauses that grow from MinPoll to MaxPoll,
// and one that does hear looks when a lease or ticket before its own can end, and each time that it keeps its tickets.
package waitqueue
