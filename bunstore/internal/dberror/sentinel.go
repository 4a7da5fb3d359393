package dberror

// Sentinel returns an error to branch on that belongs to a family of package locks.
func Sentinel(text string, family error) error { return &sentinel{text, family} }

type sentinel struct {
	text   string
	family error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.family }
