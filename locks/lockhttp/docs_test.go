package lockhttp

import (
	"os"
	"strings"
	"testing"
)

// The page for people who write clients names every problem that they can meet.
func TestTheDocumentationNamesEveryProblemType(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range statusTable {
		if name := strings.TrimPrefix(row.urn, TypePrefix); !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/http.md does not name %s", name)
		}
	}
}
