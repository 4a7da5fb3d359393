package lockhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	preferHeader  = "Prefer"
	appliedHeader = "Preference-Applied"
)

// preferredWait is the preference wait of RFC 7240, section 4.3, in whole seconds. By section 2 only the first one counts,
// and a server ignores what it does not recognise, and signals no error: one whose value is no number of seconds is no
// preference at all.
func preferredWait(header http.Header) (wait time.Duration, given bool) {
	rest := strings.Join(header.Values(preferHeader), ",")
	for rest != "" {
		var preference string
		preference, rest = cutUnquoted(rest, ',')
		preference, _ = cutUnquoted(preference, ';') // its parameters
		name, value := cutUnquoted(preference, '=')
		if strings.EqualFold(blanksOff(name), "wait") {
			return secondsOf(unquoted(blanksOff(value)))
		}
	}
	return 0, false
}

// cutUnquoted cuts at the first separator that does not stand in a quoted string.
func cutUnquoted(text string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

func blanksOff(text string) string { return strings.Trim(text, " \t") }

// unquoted takes the quotes off. There is no escape to undo: with one, the text is no number.
func unquoted(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}

// secondsOf reads a number of seconds. One that no Duration can hold becomes the longest of whole seconds.
func secondsOf(digits string) (time.Duration, bool) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	const most = math.MaxInt64 / int64(time.Second)
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || seconds > most {
		seconds = most
	}
	return time.Duration(seconds) * time.Second, true
}
