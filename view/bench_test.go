package view

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// generated writes a recording of a length.
func generated(tb testing.TB, events int) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "generated.pickle")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := snapshottest.Write(w, snapshottest.Config{Events: events, Stacks: 2000}); err != nil {
		tb.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkFirstPicture measures the parts of the time from a file to the first picture of it. Run it with -benchtime
// 1x.
func BenchmarkFirstPicture(b *testing.B) {
	for _, events := range []int{100_000, 3_000_000, 10_000_000} {
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			path := generated(b, events)
			b.ResetTimer()
			for range b.N {
				begun := time.Now()
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				s, err := snapshot.ReadCompact(f, snapshot.Limits{})
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
				read := time.Now()
				server := New(Options{})
				all, err := newRecordings(s)
				if err != nil {
					b.Fatal(err)
				}
				r := all[0]
				infoOf(r)
				set := time.Now()
				w := window{from: -1, to: float64(events), width: 1600, height: 800, max: maxRects}
				r.bandsPicture(&w).encode()
				drawn := time.Now()
				w = window{from: -1, to: float64(events), width: 1600, height: 800, max: maxRects}
				r.addressesPicture(&w).encode()
				b.ReportMetric(read.Sub(begun).Seconds(), "s/read")
				b.ReportMetric(set.Sub(read).Seconds(), "s/prepare")
				b.ReportMetric(drawn.Sub(set).Seconds(), "s/memory")
				addresses := time.Now()
				b.ReportMetric(addresses.Sub(drawn).Seconds(), "s/addresses")
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB/live")
				b.ReportMetric(float64(m.HeapSys)/(1<<20), "MiB/sys")
				settling := time.Now()
				r.settle()
				b.ReportMetric(time.Since(settling).Seconds(), "s/settle")
				runtime.KeepAlive(server)
			}
		})
	}
}
