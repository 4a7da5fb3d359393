package advisory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/bunstore/advisory"
)

// The keys are frozen: another release, or another program, must lock the same thing. They were computed with
// printf 'rowlease/advisory:%s' NAME | sha256sum.
func TestKeyOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"account:4711":           -2253348775645762959,
		"nightly report":         -8094179131028530292,
		"a":                      -7164648177395406208,
		" a":                     -411784345749407408,
		"A":                      6041443965696738364,
		"job:42":                 -3333198357892974819,
		"Ä":                      -6424572291806090459,
		"A\u0308":                4713421781009360550,
		strings.Repeat("x", 512): 1819108406539697414,
	} {
		if got := advisory.KeyOf(name); got != want {
			t.Errorf("KeyOf(%.20q) = %d, want %d", name, got, want)
		}
	}
	if advisory.KeyOf(strings.Repeat("x", 511)) == advisory.KeyOf(strings.Repeat("x", 512)) {
		t.Error("the end of a long name does not count")
	}
}

func ExampleKeyOf() {
	// For psql: SELECT pg_advisory_lock(…)
	fmt.Println(advisory.KeyOf("account:4711"))
	// Output: -2253348775645762959
}
