package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeLine = regexp.MustCompile(`\bmake((?: +[A-Z_]+=\S+| +[a-z][a-z-]*)+)`)
	goPath   = regexp.MustCompile(`\s(\./[\w./-]+)`)
)

// What the documents tell to type is there to be typed: make targets, and paths that begin with a dot.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, found := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[found[1]] = true
	}

	checked := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "integration/*.md"} {
		documents, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents {
			text, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range shellLines(string(text)) {
				for _, found := range makeLine.FindAllStringSubmatch(line, -1) {
					for word := range strings.FieldsSeq(found[1]) {
						checked++
						if !strings.Contains(word, "=") && !targets[word] {
							t.Errorf("%s: no such target: %s", document, line)
						}
					}
				}
				if strings.Contains(line, "cd ") {
					continue // its paths are somebody else's
				}
				for _, found := range goPath.FindAllStringSubmatch(line, -1) {
					path := strings.TrimSuffix(found[1], "/...")
					if _, err := os.Stat(filepath.Join(root, path)); err != nil {
						t.Errorf("%s: no such path: %s", document, line)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no document has a make target in a block marked sh")
	}
}

// shellLines returns the commands in the fenced blocks that are marked sh, without their comments.
func shellLines(markdown string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside && strings.HasPrefix(line, "```sh")
		case inside:
			command, _, _ := strings.Cut(line, " #")
			if command != "" && !strings.HasPrefix(command, "#") {
				lines = append(lines, command)
			}
		}
	}
	return lines
}

func TestShellLines(t *testing.T) {
	t.Parallel()
	got := shellLines("text\n```sh\nmake run # starts it\n# a comment\n\nmake test\n```\n```go\nmake no\n```\nmake no\n")
	if want := "make run|make test"; strings.Join(got, "|") != want {
		t.Errorf("shellLines = %q, want %s", got, want)
	}
}

// The README's requests are those that the program prints at its start, which another test runs with curl.
func TestTheReadmeShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown, printed []string
	for _, line := range shellLines(string(readme)) {
		if strings.HasPrefix(line, "curl ") {
			shown = append(shown, line)
		}
	}
	for line := range strings.Lines(welcome("127.0.0.1:8080", config{})) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") && !strings.Contains(line, "/admin/") {
			printed = append(printed, line)
		}
	}
	if !slices.Equal(shown, printed) {
		t.Errorf("the README shows\n%s\nand the program prints\n%s", strings.Join(shown, "\n"), strings.Join(printed, "\n"))
	}
}
