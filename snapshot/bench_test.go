package snapshot_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// BenchmarkRead reads generated files of three million events. Besides the speed it reports the live heap of the
// Snapshot for each event, everything included, and the highest heap that a garbage collection met on the way.
func BenchmarkRead(b *testing.B) {
	for _, c := range []snapshottest.Config{
		{Protocol: 2},
		{Protocol: 4},
		{Protocol: 2, Stacks: 3000, Depth: 30},
		{Protocol: 4, Stacks: 3000, Depth: 30},
	} {
		c.Seed, c.Events = 1, 3_000_000
		b.Run(fmt.Sprintf("protocol=%d/stacks=%d", c.Protocol, c.Stacks), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "generated.pickle")
			sum := generate(b, path, c)
			b.SetBytes(sum.Bytes)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var s *snapshot.Snapshot
			for b.Loop() {
				s = nil
				var err error
				if s, err = snapshot.ReadFile(path); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(s.Traces[0].Events)), "live-B/event")
			b.ReportMetric(float64(after.HeapSys-after.HeapReleased)/float64(len(s.Traces[0].Events)), "heap-sys-B/event")
			runtime.KeepAlive(s)
		})
	}
}

func generate(t testing.TB, path string, c snapshottest.Config) snapshottest.Summary {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	sum, err := snapshottest.Write(w, c)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
