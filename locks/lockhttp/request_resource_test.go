package lockhttp_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// Frozen: two versions of a service behind one load balancer must make the same names.
func TestRequestResourceIsFrozen(t *testing.T) {
	long := strings.Repeat("k", 600)
	for _, row := range []struct {
		parts []string
		want  string
	}{
		{[]string{"POST", "/payments", "a1"}, "http:4:POST,9:/payments,2:a1"},
		{[]string{"ü"}, "http:2:ü"},
		{[]string{"POST", "/", long}, "http:sha256:4570854104afdc7f52608ae31380f1da9eecdf3cf69a49920ad21d7c978f5c76"},
	} {
		got, err := lockhttp.RequestResource(row.parts...)
		if err != nil || got != row.want {
			t.Errorf("RequestResource(%.20q) = %q, %v; want %q", row.parts, got, err, row.want)
		}
	}
}

func TestRequestResourceAtTheLimit(t *testing.T) {
	overhead := len("http:508:")
	for n, hashed := range map[int]bool{locks.MaxResourceBytes - overhead: false, locks.MaxResourceBytes - overhead + 1: true} {
		got, err := lockhttp.RequestResource(strings.Repeat("k", n))
		if err != nil || strings.HasPrefix(got, "http:sha256:") != hashed || locks.ValidateResource(got) != nil {
			t.Errorf("%d bytes: %.40q (%d), %v; hashed want %v", n, got, len(got), err, hashed)
		}
	}
}

func TestRequestResourceRefuses(t *testing.T) {
	for field, parts := range map[string][]string{
		"parts": {}, "part 1": {""}, "part 2": {"a", "b\n"}, "part 3": {"a", "b", "\xff"}, "part 2 ": {"a", "", "c"},
	} {
		got, err := lockhttp.RequestResource(parts...)
		var invalid *locks.InvalidError
		if got != "" || !errors.As(err, &invalid) || invalid.Field != strings.TrimSpace(field) {
			t.Errorf("RequestResource(%q) = %q, %v; want an error of %s", parts, got, err, field)
		}
	}
}

// decompose reads the parts back, which is what makes the name injective.
func decompose(name string) ([]string, error) {
	rest, ok := strings.CutPrefix(name, lockhttp.RequestTag)
	if !ok {
		return nil, errors.New("no tag")
	}
	var parts []string
	for {
		digits, after, ok := strings.Cut(rest, ":")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n > len(after) {
			return nil, fmt.Errorf("no length at %q", rest)
		}
		parts = append(parts, after[:n])
		rest = after[n:]
		if rest == "" {
			return parts, nil
		}
		if rest[0] != ',' {
			return nil, fmt.Errorf("no comma at %q", rest)
		}
		rest = rest[1:]
	}
}

func FuzzRequestResource(f *testing.F) {
	f.Add("POST", "/payments", "a1")
	f.Add("POST", "/payments,2:a1", "x")
	f.Add("1:a,1:b", "sha256:", ",")
	f.Add("POST", strings.Repeat("ab", 300), "x")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		parts := []string{a, b, c}
		name, err := lockhttp.RequestResource(parts...)
		if err != nil {
			if !errors.Is(err, locks.ErrInvalid) || name != "" {
				t.Fatalf("%q, %v", name, err)
			}
			return
		}
		if err := locks.ValidateResource(name); err != nil {
			t.Fatalf("%q makes a name that is no resource: %v", parts, err)
		}
		plain := fmt.Sprintf("http:%d:%s,%d:%s,%d:%s", len(a), a, len(b), b, len(c), c)
		if hashed := strings.HasPrefix(name, "http:sha256:"); hashed != (len(plain) > locks.MaxResourceBytes) {
			t.Fatalf("%d bytes, hashed = %v", len(plain), hashed)
		} else if hashed {
			return
		}
		back, err := decompose(name)
		if err != nil || !slices.Equal(back, parts) {
			t.Fatalf("%q → %q → %q, %v", parts, name, back, err)
		}
	})
}
