// Package election chooses one leader among candidates in any number of processes, by a lease of package locks.
//
//	candidate, err := election.New(locker, "scheduler", election.Config{
//		StopLimit: 5 * time.Second,
//		Lead: func(ctx context.Context, term *locks.Lease) error {
//			return schedule(ctx, term.Token()) // returns within 5 s after ctx has ended
//		},
//	})
//	err = candidate.Campaign(ctx) // waits, leads, and waits again, until ctx ends
//
// A term is a lease: a grant of the resource to one candidate, named by its token. Candidates wait in the resource's queue,
// and are elected in the order in which they came. Whoever does not campaign sees who leads by [Observe].
//
// # What it promises
//
// Lead has returned before anybody's next Lead begins, in any process, as long as it returns within its stop limit
// ([Config].StopLimit) after its context has ended:
//
//   - A term that its candidate ends (a resignation, the end of Campaign's context, the locker's Close) stays leased, and
//     renewed, until Lead has returned, however long that takes.
//   - A term that is not renewed (the store is away, or [locks.WithMaxHold] has ended it) ends by time: Lead's context ends the stop limit and a tenth of the TTL before the
//     lease can be taken by somebody else, even if every call to the store hangs. The tenth is for clocks that run at
//     different speeds, and for a busy machine. A Lead that stays longer is reported ([EventOverstayed]).
//   - An end belongs to its term. A late release or resignation of an old term leaves a newer one alone, also one of the
//     same candidate.
//   - No fault leaves a leader behind: [Candidate.IsLeader] is true only while Lead runs with a live context, and a
//     candidate whose Lead has not returned does not campaign.
//
// # What it does not promise
//
// There may be two at work, for a while, where
//
//   - the process of a leader does not run: one that is paused (SIGSTOP, a starved container, a machine asleep) is not told
//     while it sleeps, and goes on from where it was when it wakes, until its timers run. The clock of a machine that was
//     asleep has not counted that time: its leader hears at the next renewal. A process that is killed works no more, and
//     nobody else leads before its lease has ended;
//   - somebody else ends the lease: a forced release, a row deleted by hand. The leader hears of it at its next renewal,
//     at most a third of the time later for which its lease is trusted;
//   - Lead stays longer than its limit, or goes on in goroutines after it has returned;
//   - the term is released before Lead has returned: by Lead itself, or by a [locks.Locker.Close] whose context ends first.
//
// Only a check at the place of the write helps there: guard the term in the transaction that writes
// ([locks.Lease.GuardTx]), or write its token beside the data and refuse older ones.
package election
