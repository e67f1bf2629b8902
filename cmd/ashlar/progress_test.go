package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProgressHasTheTimeLeft(t *testing.T) {
	for _, c := range []struct {
		elapsed time.Duration
		done    float64
		want    string
	}{
		{time.Second, 0, "1s"},
		{time.Second, 0.5, "1s:  50 %"},
		{10 * time.Second, 0, "10s"},
		{10 * time.Second, 0.25, "10s:  25 %, 30s left"},
		{100 * time.Second, 0.02, "1m40s:   2 %, 1h21m40s left"},
		{3 * time.Second, 1, "3s: 100 %"},
	} {
		if got := progressText(c.elapsed, c.done); got != c.want {
			t.Errorf("after %v, %v done: %q, want %q", c.elapsed, c.done, got, c.want)
		}
	}
}

func TestReadingShowsProgress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	content := bytes.Repeat([]byte("0123456789"), 1000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProgress(io.Discard, "")
	var told []float64
	p.watch = func(done float64) { told = append(told, done) }
	r, closeFile, err := openInput(path, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile()
	half := make([]byte, len(content)/2)
	if _, err := io.ReadFull(r, half); err != nil {
		t.Fatal(err)
	}
	if len(told) == 0 || told[len(told)-1] != 0.5 {
		t.Errorf("after half of the file: %v", told)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) != len(content)/2 || told[len(told)-1] != 1 {
		t.Errorf("%d bytes, %v, %v", len(rest), err, told)
	}
}

// The time left of a file that is read again does not count the time of the first reading.
func TestReadingAgainStartsAnew(t *testing.T) {
	path := file(t, "x", "content")
	p := newProgress(io.Discard, "reading x")
	var begun time.Time
	p.since, p.done = begun, 1
	_, closeFile, err := openInput(path, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile()
	if p.what != "reading x" || p.since == begun || p.done != 0 {
		t.Errorf("%q since %v, %v done", p.what, p.since, p.done)
	}
}
