package holders_test

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// Benchmark measures the parts of a report on a recording of a million events: the lifetimes of the blocks, the steps,
// and the holders at the peak.
func Benchmark(b *testing.B) {
	var file bytes.Buffer
	if _, err := snapshottest.Write(&file, snapshottest.Config{Seed: 1, Events: 1_000_000, Stacks: 3000}); err != nil {
		b.Fatal(err)
	}
	s, err := snapshot.ReadBytes(file.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	var h *holders.History
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if h, err = holders.New(s, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("steps", func(b *testing.B) {
		for b.Loop() {
			h.Steps()
		}
	})
	b.Run("peak", func(b *testing.B) {
		for b.Loop() {
			peak, err := h.Moment("peak")
			if err != nil {
				b.Fatal(err)
			}
			h.At(peak).By(holders.ByLine, holders.ByCategory)
		}
	})
}
