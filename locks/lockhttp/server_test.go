package lockhttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// exchange writes a raw request to a real server and reads status and body of the answer.
func exchange(t *testing.T, address, request string) (int, string) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func chunked(body string) string {
	var text strings.Builder
	for len(body) > 0 {
		n := min(len(body), 1000)
		fmt.Fprintf(&text, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return text.String() + "0\r\n\r\n"
}

func TestOverARealConnection(t *testing.T) {
	g := newRig(t)
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	head := func(line string) string { return line + " HTTP/1.1\r\nHost: x\r\n" }
	jsonChunks := "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, row := range []struct {
		name, request string
		status        int
	}{
		{"chunked", head("POST /locks/r") + jsonChunks + chunked(`{"owner":"w1"}`), 200},
		{"chunked, too large", head("POST /locks/r") + jsonChunks + chunked(`{"owner":"w1"}`+strings.Repeat(" ", 16<<10)), 413},
		{"chunked and empty", head("POST /locks/r") + jsonChunks + chunked(""), 400},
		{"announced as too large", head("POST /locks/r") + "Content-Type: application/json\r\nContent-Length: 16385\r\nExpect: 100-continue\r\n\r\n", 413},
		{"cut off", head("POST /locks/r") + jsonChunks + "zz\r\n", 400},
		{"two types", head("POST /locks/r") + "Content-Type: application/json\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"owner":"w1"}`, 415},
		{"absolute URI", head("GET http://x/locks/r"), 200},
		{"DELETE, chunked and empty", head("DELETE /locks/r?owner=w2") + "Transfer-Encoding: chunked\r\n\r\n" + chunked(""), 403},
		{"DELETE, chunked, no type", head("DELETE /locks/r") + "Transfer-Encoding: chunked\r\n\r\n" + chunked(`{"owner":"w1"}`), 415},
		{"DELETE, chunked", head("DELETE /locks/r") + jsonChunks + chunked(`{"owner":"w1"}`), 204},
		{"gone", head("HEAD /locks/r"), 404},
	} {
		if !strings.Contains(row.request, "\r\n\r\n") {
			row.request += "\r\n"
		}
		if status, body := exchange(t, address, row.request); status != row.status {
			t.Errorf("%s: status = %d, want %d: %s", row.name, status, row.status, body)
		}
	}
}

// A client that forgot to encode is told so.
func TestRawCharactersInAnAddressAreExplained(t *testing.T) {
	server := httptest.NewServer(newRig(t))
	t.Cleanup(server.Close)
	for target, words := range map[string]string{
		`/locks/a"b`: "percent-encoded", "/locks/ü": "percent-encoded", "/locks/a{b}": "percent-encoded",
		"/locks/r?owner=a;b": "%3B", "/locks/r?owner=100%": "%25",
	} {
		status, body := exchange(t, server.Listener.Addr().String(), "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if status != 400 || !strings.Contains(body, words) {
			t.Errorf("%s: %d %s, want 400 and %q", target, status, body, words)
		}
	}
}

// HEAD is GET without the body: the same headers, length included.
func TestHEADHasTheHeadersOfGET(t *testing.T) {
	g := newRig(t)
	g.acquire("r", "w1")
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	for _, target := range []string{"/locks/r", "/locks/free", "/locks/%2E", "/admin/locks", "/admin/locks/r"} {
		headers := map[string]http.Header{}
		for _, method := range []string{"GET", "HEAD"} {
			request, err := http.NewRequestWithContext(t.Context(), method, server.URL+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			response.Header.Del("Date")
			headers[method] = response.Header
		}
		if fmt.Sprint(headers["GET"]) != fmt.Sprint(headers["HEAD"]) || headers["GET"].Get("Content-Length") == "" {
			t.Errorf("%s: GET %v\nHEAD %v", target, headers["GET"], headers["HEAD"])
		}
	}
}

func TestAHostsOwnBodyLimitIs413(t *testing.T) {
	g := newRig(t)
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 10)
		g.ServeHTTP(w, r)
	})
	w := httptest.NewRecorder()
	limited.ServeHTTP(w, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request())
	want(t, w, 413, "body-too-large", "body")
}

func TestBehindStripPrefix(t *testing.T) {
	g := newRig(t)
	mux := http.NewServeMux()
	mux.Handle("/x/", http.StripPrefix("/x", g.api.Handler("")))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, call{"POST", "/x/a%2Fb", `{"owner":"w1"}`, nil}.request())
	want(t, w, 200)
	if g.holder("a/b") != "w1" {
		t.Error("a/b is not held")
	}
}
