package election_test

import (
	"os"
	"strings"
	"testing"
)

// The code of the page about leaders is that of the examples.
func TestThePageShowsTheExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/leader.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(code string) string {
		var lines strings.Builder
		for line := range strings.Lines(code) {
			lines.WriteString(strings.TrimSpace(line) + "\n")
		}
		return lines.String()
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(flat(string(examples)), flat(code)) {
			t.Errorf("no example has this code:\n%s", code)
		}
	}
	if len(blocks) < 3 {
		t.Errorf("the page has %d blocks of code", len(blocks))
	}
}
