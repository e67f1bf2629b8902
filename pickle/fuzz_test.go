package pickle

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// fuzzLimits keep the cost of one input so low that a fuzzer notices an input that exceeds it.
var fuzzLimits = Limits{Bytes: 1 << 20, Memory: 16 << 20, Nodes: 1 << 16, Memo: 1 << 20, Depth: 100, String: 1 << 16}

// FuzzRead reads arbitrary input. It must not panic, and must report a bad input by an *Error with an offset inside the
// input; the value read must be walkable, node by node and as Go values, and must not depend on how the bytes arrive.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pickle")
	if err != nil || len(files) < 10 {
		f.Fatalf("%d golden files, %v: want 10 or more", len(files), err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4096)])
	}
	for _, h := range hostileInputs() {
		if len(h.data) < 4096 {
			f.Add([]byte(h.data))
		}
	}
	f.Add([]byte(laughs(20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d *Document
		var err error
		testkit.AllocatesAtMost(t, len(b), 100, 64<<20, func() { d, err = Read(bytes.NewReader(b), Options{Limits: fuzzLimits}) })
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > int64(len(b)) || e.Reason == "" || e.Code == nil {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if d.Size() > int64(len(b)) {
			t.Fatalf("Size() = %d of %d bytes", d.Size(), len(b))
		}
		seen := make([]bool, d.Nodes())
		walk := []Value{d.Root()}
		for len(walk) > 0 {
			v := walk[len(walk)-1]
			walk = walk[:len(walk)-1]
			if v.Kind() == Invalid {
				t.Fatal("an invalid value")
			}
			if v.IsContainer() && !seen[v.Node()] {
				seen[v.Node()] = true
				walk = append(append(walk, d.Items(v)...), d.Pairs(v)...)
			}
		}
		d.Plain(d.Root())
		handles := uint32(0)
		fold := func(_ *Document, pairs []Value) (uint32, bool) {
			if len(pairs) == 0 || len(pairs)%2 != 0 {
				t.Fatalf("Fold of %d values", len(pairs))
			}
			handles++
			return handles, handles%2 == 0
		}
		folded, err := Read(bytes.NewReader(b), Options{Limits: fuzzLimits, Fold: fold})
		if err != nil && !errors.Is(err, ErrRefused) || err == nil && folded.Size() != d.Size() {
			t.Fatalf("with Fold: %v", err)
		}
	})
}
