package snapshot_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// A tally counts bytes.
type tally int64

func (n *tally) Write(b []byte) (int, error) {
	*n += tally(len(b))
	return len(b), nil
}

var formats = []struct {
	name  string
	write func(*snapshot.Snapshot, io.Writer) error
}{
	{"pickle", (*snapshot.Snapshot).WritePickle},
	{"json", (*snapshot.Snapshot).WriteJSON},
	{"perfetto", func(s *snapshot.Snapshot, w io.Writer) error { return s.WriteTimeline(w, snapshot.TimelineOptions{}) }},
}

// BenchmarkWrite writes a generated snapshot of three million events in each format. Besides the speed, in bytes of what
// is written, it reports what was allocated on the way.
func BenchmarkWrite(b *testing.B) {
	for _, stacks := range []int{0, 3000} {
		file, _ := generated(b, snapshottest.Config{Seed: 1, Events: 3_000_000, Stacks: stacks})
		s, err := snapshot.ReadBytes(file)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range formats {
			b.Run(fmt.Sprintf("%s/stacks=%d", f.name, stacks), func(b *testing.B) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				var n tally
				for b.Loop() {
					n = 0
					if err := f.write(s, &n); err != nil {
						b.Fatal(err)
					}
				}
				runtime.ReadMemStats(&after)
				b.SetBytes(int64(n))
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "alloc-B")
			})
		}
	}
}
