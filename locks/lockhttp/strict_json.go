package lockhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rowlease/rowlease/locks"
)

// maxDepth is how deep metadata may nest, itself included: what reads it later may be less patient than we are.
const maxDepth = 32

// memberType is the type that a member of a body must have.
type memberType string

const (
	aString   memberType = "a string"
	anInteger memberType = "an integer"
	anObject  memberType = "an object"
	aBoolean  memberType = "true or false"
)

// shape is the members that a body may have.
type shape map[string]memberType

// member is a member's value: text is what a string says, or an integer's digits; raw is an object as it was written; truth
// is a boolean's.
type member struct {
	text  string
	raw   json.RawMessage
	truth bool
}

// readObject reads one JSON object of a known shape. [encoding/json] would take other cases of a name, duplicates, null,
// and turn bad UTF-8 and lone surrogates into U+FFFD; here each is an error that names the member.
func readObject(data []byte, known shape) (map[string]member, error) {
	switch {
	case len(bytes.Trim(data, " \t\r\n")) == 0:
		return nil, refuse(malformed, "body", "The body must be a JSON object; it is empty.")
	case bytes.HasPrefix(data, []byte("\ufeff")):
		return nil, refuse(malformed, "body", "The body must not begin with a byte order mark.")
	case !utf8.Valid(data):
		return nil, refuse(malformed, "body", "The body must be valid UTF-8.")
	case !json.Valid(data): // also what follows the object
		return nil, refuse(malformed, "body", "The body must be one JSON object and nothing else.")
	}
	reader := &strictReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	reader.decoder.UseNumber()
	if first, err := reader.next("body"); err != nil {
		return nil, err
	} else if first != json.Delim('{') {
		return nil, refuse(malformed, "body", "The body must be a JSON object.")
	}
	members := make(map[string]member, len(known))
	for reader.decoder.More() {
		name, err := reader.name("body")
		if err != nil {
			return nil, err
		}
		want, ok := known[name]
		if !ok {
			return nil, unknownMember(name, known)
		}
		if _, twice := members[name]; twice {
			return nil, refuse(malformed, name, name+" must be given once.")
		}
		if members[name], err = reader.member(name, want); err != nil {
			return nil, err
		}
	}
	return members, nil
}

func unknownMember(name string, known shape) error {
	for right := range known {
		if strings.EqualFold(name, right) {
			return refuse(malformed, right, fmt.Sprintf("Names are case-sensitive: write %s.", right))
		}
	}
	return refuse(malformed, shorten(name), "There is no such member.")
}

// shorten keeps an answer from becoming as long as what it answers.
func shorten(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	cut := most
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

// strictReader reads JSON that is known to be valid, token by token, and refuses what text cannot keep.
type strictReader struct {
	data    []byte
	decoder *json.Decoder
	from    int // where the token before ended
}

// next returns the next token. Field is what an error names.
func (s *strictReader) next(field string) (json.Token, error) {
	token, err := s.decoder.Token()
	if err != nil {
		return nil, refuse(malformed, field, "The body must be one JSON object and nothing else.")
	}
	end := int(s.decoder.InputOffset())
	raw := s.data[s.from:end]
	s.from = end
	if _, ok := token.(string); ok && hasLoneSurrogate(raw) {
		return nil, refuse(malformed, field, field+" must not have half a surrogate pair.")
	}
	return token, nil
}

func (s *strictReader) name(field string) (string, error) {
	token, err := s.next(field)
	if err != nil {
		return "", err
	}
	name, ok := token.(string)
	if !ok {
		return "", refuse(malformed, field, "The body must be one JSON object and nothing else.")
	}
	return name, nil
}

func (s *strictReader) member(name string, want memberType) (member, error) {
	token, err := s.next(name)
	if err != nil {
		return member{}, err
	}
	switch value := token.(type) {
	case nil:
		return member{}, refuse(malformed, name, name+" must not be null: leave it out.")
	case string:
		if want == aString {
			return member{text: value}, nil
		}
	case bool:
		if want == aBoolean {
			return member{truth: value}, nil
		}
	case json.Number:
		if want == anInteger && isInteger(value.String()) {
			return member{text: value.String()}, nil
		}
	case json.Delim:
		if want == anObject && value == '{' {
			start := s.from - 1
			if err := s.inside(name, 1); err != nil {
				return member{}, err
			}
			return member{raw: bytes.Clone(s.data[start:s.from])}, nil
		}
	}
	return member{}, refuse(malformed, name, fmt.Sprintf("%s must be %s.", name, want))
}

// inside reads the rest of an object whose brace was just read.
func (s *strictReader) inside(field string, depth int) error {
	seen := map[string]bool{}
	for s.decoder.More() {
		name, err := s.name(field)
		if err != nil {
			return err
		}
		if seen[name] {
			return refuse(malformed, field, field+" must not give a name twice in one object.")
		}
		seen[name] = true
		if err := s.value(field, depth); err != nil {
			return err
		}
	}
	_, err := s.next(field)
	return err
}

// value reads any value that stands depth deep.
func (s *strictReader) value(field string, depth int) error {
	token, err := s.next(field)
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth >= maxDepth {
		return &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must not nest deeper than %d levels", maxDepth)}
	}
	if open == '{' {
		return s.inside(field, depth+1)
	}
	for s.decoder.More() {
		if err := s.value(field, depth+1); err != nil {
			return err
		}
	}
	_, err = s.next(field)
	return err
}

// hasLoneSurrogate looks for a \u escape that is one half of a surrogate pair without the other. The text is a valid
// JSON string, with or without blanks around it.
func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			i++
			continue
		}
		unit, ok := codeUnit(raw[i:])
		if !ok {
			i += 2
			continue
		}
		i += 6
		if unit < 0xD800 || unit > 0xDFFF {
			continue
		}
		low, ok := codeUnit(raw[i:])
		if unit > 0xDBFF || !ok || low < 0xDC00 || low > 0xDFFF {
			return true
		}
		i += 6
	}
	return false
}

func codeUnit(raw []byte) (uint64, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// isInteger tells an integer as JSON writes it: no sign but a minus, no leading zeros, no fraction, no exponent.
func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || (digits[0] == '0' && len(digits) > 1) {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// integerIn returns the integer that isInteger has seen, if it lies between least and most.
func integerIn(field, text string, least, most int64) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < least || number > most {
		return 0, &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must be from %d to %d", least, most)}
	}
	return number, nil
}
