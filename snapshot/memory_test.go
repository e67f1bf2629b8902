package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// zipped is head, n times body, and tail, as a gzip file.
func zipped(t testing.TB, head, body string, n int, tail string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	for _, part := range []string{head, strings.Repeat(body, n), tail} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestMemoryIsInProportion reads small files that become large ones of cheap opcodes: what is allocated before they
// are refused is in proportion to the file as given.
func TestMemoryIsInProportion(t *testing.T) {
	entry := "}(h\x00h\x01h\x02K\x01h\x03K\x01h\x04K\x01u"
	keys := "(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04size\x94\x8c\x04addr\x94\x8c\x06stream\x941"
	for _, c := range []struct {
		name string
		file []byte
		code error
		text string
	}{
		{
			"open lists", zipped(t, "\x80\x04", "]", 8_000_000, "."), pickle.ErrLimit,
			"offset 1048578: EMPTY_LIST finds 1048576 empty dicts, lists and tuples on the stack",
		},
		{"a list of lists", zipped(t, "\x80\x04]", "("+strings.Repeat("]", 1000)+"e", 8_000, "."), snapshot.ErrMemory, ""},
		{"a list of filled lists", zipped(t, "\x80\x04](", "]Na", 4_000_000, "e."), snapshot.ErrMemory, ""},
		{"popped lists", zipped(t, "\x80\x04", "]0", 8_000_000, "N."), snapshot.ErrMemory, ""},
		{"tuples in tuples", zipped(t, "\x80\x04", "N\x850", 4_000_000, "N."), snapshot.ErrMemory, ""},
		{"None", zipped(t, "\x80\x04(", "N", 32_000_000, "t."), snapshot.ErrMemory, ""},
		{"memo", zipped(t, "\x80\x04N", "\x94", 16_000_000, "."), snapshot.ErrMemory, ""},
		{"trace entries", zipped(t, "\x80\x04"+keys, entry+"0", 1_000_000, "N."), snapshot.ErrMemory, ""},
	} {
		const free, each = 24 << 20, 512
		limits := snapshot.Limits{MemoryFree: free, MemoryPerByte: each}
		if c.text == "" {
			c.text = ": over Limits.MemoryPerByte"
		}
		before := testkit.Allocated()
		_, err := snapshot.ReadLimited(bytes.NewReader(c.file), limits)
		took := testkit.Allocated() - before
		if !errors.Is(err, c.code) || !contains(err, c.text) || !contains(err, "offset ") {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
		bound := uint64(4<<20 + 3*(free+each*len(c.file)))
		if took > bound {
			t.Errorf("%s: %d bytes allocated for a file of %d, want at most %d", c.name, took, len(c.file), bound)
		}
		if len(c.file) > 60_000 {
			t.Errorf("%s: the file has %d bytes: too large to show anything", c.name, len(c.file))
		}
	}
}

// TestMemoryLimitsCanBeRaised reads the same file with more and more memory for each of its bytes.
func TestMemoryLimitsCanBeRaised(t *testing.T) {
	file := zipped(t, "\x80\x04", "]0", 1_000_000, "N.")
	var last int64
	for _, each := range []int64{1, 100, 1000} {
		_, err := snapshot.ReadLimited(bytes.NewReader(file), snapshot.Limits{MemoryFree: 1 << 16, MemoryPerByte: each})
		e, ok := errors.AsType[*pickle.Error](err)
		if !ok || !errors.Is(err, snapshot.ErrMemory) {
			t.Fatalf("%d bytes for each: %v", each, err)
		}
		if e.Offset <= last {
			t.Errorf("%d bytes for each: refused at offset %d, not beyond %d", each, e.Offset, last)
		}
		last = e.Offset
	}
	_, err := snapshot.ReadLimited(bytes.NewReader(file), snapshot.Limits{MemoryPerByte: 1 << 62})
	if err == nil || !contains(err, "no memory snapshot") {
		t.Errorf("with all memory: %v", err)
	}
}

// TestMemoryOfTraces reads the recorded traces and generated files, plain and compressed, with a tenth of the memory
// that the defaults give for each byte, and hardly any for nothing.
func TestMemoryOfTraces(t *testing.T) {
	files := map[string][]byte{}
	paths, err := filepath.Glob("../testdata/traces/*.zst")
	if err != nil || len(paths) < 13 {
		t.Fatalf("%d traces: %v", len(paths), err)
	}
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for protocol := 2; protocol <= 5; protocol++ {
		for _, stacks := range []int{0, 50} {
			plain, _ := generated(t, snapshottest.Config{Seed: 1, Events: 30_000, Protocol: protocol, Stacks: stacks})
			name := fmt.Sprintf("protocol %d, %d stacks", protocol, stacks)
			files[name] = plain
			files[name+", gzip"] = zipped(t, string(plain), "", 0, "")
		}
	}
	for name, b := range files {
		limits := snapshot.Limits{MemoryFree: 2 << 20, MemoryPerByte: 100}
		if _, err := snapshot.ReadLimited(bytes.NewReader(b), limits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
