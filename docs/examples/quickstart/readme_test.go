package main

import (
	"os"
	"strings"
	"testing"
)

// The README's quick start is this program, to the letter: what a reader copies compiles.
func TestQuickStartIsTheReadmes(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```go\n")
	if !ok {
		t.Fatal("the README has no go block")
	}
	block, _, _ = strings.Cut(block, "```")
	if _, program, _ := strings.Cut(string(source), "package main\n"); strings.TrimSpace(block) != strings.TrimSpace(program) {
		t.Error("the first go block of the README is not docs/examples/quickstart/main.go after its package line")
	}
}
