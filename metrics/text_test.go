package metrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/metrics"
)

// The escaping of every special character, and the format of the largest numbers.
func TestEscaping(t *testing.T) {
	var r metrics.Registry
	st := mem.Stats{NumOOMs: 1<<63 - 1}
	if _, err := r.AddStats(metrics.Labels{Device: "a\\b\"c\nd", Allocator: "größe {x=\"y\"}, #"}, func() mem.Stats { return st }); err != nil {
		t.Fatal(err)
	}
	wants(t, pageOf(t, &r), `ashlar_memory_ooms_total{device="a\\b\"c\nd",allocator="größe {x=\"y\"}, #"} 9223372036854775807`)
}

// All samples of a metric are adjacent, after one HELP and one TYPE.
func TestFamilies(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Add(metrics.Labels{Device: "sim:0", Allocator: "second"}, w.caching); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	last := ""
	lines := strings.Split(strings.TrimSuffix(pageOf(t, w), "\n"), "\n")
	for i, line := range lines {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			last, _, _ = strings.Cut(rest, " ")
			if seen[last] {
				t.Errorf("%s comes twice", last)
			}
			seen[last] = true
			if !strings.HasPrefix(lines[i+1], "# TYPE "+last+" ") {
				t.Errorf("after HELP of %s: %s", last, lines[i+1])
			}
		} else if !strings.HasPrefix(line, "# TYPE "+last+" ") && !strings.HasPrefix(line, last+"{") {
			t.Errorf("under %s: %s", last, line)
		}
	}
	if last != "ashlar_scrape_success" {
		t.Errorf("the last metric is %s", last)
	}
}

func get(h http.Handler, method string, accept ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "/metrics", nil)
	for _, a := range accept {
		req.Header.Add("Accept", a)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestFormatThatIsAskedFor(t *testing.T) {
	const text, open = "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text; version=1.0.0; charset=utf-8"
	w := newWorld(t)
	for _, c := range []struct {
		want   string
		accept []string
	}{
		{text, nil},
		{text, []string{"*/*"}},
		{text, []string{"text/plain"}},
		{text, []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}},
		{text, []string{"application/json"}},
		{text, []string{";;;,=,q"}},
		{open, []string{"application/openmetrics-text"}},
		{open, []string{"application/openmetrics-text; version=1.0.0; charset=utf-8"}},
		{open, []string{"text/plain;q=0.3", "application/openmetrics-text;q=0.5"}},
		{text, []string{"text/plain, application/openmetrics-text"}}, // liked as much
		{text, []string{"application/openmetrics-text;q=0"}},
		{text, []string{"application/openmetrics-text;q=lots"}},
		{text, []string{"application/openmetrics-text;version=0.0.1"}},
		// The Accept headers that Prometheus 2 and 3 send.
		{open, []string{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}},
		{open, []string{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"}},
	} {
		got := get(w, "GET", c.accept...)
		h := got.Header()
		if got.Code != 200 || h.Get("Content-Type") != c.want || h.Get("Vary") != "Accept" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d, %v", c.accept, got.Code, h)
		}
		if ends := strings.HasSuffix(got.Body.String(), "\n# EOF\n"); ends != (c.want == open) {
			t.Errorf("%q: ends in # EOF: %t", c.accept, ends)
		}
	}
}

// In OpenMetrics a counter's family has no _total, and there are units.
func TestOpenMetrics(t *testing.T) {
	w := newWorld(t)
	page := get(w, "GET", "application/openmetrics-text").Body.String()
	wants(t, page,
		`# TYPE ashlar_memory_allocated_added_bytes counter`,
		`# UNIT ashlar_memory_allocated_added_bytes bytes`,
		`# TYPE ashlar_memory_ooms counter`,
		`ashlar_memory_ooms_total{device="sim:0",allocator="main",model="llama"} 0`,
		`# UNIT ashlar_pinned_driver_time_max_seconds seconds`,
	)
	if strings.Contains(page, "# UNIT ashlar_memory_ooms") {
		t.Error("a unit where there is none")
	}
}

func TestMethods(t *testing.T) {
	w := newWorld(t)
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "DELETE": 405} {
		got := get(w, method)
		if got.Code != want {
			t.Errorf("%s: %d, want %d", method, got.Code, want)
		}
		if allow := got.Header().Get("Allow"); (allow == "GET, HEAD") != (want == 405) {
			t.Errorf("%s: allowed is %q", method, allow)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 3, errBroken }

var errBroken = errors.New("broken pipe")

func TestWriterThatFails(t *testing.T) {
	w := newWorld(t)
	if n, err := w.WriteTo(broken{}); n != 3 || !errors.Is(err, errBroken) {
		t.Errorf("%d, %v", n, err)
	}
}
