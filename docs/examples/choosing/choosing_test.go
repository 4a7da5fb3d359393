package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the program prints is the same in every run: on a file of its own, or on a database that other tests use, too.
func TestStories(t *testing.T) {
	t.Parallel()
	url, golden := "", "testdata/sqlite.txt"
	if dsn := os.Getenv("ROWLEASE_POSTGRES_DSN"); dsn != "" {
		url, golden = dsn, "testdata/postgres.txt"
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run finds what the first one left
		var got bytes.Buffer
		if err := run(t.Context(), &got, url); err != nil {
			t.Fatalf("%v, after\n%s", err, &got)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("printed\n%s\nwant, as in %s,\n%s", &got, golden, want)
		}
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), io.Discard, "mysql://shop:secret@host/shop")
	if err == nil || !strings.Contains(err.Error(), "DATABASE_URL") || strings.Contains(err.Error(), "secret") {
		t.Errorf("err = %v, want one that names DATABASE_URL and does not show it", err)
	}
}

// The guide links to each kind's file, and to no other.
func TestTheGuideNamesEachFile(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	var linked []string
	for _, found := range regexp.MustCompile(`\(examples/choosing/(\w+\.go)\)`).FindAllStringSubmatch(string(guide), -1) {
		linked = append(linked, found[1])
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(name string) bool {
		return name == "main.go" || name == "database.go" || strings.HasSuffix(name, "_test.go")
	})
	slices.Sort(linked)
	if linked = slices.Compact(linked); !slices.Equal(linked, files) {
		t.Errorf("the guide links to %q, the files are %q", linked, files)
	}
}
