// Package sqlite has the errors of SQLite drivers in their shapes. Like the drivers' packages it is told by its path.
package sqlite

// Mattn is the error of mattn/go-sqlite3.
type Mattn struct{ Code, ExtendedCode ErrNo }

// ErrNo is the type of its codes.
type ErrNo int

func (e Mattn) Error() string { return "mattn" }

// Ncruces is the error of ncruces/go-sqlite3, for the code 517.
type Ncruces struct{}

func (Ncruces) Error() string { return "ncruces" }

// Code is the primary code.
func (Ncruces) Code() uint8 { return 5 }

// ExtendedCode is the code with what is in its upper byte.
func (Ncruces) ExtendedCode() ExtendedCode { return 517 }

// ExtendedCode is the type of that.
type ExtendedCode uint16

// Text has a code that is no number.
type Text struct{ Code string }

func (Text) Error() string { return "text code" }
