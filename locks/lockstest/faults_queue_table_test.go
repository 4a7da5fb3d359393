package lockstest

// queueFaults are the faults of waiting, as faults.
func queueFaults() []faultCase {
	const (
		order     = "Queue/who came first is granted first, whichever store they ask"
		grants    = "Queue/enqueueing grants nothing"
		again     = "Queue/an attempt that waits keeps its place"
		served    = "Queue/the grant takes the ticket out"
		time      = "Queue/the lease's time runs from the grant"
		apart     = "Queue/tickets of different resources do not meet"
		names     = "Queue/resources, owners and attempts of tickets are told apart by their bytes"
		try       = "QueueRule/a try from outside does not overtake"
		ended     = "QueueRule/nor one for a lease that has ended, by whoever held it"
		many      = "QueueRule/nor an acquire of several resources, which serves the first one"
		tx        = "QueueRule/nor a try in a transaction, which serves the first one with its commit"
		barge     = "QueueRule/who barges takes what is free, and nothing that is held"
		holder    = "QueueRule/the holder's own new attempt is not kept out"
		released  = "QueueTurn/the first one is told after a release"
		attempt   = "QueueTurn/the first one is told after a release by attempt"
		forced    = "QueueTurn/the first one is told after a forced release"
		lapse     = "QueueTurn/the first one is told after the lease has ended by time"
		commit    = "QueueTurn/the first one is told after a release in a transaction, when that has committed"
		rollback  = "QueueTurn/the first one is told after the rollback of what it was refused for"
		leaving   = "QueueTurn/the next one is told after the first one has left"
		death     = "QueueTurn/the next one is told after the first one's ticket has ended by time"
		dead      = "QueueTurn/a ticket that ended by time is passed over, and its waiter told so"
		deadAgain = "QueueTurn/who lost its ticket queues again behind those who came meanwhile"
		alone     = "QueueTurn/a ticket that ended by time keeps nobody out, nor its own attempt"
		left      = "QueueTurn/who leaves is out of the queue, once"
		late      = "QueueTurn/leaving after the grant ends nothing"
		waiters   = "QueueCrowd/all who wait are told: how many they are, and the first ones in their order"
		limits    = "QueueCrowd/limits out of rule are refused, and 0 counts only"
		most      = "QueueCrowd/no more wait than may, and who is refused leaves nothing"
		atOnce    = "QueueCrowd/no more wait than may, of many at once too"
		numbers   = "QueueCrowd/numbers grow with the order of coming, whichever store they ask"
		seen      = "QueueCrowd/nobody comes before whom has been seen in the queue"
		givenUp   = "QueueCrowd/an enqueue that is given up leaves no ticket for long"
		all       = "QueueCrowd/all who wait get in, once each, in the order of their numbers"
		rounds    = "QueueCrowd/nobody is forgotten where some come while others release"
		lockers   = "Waiting/who acquires through different lockers is served in the order of coming"
		cancelled = "Waiting/a waiter that is cancelled is granted nothing, and leaves no ticket"
		random    = "Waiting/waiters that are cancelled at any instant leave neither a lease nor a ticket"
	)
	return []faultCase{
		// Whose turn it is.
		{"a try overtakes", []string{order, again, try, ended, apart, names, leaving, death, dead, deadAgain, left}},
		{"many overtake", []string{many}},
		{"a transaction overtakes", []string{tx}},
		{"the last one is the first", []string{order, again, served, try, ended, tx, released, leaving, dead, all, lockers}},
		{"an ended holder overtakes", []string{ended}},
		{"the first one is told for the holder", []string{order, try, ended, many, tx}},
		{"a ticket is its owner's only", []string{again, try, names}},
		{"a ticket is its attempt's only", []string{again, try, names}},
		{"waiters keep the holder out", []string{holder}},
		{"nobody barges", []string{barge, many, tx, rollback}},
		{"barging takes what is held", []string{barge}},
		{"who barges keeps its ticket", []string{barge}},
		{"tickets outlive their grant", []string{order, grants, again, served, try, ended, many, tx, barge, most, all, rounds, lockers}},
		{"many leave their tickets", []string{many}},
		{"a ticket goes before the commit", []string{tx}},
		{"enqueueing grants what is free", []string{grants, try, apart}},
		{"the lease's time runs from the ticket", []string{time}},
		{"one queue for all resources", []string{apart, many, names, most}},
		{"names are folded", []string{names}},

		// Tickets.
		{"each enqueue draws a ticket", []string{again, most}},
		{"numbers are places", []string{numbers}},
		{"numbers are drawn, then seen", []string{seen}},
		{"dead tickets block the queue", []string{death, dead, deadAgain, alone}},
		{"a dead ticket is served", []string{dead}},
		{"a dead ticket is revived", []string{deadAgain}},
		{"nobody is told that its ticket has ended", []string{dead, deadAgain}},
		{"who leaves stays in the queue", []string{leaving, left, cancelled, random}},
		{"who leaves twice is missed", []string{left, late}},
		{"who leaves takes the first ticket out", []string{left, late}},
		{"leaving ends the grant", []string{late}},
		{"what is given up stays in the queue", []string{givenUp}},
		{"contexts are ignored", []string{"Context/a call whose context has ended changes nothing"}},

		// Who is told.
		{"a release tells nobody", []string{released, order, all, rounds, lockers}},
		{"a release by attempt tells nobody", []string{attempt}},
		{"a forced release tells nobody", []string{forced}},
		{"the end of a lease tells nobody", []string{lapse}},
		{"a transaction that was committed tells nobody", []string{commit}},
		{"a transaction that was rolled back tells nobody", []string{rollback}},
		{"leaving tells nobody", []string{leaving}},
		{"the end of a ticket tells nobody", []string{death}},
		{"now and then a wake-up is lost", []string{all}},

		// What can be seen, and how many may wait.
		{"waiters are counted to the limit", []string{waiters, limits}},
		{"the last ones are listed", []string{waiters}},
		{"times are local", []string{waiters}},
		{"no limit is all", []string{limits}},
		{"nothing is validated", []string{limits, "Names/names out of rule are refused everywhere", "Invalid/TTLs out of rule are refused"}},
		{"most is not looked at", []string{most, atOnce}},
		{"most is looked at, then a ticket is drawn", []string{atOnce}},
		{"most counts everybody", []string{most}},
		{"who is refused a place stays", []string{most, atOnce}},
		{"a full queue is told as held", []string{most, atOnce}},
	}
}
