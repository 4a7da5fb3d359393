package fence

// Condition returns the check as SQL, for an UPDATE without bun, in any database: "coalesce(fence_token, 0) <= $2" for
// the column fence_token and the placeholder $2. The statement has to store the token as well, and [Check] tells why it
// changed no row:
//
//	UPDATE reports SET body = $1, fence_token = $2 WHERE id = $3 AND coalesce(fence_token, 0) <= $2
//
// Both are put into the text as they are: quote a column that needs it, and never take one from a request. Where
// placeholders are question marks the token is an argument twice. The column has to be as wide as an int64.
func Condition(column, placeholder string) string {
	return "coalesce(" + column + ", 0) <= " + placeholder
}

// Check compares a token with the one stored beside the data, 0 for none: a [*StaleError] when the stored one is newer,
// nil otherwise. Alone it is no fence, since others may write between the look and the write: use it where the data's
// owner does both under a lock of its own, and to explain why a write with [Condition] changed nothing. Safe for
// concurrent use.
func Check(token, stored int64) error {
	if stored > token {
		return &StaleError{Token: token, Stored: stored}
	}
	return nil
}
