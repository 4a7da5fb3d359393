package lockstest

// shareFaults are the faults of shares, as faults.
func shareFaults() []faultCase {
	const (
		readers   = "Share/readers hold it together, and keep out who would hold it alone"
		alone     = "Share/who holds it alone keeps readers out"
		ofOwn     = "Share/who holds it alone is refused a share, not kept waiting for itself"
		thenAll   = "Share/who has a share is refused all of it, not kept waiting for itself"
		again     = "Share/the owner's new attempt is a new grant of its share in place"
		retry     = "Share/a retry finds its share, and no other attempt does"
		attempt   = "Share/release by attempt frees the share of that attempt, and no other"
		tokens    = "Share/tokens grow with every share and every lease"
		renew     = "ShareEnd/renew moves the end of a share, and of its group with it"
		anyToken  = "ShareEnd/any token renews and releases the owner's current share"
		ended     = "ShareEnd/a share that has ended is gone, and the others stay"
		lastEnded = "ShareEnd/when the last share has ended the resource is free"
		late      = "ShareEnd/whoever holds it since makes late calls of an old share the calls of another owner"
		release   = "ShareEnd/the release of a share leaves the others, and of the last one no row"
		forceAll  = "ShareEnd/a forced release by the group's token ends all of its shares"
		forceOne  = "ShareEnd/a forced release by a share's token ends that one"
		forceNone = "ShareEnd/a forced release by another token ends nothing"
		holders   = "ShareSeen/the holders are the live shares, in the order of their tokens"
		noHolder  = "ShareSeen/who holds it alone is no holder of a share"
		metadata  = "ShareSeen/metadata is each share's own, and the group has none"
		list      = "ShareSeen/a list has the group, as one lease without an owner"
		slots     = "ShareSeen/slots out of rule are refused"
		limits    = "ShareSeen/limits of holders out of rule are refused"
		full      = "ShareCount/as many get in as there are slots, and the next one is told whose share ends first"
		freed     = "ShareCount/a slot that was released is free for one"
		lapsed    = "ShareCount/a slot whose share has ended is free for one"
		stands    = "ShareCount/the slots stand with the first one until the last one has gone"
		fullAgain = "ShareCount/an owner's new attempt takes no second slot, in a full group too"
		apart     = "ShareCount/groups of different resources do not meet"
		guard     = "ShareGuard/a guarded share is neither released nor replaced until the transaction ends"
		others    = "ShareGuard/the others of the group come and go, and its renewals go on"
		pastEnd   = "ShareGuard/past its end it keeps out who would hold it alone, and who would take its slot"
		slot      = "ShareGuard/past its end it keeps its slot, and no more than that"
		pastGroup = "ShareGuard/past the end of its group of readers nobody holds it alone"
		guardGone = "ShareGuard/a share that is not current is refused, and nothing is left behind"
		savepoint = "ShareGuard/a savepoint's rollback ends the guards taken in it, and its release does not"
		twice     = "ShareGuard/two transactions guard one share, or two of a group"
		inTx      = "ShareGuard/a share is not acquired, renewed or released in a transaction"
		many      = "ShareGuard/many resources are acquired alone"
		writer    = "ShareQueue/a reader that comes after a waiting writer gets in after it"
		nextOnes  = "ShareQueue/readers that wait get in one after another, without another release"
		order     = "ShareQueue/who waits for a slot gets in in the order of coming, one for each that is freed"
		afterAll  = "ShareQueue/after a release of all as many who wait get in as there are slots"
		leaving   = "ShareQueue/when a waiting writer leaves, the reader behind it is told"
		death     = "ShareQueue/when a waiting writer's ticket ends, the reader behind it is told"
		barge     = "ShareQueue/who barges joins a group past those who wait"
		inGroup   = "ShareQueue/who is in the group is granted anew past those who wait"
		roomEnd   = "ShareQueue/a share that ends by time makes room for the first one who waits"
		roomForce = "ShareQueue/a forced release of a share makes room for the first one who waits"
		roomGuard = "ShareQueue/the end of a transaction that guards an ended share makes room for the first one who waits"
		found     = "ShareQueue/a share found again takes its attempt's ticket along"
		unfit     = "ShareQueue/who waits with other slots than those who get in before is told, and refused"
		atOnce    = "ShareContention/of many at once as many get in as there are slots"
		kinds     = "ShareContention/of many at once who ask for other slots only one kind gets in"
		count     = "ShareContention/never are more in at once than there are slots"
		mixed     = "ShareContention/never is anybody beside who holds it alone"
		waiting   = "ShareContention/who waits gets in, readers and writers alike"
		oneShare  = "ShareContention/an owner's attempts at once have one share"
		allGone   = "ShareContention/shares released at once are each released once"
	)
	return []faultCase{
		// Who gets in.
		{"readers keep each other out", []string{readers, alone}},
		{"a share is granted beside a lease", []string{alone, mixed}},
		{"the holder is not told", []string{readers, alone}},
		{"an owner waits for itself", []string{ofOwn, thenAll}},
		{"what is found again leaves its ticket", []string{found, "QueueRule/a grant found again takes its attempt's ticket along"}},
		{"other slots are told as held", []string{stands, unfit}},
		{"any slots fit", []string{stands, unfit}},
		{"one more gets in than there are slots", []string{full, freed, order, afterAll, count}},
		{"the share that ends last is told", []string{full, freed, lapsed}},
		{"a released slot is lost", []string{freed, order}},
		{"an ended share keeps its slot", []string{lapsed, roomEnd}},
		{"slots are counted over all resources", []string{apart}},
		{"an owner's new attempt takes a slot", []string{fullAgain, inGroup}},
		{"slots are counted, then taken", []string{atOnce, count}},
		{"a group is looked for, then begun", []string{kinds, mixed}},

		// What is granted.
		{"an owner's new share is a new row", []string{again, retry, fullAgain, inGroup}},
		{"a retry of a share is a new grant", []string{retry, fullAgain, inGroup}},
		{"shares count their tokens in the group", []string{tokens}},
		{"tokens do not grow", []string{tokens, again}},
		{"a share's token is drawn, then kept", []string{oneShare}},
		{"a group has the metadata of its first share", []string{metadata}},

		// How it ends.
		{"release by attempt ignores the attempt", []string{attempt}},
		{"renew ignores the token", []string{again, ended, fullAgain}},
		{"release ignores the token", []string{again, fullAgain}},
		{"any token is not known", []string{anyToken}},
		{"a group keeps its end", []string{renew, anyToken}},
		{"a group never ends earlier", []string{renew, forceOne}},
		{"shares end with their group", []string{ended, lapsed}},
		{"a group outlives its shares", []string{lastEnded, late}},
		{"an old share speaks for ever", []string{late}},
		{"a release of a share ends its group", []string{release, freed, forceOne}},
		{"the last share leaves its group", []string{attempt, release, forceOne}},
		{"a release of a share looks, then deletes", []string{allGone}},
		{"shares alone can be forced", []string{forceAll}},
		{"groups alone can be forced", []string{forceOne, roomForce}},
		{"force release ignores the token", []string{forceOne, forceNone}},

		// What can be seen.
		{"holders are in the order of their names", []string{holders}},
		{"holders ignore their limit", []string{holders}},
		{"who has it alone is a holder", []string{noHolder, alone}},
		{"groups are not listed", []string{list}},
		{"times are local", []string{holders}},
		{"nothing is validated", []string{slots, limits}},
		{"contexts are ignored", []string{"Context/a call whose context has ended changes nothing"}},

		// Transactions.
		{"a guarded share can be released", []string{guard, savepoint, twice}},
		{"a guarded share is replaced", []string{guard}},
		{"a guard is of all shares", []string{others, slot}},
		{"a guard blocks its holder", []string{others}},
		{"a guard of a share leaves its group alone", []string{pastEnd, pastGroup}},
		{"a guarded share gives its slot back", []string{slot, roomGuard}},
		{"a guarded share is replaced once it has ended", []string{pastGroup}},
		{"guard ignores the token", []string{guardGone}},
		{"guard ignores the owner", []string{guardGone}},
		{"a savepoint's rollback undoes nothing", []string{savepoint}},
		{"a guard ends with its savepoint's release", []string{savepoint}},
		{"one guard at a time", []string{twice}},
		{"a transaction takes a share for a lease", []string{inTx}},
		{"shares are renewed and released in transactions", []string{inTx}},
		{"many take shares for leases", []string{many}},

		// Who waits.
		{"shares overtake who waits", []string{writer, order, leaving, death, barge}},
		{"the last one is the first", []string{order, afterAll}},
		{"a grant of a share tells nobody", []string{nextOnes, afterAll, unfit}},
		{"a release tells nobody", []string{order, afterAll, waiting}},
		{"a release tells who waits for all only", []string{order, afterAll}},
		{"a forced release tells who waits for all only", []string{roomForce}},
		{"leaving tells who waits for all only", []string{leaving}},
		{"the end of a ticket tells who waits for all only", []string{death}},
		{"the end of a share tells who waits for all only", []string{roomEnd}},
		{"a transaction that was rolled back tells nobody", []string{roomGuard}},
		{"nobody barges", []string{barge}},
		{"waiters keep the owners of shares out", []string{inGroup}},
	}
}
