package view

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
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

var manyEvents = flag.Int("events", 0, "events of a further recording for BenchmarkFirstPicture")

// peakMemory returns the most memory that the process had since it was reset, in MiB.
func peakMemory(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(text, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

// resetPeakMemory forgets the memory that the process had.
func resetPeakMemory() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // not on all systems
}

// BenchmarkFirstPicture measures the parts of the time from a file to the first picture of it, and the memory of the
// process. Run it with -benchtime 1x.
func BenchmarkFirstPicture(b *testing.B) {
	sizes := []int{100_000, 3_000_000, 10_000_000}
	if *manyEvents > 0 {
		sizes = append(sizes, *manyEvents)
	}
	for _, events := range sizes {
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			path := generated(b, events)
			b.ResetTimer()
			for range b.N {
				resetPeakMemory()
				debug.SetGCPercent(10) // as the command does
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
				settling := time.Now()
				r.settle()
				b.ReportMetric(time.Since(settling).Seconds(), "s/settle")
				b.ReportMetric(peakMemory(b), "MiB/peak")
				runtime.KeepAlive(server)
			}
		})
	}
}
