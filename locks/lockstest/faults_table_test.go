package lockstest

// faultCase is a fault of [faulty] and the promises that it breaks: full names, or with a * at the end a beginning.
type faultCase struct {
	fault  string
	breaks []string
}

func faults() []faultCase {
	const (
		free        = "Grant/a free resource is granted, with a full record"
		ttl         = "Grant/the TTL is kept to the millisecond"
		ends        = "Grant/time alone ends a lease, and not too early"
		metadata    = "Grant/metadata is kept byte for byte"
		copies      = "Grant/records share no memory with the store"
		independent = "Grant/resources do not touch each other"
		facts       = "Refuse/another owner is told who holds, and for how long"
		mark        = "Refuse/a refused try changes nothing"
		newFacts    = "Refuse/the holder's facts follow a renewal"
		taken       = "Takeover/an ended lease is taken over in place"
		takenOwn    = "Takeover/an ended lease is taken again by its own owner in place"
		again       = "Takeover/the owner's new attempt is a new grant in place"
		gone        = "Takeover/an ended lease is gone for everybody"
		once        = "Takeover/an ended lease is taken over once"
		retry       = "Attempt/a retry finds its grant unchanged"
		moves       = "Renew/renew moves the end to now plus the TTL, and nothing else"
		fromNow     = "Renew/renew counts from now, not from the old end"
		renewAny    = "Renew/renew by any token renews the owner's current grant"
		random      = "Random/*"
	)
	return []faultCase{
		// What is granted.
		{"times are local", []string{free}},
		{"remaining is the TTL", []string{ends}},
		{"the TTL is in whole seconds", []string{ttl, random}},
		{"leases end by the back door only", []string{ends}},
		{"metadata is compacted", []string{metadata, random}},
		{"metadata is shared", []string{copies}},
		{"the holder is not told", []string{facts, newFacts, random}},
		{"a refused try leaves its mark", []string{mark, random}},
		{"an owner is held by itself", []string{again, "Attempt/a retry after a newer attempt of its owner is a new grant", random}},
		{"a takeover is a new row", []string{taken, takenOwn, again, "Contention/one ended lease has one taker", random}},
		{"a takeover keeps acquired_at", []string{taken, takenOwn, again}},
		{"a takeover does not move the end", []string{taken, once}},
		{"ended leases are shown", []string{gone, "List/free and ended resources are not listed, and fill no page", random}},

		// Attempts.
		{"attempts are ignored", []string{retry, "Attempt/retries at once share one grant", "Names/attempts are told apart by their bytes", random}},
		{"attempts are known across owners", []string{"Attempt/an attempt is its owner's and its resource's"}},
		{"attempts are remembered for ever", []string{
			"Attempt/a retry after its lease ended is a new grant", "Attempt/a retry after its grant was released is a new grant",
			"Attempt/a retry after a newer attempt of its owner is a new grant", random,
		}},
		{"a retry revives its ended grant", []string{"Attempt/a retry after its lease ended is a new grant"}},
		{"release by attempt ignores the attempt", []string{"Attempt/release by attempt leaves other grants alone", random}},
		{"release by attempt does not look at the end", []string{"Attempt/release by attempt of an ended lease is told that nothing is held"}},

		// Renew and release.
		{"renew adds to the old end", []string{fromNow, random}},
		{"renew never shortens", []string{moves, newFacts, random}},
		{"renew does not move the end", []string{moves, newFacts, random}},
		{"any token is not known", []string{renewAny, "Release/release by any token frees the owner's current grant", "Late/renew by any token after its end", random}},
		{"a release leaves its row", []string{
			"Release/release frees the resource and leaves no row", "Release/resources that come and go leave nothing behind",
			"Release/a released resource's next grant has a new id and a larger token", "Release/a second release is told that nothing is held",
			"Release/release by any token frees the owner's current grant", "Attempt/release by attempt frees the grant and leaves no row",
			"Force/the token that was seen ends the lease, which is returned", random,
		}},
		{"a release frees all of its owner", []string{independent, random}},

		// Late calls.
		{"late calls are told ok", []string{"Late/*", random}},
		{"the reason of a loss is not told", []string{"Late/*", independent}},
		{"whoever lost it is told not held", []string{"Late/renew after a takeover", "Late/release after its end", random}},
		{"renew ignores the end", []string{"Late/renew after its end", "Late/renew by any token after its end", gone, random}},
		{"renew ignores the token", []string{"Late/renew after a new grant of its owner", "Late/renew with a token that is not given yet", random}},
		{"renew ignores the owner", []string{"Late/renew by another owner", "Late/renew with the new holder's token after a takeover"}},
		{"renew of nothing is told ok", []string{"Late/renew after its row was deleted by hand", "Late/renew of a resource nobody ever held", random}},
		{"release ignores the end", []string{"Late/release after its end"}},
		{"release ignores the token", []string{"Late/release after a new grant of its owner", "Late/release after its release and a new grant of its owner", random}},
		{"release ignores the owner", []string{"Late/release by another owner", "Late/release with the new holder's token after a takeover", independent}},
		{"release of nothing is told ok", []string{"Release/a second release is told that nothing is held", "Late/release after its release"}},

		// Tokens and ids.
		{"tokens do not grow", []string{"Tokens/tokens grow through *", taken, takenOwn, again, random}},
		{"tokens count in the row", []string{
			"Tokens/tokens never repeat, whatever the resource", "Tokens/tokens grow through a release", "Tokens/tokens grow through a release by attempt",
			"Tokens/tokens grow through a purge", "Tokens/tokens grow through a forced release", "Tokens/tokens grow through a row deleted by hand",
			"Tokens/tokens grow through a table emptied by hand", "Release/a released resource's next grant has a new id and a larger token", random,
		}},
		{"tokens restart with the table", []string{"Tokens/tokens grow through a table emptied by hand", "Tokens/tokens grow through a release"}},
		{"tokens are read, then written", []string{"Contention/an owner's attempts at once are grants one after another"}},
		{"tokens are drawn before the row is locked", []string{"Tokens/tokens grow in the order *"}},
		{"tokens are too large", []string{free}},
		{"ids are used again", []string{
			"Release/a released resource's next grant has a new id and a larger token", "Purge/a purged resource's next grant has a new id and a larger token",
		}},

		// Names and arguments.
		{"names are folded", []string{
			"Names/resources are told apart by their bytes and come back as given", "Names/owners are told apart by their bytes and come back as given",
			"Names/attempts are told apart by their bytes", "Names/lists order names by their bytes",
		}},
		{"nothing is validated", []string{
			"Names/names out of rule are refused everywhere", "Invalid/TTLs out of rule are refused", "Invalid/metadata out of rule is refused",
			"Invalid/tokens out of rule are refused", "Invalid/limits out of rule are refused",
		}},
		{"limits are off by one", []string{"Invalid/the limits themselves are accepted", ttl}},

		// Lists, purge, forced release.
		{"lists are in another order", []string{"Names/lists order names by their bytes", "List/prefixes are bytes, not patterns"}},
		{"lists leave fields out", []string{"List/a list has the full records, in the order of the resources", random}},
		{"lists ignore the owner", []string{"List/an owner's leases, and filters together", random}},
		{"a page that is full is the last", []string{"List/pages cover every lease once", "List/the default limit is 100", random}},
		{"the default limit is another", []string{"List/the default limit is 100"}},
		{"after must be there", []string{"List/after may name no lease"}},
		{"prefixes are patterns", []string{"List/prefixes are bytes, not patterns", "Names/lists order names by their bytes"}},
		{"prefixes ignore case", []string{"List/prefixes are bytes, not patterns"}},
		{"a prefix ends at its last byte plus one", []string{"List/prefixes are bytes, not patterns"}},
		{"purge deletes live leases", []string{"Purge/purge deletes ended rows only, at most its limit, and counts them", random}},
		{"purge ignores its limit", []string{"Purge/purge deletes ended rows only, at most its limit, and counts them"}},
		{"force release ignores the token", []string{"Force/another token ends nothing", random}},
		{"force release ends what has ended", []string{"Force/a free or ended resource has nothing to end", random}},
		{"force release returns nothing", []string{"Force/the token that was seen ends the lease, which is returned", random}},

		// Two steps that should be one, and contexts.
		{"acquire reads, then writes", []string{
			"Contention/one free resource has one winner, and the others are told that it is held", "Contention/one ended lease has one taker",
			"Attempt/retries at once share one grant",
		}},
		{"release reads, then deletes", []string{"Contention/late calls beside a new holder do not harm it", "Contention/releases at once free the grant once"}},
		{"purge reads, then deletes", []string{"Purge/purge spares a lease that is being taken over"}},
		{"force release reads, then deletes", []string{"Force/force releases at once end a lease once"}},
		{"one gate for all resources", []string{"Contention/as many resources as contenders are all granted", "Contention/a holder renews undisturbed while others try"}},
		{"contexts are ignored", []string{"Context/a call whose context has ended changes nothing"}},
		{"the end of a context is the driver's error", []string{"Context/a call whose context ends meanwhile *"}},
	}
}
