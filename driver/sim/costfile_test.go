package sim

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ashlar-go/ashlar/driver"
)

func TestCostModelFile(t *testing.T) {
	var text bytes.Buffer
	n, err := H200().WriteTo(&text)
	if err != nil || n != int64(text.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, text.Len(), err)
	}
	if text.String() != h200File {
		t.Error("h200.json is not what WriteTo makes of it")
	}
	again, err := ReadCostModel(&text)
	if err != nil || !reflect.DeepEqual(again, H200()) {
		t.Errorf("read again: %+v, %v", again, err)
	}
	var empty bytes.Buffer
	if _, err := (&CostModel{About: "a \"quoted\"\nline"}).WriteTo(&empty); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(empty.String(), "Alloc") {
		t.Errorf("a model without calls has lines for some:\n%s", &empty)
	}
	if m, err := ReadCostModel(&empty); err != nil || m.About != "a \"quoted\"\nline" || m.Calls[CallAlloc] != nil {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := H200().WriteTo(failingWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer that fails: %v", err)
	}
	if _, err := ReadCostModel(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBadCostModelFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":              "EOF",
		"[]":            "array",
		`{"about": 1}`:  "about",
		`{"abuot": ""}`: `unknown field "abuot"`,
		`{"calls": {"Malloc":[], "Alloc":[], "Zap":[]}}`:                     `not known: "Malloc"`,
		`{"calls": {"Alloc": [{"bytes": 1, "ns": 1}]}}`:                      `unknown field "bytes"`,
		`{"calls": {"Alloc": [{"size": -1, "ns": 1}]}}`:                      "cost of Alloc: point 1 has the size -1",
		`{"calls": {"Free": [{"size": 1, "ns": -1}]}}`:                       "cost of Free: point 1 costs -1 ns",
		`{"calls": {"Alloc": [{"size": 1, "ns": 3600000000001}]}}`:           "an hour",
		`{"calls": {"Alloc": [{"size": 1, "ns": 1.5}]}}`:                     "1.5",
		`{"calls": {"Alloc": [{"size": 2, "ns": 1}, {"size": 2, "ns": 5}]}}`: "point 2 has the size 2, after 2",
		`{"calls": {"Alloc": [{"size": 2, "ns": 5}, {"size": 3, "ns": 4}]}}`: "the last point costs 4 ns, less than the 5",
		`{"map_next_ns": -1}`:              "map_next_ns is -1",
		`{"unmap_next_ns": 3600000000001}`: "unmap_next_ns is 3600000000001",
		`{} {}`:                            "more after the object",
		strings.Repeat(" ", 1<<20) + `{"about":""}`: "more than 1048576 bytes",
	} {
		m, err := ReadCostModel(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || m != nil {
			t.Errorf("%.60q: %v, %v, want an error with %q", text, m, err, want)
		}
	}
}

func TestOpenWithCostFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.json")
	if err := os.WriteFile(path, []byte(`{"calls": {"Alloc": [{"size": 0, "ns": 12345}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open("sim:cost=" + path + ",total=1MiB")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(1); err != nil || d.(*Device).Now() != 12345 {
		t.Errorf("Alloc took %v, %v", d.(*Device).Now(), err)
	}
	if err := os.WriteFile(path, []byte(`{"calls": {"Alloc": [{"size": 0, "ns": -1}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Open("sim:cost=" + path); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "-1 ns") {
		t.Errorf("a bad file: %v", err)
	}
}
