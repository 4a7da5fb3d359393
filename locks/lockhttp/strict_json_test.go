package lockhttp

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHasLoneSurrogate(t *testing.T) {
	for text, want := range map[string]bool{
		`"\ud83d\ude00"`: false, `"\\ud800"`: false, `"\\\ud800"`: true, `"\ud800\ud800\udc00"`: true, `"\ud800\\udc00"`: true,
		`"\ud7ff\ue000"`: false, `"\uDBFF\uDFFF"`: false, `"\udfff"`: true, `"\n\ud8"`: false, `""`: false, `"\ud800"`: true,
	} {
		if got := hasLoneSurrogate([]byte(text)); got != want {
			t.Errorf("hasLoneSurrogate(%s) = %v, want %v", text, got, want)
		}
	}
}

func TestIsInteger(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-0": true, "-1": true, "10": true, "": false, "-": false, "01": false, "-01": false, "+1": false,
		"1.0": false, "1e3": false, "1E3": false, " 1": false, "0x1": false, "١": false, "--1": false,
	} {
		if got := isInteger(text); got != want {
			t.Errorf("isInteger(%q) = %v, want %v", text, got, want)
		}
	}
}

// The strict reader takes only what is JSON, takes no more than encoding/json does, agrees with it on what it took, and
// takes what it gave again.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"owner":"w1","ttl_seconds":30,"metadata":{"a":[1,{"b":null}],"c":"\ud83d\ude00"}}`,
		`{"owner":"w1","owner":"w2"}`, `{"owner":"\ud800"}`, `{"Owner":"a"}`, `{"owner":"a"}{}`, `{"ttl_seconds":1e3}`,
		"\ufeff{}", `{"metadata":{"a":1,"a":2}}`, `null`, ``, `{"metadata":{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`,
		`{ "\u006fwner" : "\"\\\/\b\f\n\r\t" }`, `{"ttl_seconds":-0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readObject(data, acquireShape)
		if err != nil {
			if p := refusalOf(err).problem(ActionAcquire); p.Field == "" && !strings.Contains(string(data), `""`) || p.Status != 400 && p.Status != 422 {
				t.Fatalf("%q: %+v", data, p)
			}
			if _, err := json.Marshal(refusalOf(err).problem(ActionAcquire)); err != nil {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("took %q, which is not JSON in UTF-8", data)
		}
		var lax struct {
			Owner      *string         `json:"owner"`
			TTLSeconds *json.Number    `json:"ttl_seconds"`
			Metadata   json.RawMessage `json:"metadata"`
		}
		if err := json.Unmarshal(data, &lax); err != nil {
			t.Fatalf("took %q, which encoding/json does not: %v", data, err)
		}
		owner, hasOwner := got["owner"]
		ttl, hasTTL := got["ttl_seconds"]
		metadata, hasMetadata := got["metadata"]
		if hasOwner != (lax.Owner != nil) || hasOwner && owner.text != *lax.Owner ||
			hasTTL != (lax.TTLSeconds != nil) || hasTTL && ttl.text != lax.TTLSeconds.String() ||
			hasMetadata != (lax.Metadata != nil) || string(metadata.raw) != string(lax.Metadata) {
			t.Fatalf("%q was read as %v, encoding/json reads %+v", data, got, lax)
		}
		again, err := readObject(write(t, got), acquireShape)
		if err != nil || len(again) != len(got) {
			t.Fatalf("%q → %v → %v, %v", data, got, again, err)
		}
		for name, value := range got {
			if again[name].text != value.text || string(again[name].raw) != string(value.raw) {
				t.Fatalf("%s: %v → %v", name, value, again[name])
			}
		}
	})
}

// write makes a body of members.
func write(t *testing.T, members map[string]member) []byte {
	t.Helper()
	var parts []string
	for name, value := range members {
		text := value.text
		switch acquireShape[name] {
		case aString:
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			text = string(quoted)
		case anObject:
			text = string(value.raw)
		}
		parts = append(parts, strconv.Quote(name)+":"+text)
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}
