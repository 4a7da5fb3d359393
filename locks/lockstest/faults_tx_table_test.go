package lockstest

// txFaults are the faults of transactions and of an acquire of many, as faults.
func txFaults() []faultCase {
	const (
		seen       = "TxAcquire/nobody sees the lease before the commit, and nobody else is granted the resource"
		rollback   = "TxAcquire/a rollback takes it away"
		savepoint  = "TxAcquire/a savepoint's rollback takes away what was acquired in it, and no more"
		released   = "TxAcquire/what was acquired in a released savepoint is the transaction's"
		held       = "TxAcquire/held leaves the transaction usable, and nothing behind"
		race       = "TxAcquire/a lost race leaves the transaction usable, and nothing behind"
		again      = "TxAcquire/a retry finds its pending grant, and a new attempt is a new one"
		found      = "TxAcquire/a grant found again is kept from others until the transaction ends"
		ended      = "TxAcquire/an ended lease is taken over with the commit, and as it was after a rollback"
		own        = "TxAcquire/the owner's new grant replaces the old one with the commit"
		runs       = "TxAcquire/the lease's time runs from the acquire, not from the transaction's begin"
		later      = "TxAcquire/a lease that ends by time is granted to the transaction that was refused"
		renew      = "TxRenew/the end moves with the commit"
		notRenewed = "TxRenew/a rollback leaves the end as it was, that of a savepoint too"
		busy       = "TxRenew/a renewal by others is refused as busy until the transaction ends"
		release    = "TxRelease/the resource is free with the commit"
		notFreed   = "TxRelease/a rollback leaves the lease as it was, that of a savepoint too"
		reacquire  = "TxRelease/the transaction that released it may acquire it for somebody else"
		guard      = "Guard/nobody else is granted the resource until the transaction ends"
		pastEnd    = "Guard/nor past the lease's end, renewed, released or guarded"
		holder     = "Guard/the holder's renewals go on"
		guarded    = "Guard/releases by anybody are refused as guarded until the transaction ends"
		within     = "Guard/a savepoint's rollback ends the guards taken in it, and its release does not"
		ownGuard   = "Guard/the guarding transaction does not acquire what it guards"
		all        = "Guard/what a transaction acquired it guards, and what it guards it renews and releases"
		twice      = "Guard/two transactions guard one grant"
		guardRace  = "Guard/no guard passes beside a forced release and a new grant"
		goneRenew  = "TxRenew/a grant that is not current is refused, and nothing is left behind"
		goneFreed  = "TxRelease/a grant that is not current is refused, and nothing is left behind"
		goneGuard  = "Guard/a grant that is not current is refused, and nothing is left behind"
		over       = "Tx/a transaction that is over changes nothing"
		told       = "Tx/who asks is told how the transaction ended"
		usable     = "Tx/arguments out of rule are refused, and the transaction is usable"
		toldWithin = "Tx/a savepoint's rollback is told to who asked in it, and its release with the transaction's end"
		commits    = "InTx/it commits when the function returns nil"
		fails      = "InTx/it rolls back when the function fails, and returns its error"
		panics     = "InTx/it rolls back when the function panics"
		contextEnd = "InTx/a context that ends in the function leaves what it says, and nothing held"
		granted    = "All/all are granted, each as it was asked for, in the order of the requests"
		refused    = "All/one that is held refuses all, and nothing changes"
		retry      = "All/a retry finds its grants unchanged"
		limits     = "All/from 1 to 100 different resources are accepted"
		atOnce     = "All/of two at once that overlap one gets all, and nobody sees a part"
	)
	return []faultCase{
		{"a grant found again is not the transaction's", []string{found}},
		// What a transaction does, and how it ends.
		{"changes in a transaction are seen at once", []string{
			seen, rollback, savepoint, released, ended, own, renew, notRenewed, release, notFreed, reacquire, all, commits, fails, panics,
		}},
		{"a commit is lost", []string{seen, released, ended, own, runs, later, renew, release, reacquire, commits, told, usable, "Tx/a call*"}},
		{"a rollback undoes nothing", []string{rollback, released, ended, own, notRenewed, notFreed, fails, panics}},
		{"a savepoint's rollback undoes nothing", []string{savepoint, ended, notRenewed, notFreed, within}},
		{"a savepoint's rollback undoes everything", []string{savepoint, within}},
		{"a savepoint's release undoes it", []string{released, within}},
		{"locks outlive their savepoint", []string{savepoint, notRenewed, notFreed, within}},
		{"a transaction has no gate", []string{seen, savepoint, released, race, ended, own, renew, release, reacquire, guard, pastEnd, holder, twice}},
		{"transactions share one gate", []string{"TxAcquire/transactions on different resources do not meet", savepoint}},
		{"a refused call keeps its gate", []string{held, race, goneRenew, goneFreed, goneGuard}},
		{"a refused call aborts the transaction", []string{held, race, again, goneRenew, goneFreed, goneGuard, release, guarded, all}},
		{"a transaction's time stands still", []string{runs, later}},
		{"a transaction that is over goes on", []string{over, commits}},
		{"a renewal waits for nobody", []string{busy}},
		{"a release in a transaction marks the row", []string{release, reacquire, all}},

		// Guards.
		{"a guard looks and no more", []string{guard, pastEnd, holder, guarded, within, ownGuard, twice, guardRace}},
		{"a guard looks, then takes its gate", []string{guardRace}},
		{"a guard ends with the lease", []string{pastEnd}},
		{"a guard ends with its savepoint's release", []string{within}},
		{"a guard outlives its transaction", []string{guard, guarded, twice}},
		{"a guard blocks its holder", []string{holder}},
		{"a guard does not see its own transaction", []string{all}},
		{"one guard at a time", []string{twice}},
		{"the guarding transaction may acquire", []string{ownGuard, within}},
		{"a guarded lease can be ended by release", []string{guarded}},
		{"a guarded lease can be ended by force release", []string{guarded}},
		{"any token guards", []string{usable}},
		{"guard ignores the end", []string{goneGuard}},
		{"guard ignores the token", []string{goneGuard}},
		{"guard ignores the owner", []string{goneGuard}},
		{"guard of nothing is told ok", []string{goneGuard, all}},

		// An engine with one writer.
		{"one writer: a transaction has no gate", []string{seen, released, ended, own, release}},
		{"one writer: a guard looks and no more", []string{guard, holder, guarded, within, ownGuard}},
		{"one writer: a renewal waits for nobody", []string{busy}},
		{"one writer: a guarded lease can be ended by release", []string{guarded}},
		{"one writer: a refused call aborts the transaction", []string{held, goneRenew, goneFreed, goneGuard}},
		{"one writer: others are told that it is held", []string{seen}},

		// Who is told how it ended.
		{"nobody is told how it ended", []string{told, toldWithin, commits, fails, panics, contextEnd}},
		{"who asked last is told first", []string{told, commits}},
		{"who asks after the end is not told", []string{told}},
		{"a rollback is told as a commit", []string{told, fails, panics}},
		{"a savepoint's rollback is told to nobody", []string{toldWithin}},
		{"a savepoint's rollback is told to all", []string{toldWithin}},

		// Transactions of the store's own.
		{"a function that fails is committed", []string{fails}},
		{"a function's error is out of sight", []string{fails}},
		{"a function that panics is committed", []string{panics}},
		{"a panic is swallowed", []string{panics}},
		{"a commit that failed is told ok", []string{contextEnd}},
		{"contexts are ignored", []string{"InTx/a context that has ended begins nothing", "Tx/a call whose context has ended changes nothing"}},

		// Many at once.
		{"all are granted but the held ones", []string{refused, atOnce}},
		{"all are granted one after another", []string{refused, atOnce}},
		{"all wait for their gates in the order of the requests", []string{atOnce}},
		{"locks come in the order of their names", []string{granted, limits}},
		{"a retry of many is a new grant", []string{retry}},
		{"ninety-nine are the most", []string{limits}},
		{"a resource can be asked for twice", []string{limits}},
		{"a takeover is a new row", []string{"All/ended leases and the owner's own are taken over in place", ended, own, again}},
		{"nothing is validated", []string{limits, usable}},
	}
}
