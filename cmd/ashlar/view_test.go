package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/view"
)

func TestViewHelp(t *testing.T) { golden.File(t, "testdata/help-view.txt", ok(t, "view", "--help")) }

// The page is served until the program is told to end, at the address that is printed, and shows the traces. The garbage
// collector then has the setting that it had before.
func TestViewServesThePage(t *testing.T) {
	gc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(gc)
	before := gc[0].Value.Uint64()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var messages bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		c := viewCmd{Traces: []string{sample("streams"), "missing.pickle"}, NoOpen: true}
		err := c.serve(ctx, &streams{out: newPage(w), err: &messages})
		w.Close()
		ended <- err
	}()
	url, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url = strings.TrimSpace(url)
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("the address is %s", url)
	}
	var o struct {
		Recordings []struct{ Name, State string }
	}
	for len(o.Recordings) < 2 || o.Recordings[0].State == "reading" || o.Recordings[1].State == "reading" {
		answer, err := http.Get(url + "api/recordings")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(answer.Body).Decode(&o)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if o.Recordings[0].State != "ready" || o.Recordings[0].Name != "streams" || o.Recordings[1].State != "failed" {
		t.Errorf("recordings: %+v", o.Recordings)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if metrics.Read(gc); gc[0].Value.Uint64() != before {
		t.Errorf("the garbage collector is set to %d %%, and was to %d %%", gc[0].Value.Uint64(), before)
	}
	if !strings.Contains(messages.String(), "missing.pickle") {
		t.Errorf("messages: %s", messages.String())
	}
}

// Without a trace or a program to show no address is printed.
func TestViewOfNothing(t *testing.T) {
	for _, args := range [][]string{
		{file(t, "text.pickle", "text")},
		{"missing.pickle", file(t, "a.script", fragmented)},
		{"--attach", "http://127.0.0.1:1"},
	} {
		got := ashlar(t, nil, append([]string{"view", "--no-open"}, args...)...)
		if got.code != exitInput || got.out != "" || !strings.HasPrefix(got.err, "ashlar: ") {
			t.Errorf("%q: exit code %d, %q, %s", args, got.code, got.out, got.err)
		}
	}
}

// The page of a large trace is there while the trace is read, that of a small one once it has been read.
func TestViewShowsWhatItReads(t *testing.T) {
	for name, want := range map[string]bool{"gpt2": false, "streams": true} {
		server := view.New(view.Options{})
		var ready []bool
		c := viewCmd{Traces: []string{sample(name)}}
		if err := c.load(&streams{err: io.Discard}, server, func() { ready = append(ready, server.Ready()) }); err != nil {
			t.Fatal(err)
		}
		if ready[0] != want || !server.Ready() {
			t.Errorf("%s: ready at first: %v, want %v", name, ready[0], want)
		}
	}
}

func TestViewExports(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "page.html"), filepath.Join(dir, "page")
	ok(t, "view", "--export", file, sample("streams"))
	ok(t, "view", "--export", folder, "--what-if", "caching", sample("streams"))
	for _, name := range []string{file, filepath.Join(folder, "index.html"), filepath.Join(folder, "data.js")} {
		if text, err := os.ReadFile(name); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	for _, args := range [][]string{
		{"view"},
		{"view", "--export", file, sample("streams")},
		{"view", "--export", folder, sample("streams")},
		{"view", "--attach", "http://127.0.0.1:1", sample("streams")},
		{"view", "--what-if", "caching", sample("streams")},
		{"view", "--attach", "http://127.0.0.1:1", "--export", file},
	} {
		if code := run(args, strings.NewReader(""), io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, exitUsage)
		}
	}
}

// What cannot be compared or written is found before the work begins, and leaves nothing.
func TestViewExportsNothingIfItCannotExportAll(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		code int
		to   string // below dir
		spec string
		want string
	}{
		{exitUsage, "page.html", "none", `allocator "none": unknown name "none"`},
		{exitUsage, "page", "none", `allocator "none": unknown name "none"`},
		{exitInput, "page", "planned:no/such", "no/such: no such file or directory"},
		{exitInput, "missing/page", "caching", "missing/page cannot be written: no such file or directory"},
		{exitInput, "missing/page.html", "caching", "missing/page.html cannot be written: no such file or directory"},
	} {
		got := ashlar(t, nil, "view", "--export", filepath.Join(dir, c.to), "--what-if", c.spec, sample("streams"))
		if got.code != c.code || !strings.Contains(got.err, c.want) || strings.Contains(got.err, "exporting") {
			t.Errorf("--export %s --what-if %s: exit code %d, %s", c.to, c.spec, got.code, got.err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left are %v, %v", files, err)
	}
}

// A file of an exported folder is replaced as a whole: an open or linked copy of the earlier one keeps its contents.
func TestViewReplacesFilesOfAFolder(t *testing.T) {
	folder, kept := filepath.Join(t.TempDir(), "page"), file(t, "kept", "earlier")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(kept, filepath.Join(folder, "data.js")); err != nil {
		t.Fatal(err)
	}
	ok(t, "view", "--force", "--export", folder, sample("streams"))
	if text, err := os.ReadFile(kept); err != nil || string(text) != "earlier" {
		t.Errorf("the earlier file has %d bytes, %v", len(text), err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 2 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}
