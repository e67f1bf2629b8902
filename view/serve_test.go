package view

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
)

// token is the secret of test servers.
const token = "SECRET"

// serve starts a server that shows traces, and returns it with the address of its page.
func serve(t *testing.T, names ...string) (s *Server, page string) {
	t.Helper()
	s = New(Options{Version: "v1", Token: token})
	for _, name := range names {
		trace, err := snapshot.ReadFile(filepath.Join("../testdata/traces", name+".pickle.zst"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(name, "/secret/"+name).Set(trace); err != nil {
			t.Fatal(err)
		}
	}
	l := httptest.NewUnstartedServer(nil)
	l.Config.Handler = s.Handler(l.Listener.Addr())
	l.Start()
	t.Cleanup(l.Close)
	return s, s.URL(l.Listener.Addr())
}

// request makes a request, with headers in pairs; the header Host is that of the request.
func request(t *testing.T, method, url, body string, headers ...string) (status int, answer []byte, header http.Header) {
	t.Helper()
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, b, a.Header
}

// get returns the answer of a path of the page as JSON.
func get(t *testing.T, url string, into any) {
	t.Helper()
	status, b, _ := request(t, http.MethodGet, url, "")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func TestStrangersGetNothing(t *testing.T) {
	_, page := serve(t, "streams")
	host := strings.TrimPrefix(strings.TrimSuffix(page, "/"+token+"/"), "http://")
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	root := "http://" + host
	for _, c := range []struct {
		name, method, url string
		headers           []string
		want              int
	}{
		{"the page", "GET", page, nil, 200},
		{"by localhost", "GET", page, []string{"Host", "localhost:" + port}, 200},
		{"no token", "GET", root + "/", nil, 403},
		{"no token for data", "GET", root + "/api/recordings", nil, 403},
		{"a wrong token", "GET", root + "/SECRES/api/recordings", nil, 403},
		{"a longer token", "GET", root + "/SECRETS/", nil, 403},
		{"the token elsewhere", "GET", root + "/x/" + token + "/", nil, 403},
		{"another host", "GET", page, []string{"Host", "attacker.example:" + port}, 403},
		{"another host without port", "GET", page, []string{"Host", "attacker.example"}, 403},
		{"another port", "GET", page, []string{"Host", "127.0.0.1:1"}, 403},
		{"data for another site", "GET", page + "api/recordings", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a path outside", "GET", page + "..%2f..%2fgo.mod", nil, 404},
		{"a path with dots", "GET", page + "%2e%2e/%2e%2e/etc/passwd", nil, 404},
		{"a folder", "GET", page + "api", nil, 404},
		{"no such recording", "GET", page + "api/r/9.9/lines", nil, 404},
		{"another method", "POST", page + "api/recordings", nil, 404},
		{"a change by another site", "POST", page + "api/r/0.0/whatif", []string{"Origin", "http://attacker.example"}, 403},
		{
			"a change by another site in its own words", "POST", page + "api/r/0.0/whatif",
			[]string{"Sec-Fetch-Site", "cross-site"},
			403,
		},
		{"a form", "POST", page + "api/r/0.0/whatif", []string{"Content-Type", "text/plain"}, 415},
	} {
		status, _, header := request(t, c.method, c.url, "{}", c.headers...)
		if status != c.want && (c.want != 403 || status < 300 || status >= 400) {
			t.Errorf("%s: status %d, want %d", c.name, status, c.want)
		}
		if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: policy %q", c.name, policy)
		}
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	_, page := serve(t, "streams")
	for _, path := range []string{
		"memory?width=0", "memory?width=5000", "memory?max=1", "memory?max=300000", "memory?from=NaN", "memory?from=x",
		"memory?low=5&high=3", "memory?tile=1.9", "memory?tile=x", "memory?line=99999", "memory?min_size=x",
		"addresses?height=-1", "pick?event=0", "pick?event=999999999&y=1", "block?id=-1", "block?id=99999999",
		"blocks?limit=-1", "holders?by=nothing", "moment?name=step", "state?event=x", "flame?event=-2",
	} {
		status, b, _ := request(t, http.MethodGet, page+"api/r/0.0/"+path, "")
		var answer struct{ Error string }
		if err := json.Unmarshal(b, &answer); err != nil || status != http.StatusBadRequest || answer.Error == "" {
			t.Errorf("%s: status %d, answer %s", path, status, b)
		}
	}
}

func TestRecordingsAreReadInTheBackground(t *testing.T) {
	s, page := serve(t)
	x := s.Open("run", "run.pickle")
	x.Progress(0.25)
	var o overview
	get(t, page+"api/recordings", &o)
	if len(o.Recordings) != 1 || o.Recordings[0].State != stateReading || o.Recordings[0].Done != 0.25 {
		t.Fatalf("while it is read: %+v", o.Recordings)
	}
	if status, _, _ := request(t, http.MethodGet, page+"api/r/0/lines", ""); status != http.StatusTooEarly {
		t.Errorf("data of a recording that is being read: status %d", status)
	}
	trace, err := snapshot.ReadFile("../testdata/traces/streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Set(trace); err != nil {
		t.Fatal(err)
	}
	get(t, page+"api/recordings?after=1", &o)
	if len(o.Recordings) != 1 || o.Recordings[0].State != stateReady || o.Recordings[0].Events == 0 {
		t.Fatalf("afterwards: %+v", o.Recordings)
	}
	s.Open("bad", "bad.pickle").Fail(io.ErrUnexpectedEOF)
	get(t, page+"api/recordings", &o)
	if o.Recordings[1].State != stateFailed || o.Recordings[1].Error == "" {
		t.Errorf("a file that cannot be read: %+v", o.Recordings[1])
	}
}

func TestWhatIfShowsTheFiguresOfReplay(t *testing.T) {
	_, page := serve(t, "unet.stacks")
	specs := []string{"caching", "caching:expandable_segments:True", "bfc", "arena", "planned"}
	ask, err := json.Marshal(whatIfRequest{Specs: specs})
	if err != nil {
		t.Fatal(err)
	}
	status, b, _ := request(t, http.MethodPost, page+"api/r/0.0/whatif", string(ask), "Content-Type", "application/json")
	var started struct{ Job string }
	if err := json.Unmarshal(b, &started); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, b)
	}
	var j struct {
		Version int
		State   string
		Error   string
		Result  whatIfText
	}
	for url := page + "api/jobs/" + started.Job; j.State != stateDone; {
		get(t, url, &j)
		if j.State == stateFailed {
			t.Fatal(j.Error)
		}
	}
	work, err := recorded(t, "unet.stacks").work()
	if err != nil {
		t.Fatal(err)
	}
	want, err := replay.Compare(work, replay.CompareOptions{Specs: specs})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range j.Result.Rows {
		w := &want.Rows[i]
		if row.ReservedPeak != w.ReservedPeak || row.RequestedPeak != w.RequestedPeak || row.Spec != specs[i] {
			t.Errorf("%s: reserved %d and requested %d, want %d and %d", specs[i], row.ReservedPeak, row.RequestedPeak,
				w.ReservedPeak, w.RequestedPeak)
		}
		highest := int64(0)
		for _, n := range row.Curve.Reserved {
			highest = max(highest, n)
		}
		if n := len(row.Curve.Event); n == 0 || n > curvePoints || len(row.Curve.Allocated) != n {
			t.Errorf("%s: %d points", specs[i], n)
		}
		if specs[i] == "bfc" && highest != w.ReservedPeak {
			t.Errorf("%s: the curve reaches %d, want %d", specs[i], highest, w.ReservedPeak)
		}
	}
	status, b, _ = request(t, http.MethodPost, page+"api/r/0.0/whatif", `{"specs":["nothing"]}`,
		"Content-Type", "application/json")
	if status != http.StatusBadRequest || !bytes.Contains(b, []byte("nothing")) {
		t.Errorf("an unknown allocator: %d %s", status, b)
	}
}

func TestPlanNeverOverlaps(t *testing.T) {
	_, page := serve(t, "streams")
	var status int
	for status != http.StatusOK {
		status, _, _ = request(t, http.MethodGet, page+"api/r/0.0/plan", "")
		if status != http.StatusOK && status != http.StatusAccepted {
			t.Fatalf("status %d", status)
		}
	}
	r := recorded(t, "streams")
	if _, err := answerPlan(r, nil); err != nil {
		t.Fatal(err)
	}
	<-r.plan.ready
	w := window{from: -1, to: float64(r.events()), width: 4096, height: 4096, max: maxRects}
	d := decode(t, r.planPicture(&w))
	x0, x1, y, h := d.array(t, "x0"), d.array(t, "x1"), d.array(t, "y"), d.array(t, "h")
	block := d.array(t, "block")
	if len(x0) == 0 || d.header["height"].(float64) < d.header["bound"].(float64) {
		t.Fatalf("%d rectangles, %v", len(x0), d.header)
	}
	for i := range x0 {
		for k := range i {
			if block[i] != missing && block[k] != missing && x0[i] < x1[k] && x0[k] < x1[i] &&
				y[i] < y[k]+h[k] && y[k] < y[i]+h[i] {
				t.Fatalf("the blocks %v and %v overlap", block[i], block[k])
			}
		}
	}
}

func TestDifferencesAddUp(t *testing.T) {
	_, page := serve(t, "unet", "unet.stacks")
	var d diffText
	get(t, page+"api/diff?a=0.0&b=1.0&at=peak&by=category", &d)
	sum := int64(0)
	for _, c := range d.Changes {
		sum += c.After - c.Before
	}
	if len(d.Changes) == 0 || sum != d.B.Bytes-d.A.Bytes {
		t.Errorf("changes of %d bytes, want %d", sum, d.B.Bytes-d.A.Bytes)
	}
}

func TestExportedPagesNeedNothingElse(t *testing.T) {
	s, _ := serve(t, "streams", "unet.stacks")
	var page bytes.Buffer
	if err := s.Export(&page, ExportOptions{Specs: []string{"caching"}, MaxBytes: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, reference := range []string{" src=", "href=\"style", "@import", "url(http", "/secret/"} {
		if strings.Contains(text, reference) {
			t.Errorf("the page has %q", reference)
		}
	}
	_, data, ok := strings.Cut(text, "globalThis.ashlarExport = ")
	if !ok {
		t.Fatal("the page has no data")
	}
	var x struct{ Responses map[string][]byte }
	if err := json.NewDecoder(strings.NewReader(data)).Decode(&x); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(x.Responses["api/recordings"]))
	if err != nil {
		t.Fatal(err)
	}
	var o overview
	if err := json.NewDecoder(z).Decode(&o); err != nil {
		t.Fatal(err)
	}
	if o.Export == nil || o.Export.Levels == 0 || len(o.Recordings) != 2 || o.Recordings[0].File != "streams" {
		t.Errorf("recordings: %+v", o)
	}
	for _, path := range []string{
		"api/r/0.0/memory?tile=0.0", "api/r/1.0/addresses?tile=0.0", "api/r/1.0/lines", "api/r/1.0/blocks",
		"api/r/0.0/whatif", "api/diff?a=0.0&b=1.0&at=peak&by=line",
	} {
		if len(x.Responses[path]) == 0 {
			t.Errorf("the page lacks %s", path)
		}
	}
}

func TestTextOfARecordingIsNeverMarkup(t *testing.T) {
	const markup = `</script><script>alert(1)</script><img src=x onerror=alert(2)>`
	trace, err := snapshot.ReadFile("../testdata/traces/unet.stacks.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	for i := range trace.Stacks.Frames {
		trace.Stacks.Frames[i].Name, trace.Stacks.Frames[i].Filename = markup, markup
	}
	s := New(Options{Token: token})
	if err := s.Open(markup, markup).Set(trace); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := s.Export(&page, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "<script>alert") || strings.Contains(page.String(), "<img") {
		t.Error("the exported page has markup of the recording")
	}
	l := httptest.NewUnstartedServer(nil)
	l.Config.Handler = s.Handler(l.Listener.Addr())
	l.Start()
	defer l.Close()
	for _, path := range []string{"api/recordings", "api/r/0.0/lines", "api/r/0.0/flame", "api/r/0.0/search?q=alert"} {
		_, b, header := request(t, http.MethodGet, s.URL(l.Listener.Addr())+path, "")
		if bytes.Contains(b, []byte("<script>")) || header.Get("Content-Type") != "application/json" ||
			header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: markup, or the type %q", path, header.Get("Content-Type"))
		}
	}
}
