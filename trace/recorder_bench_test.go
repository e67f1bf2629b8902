package trace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/trace"
)

// warmPairs are pairs of an allocation and a free, three events each.
func warmPairs(b *testing.B, a mem.Allocator, s driver.Stream) {
	b.Helper()
	pair(b, a, s, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		block, err := a.Alloc(s, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		a.Free(block)
	}
}

// BenchmarkPair measures the cost of recording for a warm pair: "alone" and "stopped" differ by the cost of a recorder
// that is off, "observed" and "recording" by the cost of three events in the recorder.
func BenchmarkPair(b *testing.B) {
	const entries = 1 << 16
	clock := func() int64 { return time.Now().UnixMicro() }
	stacks := func(c trace.Context) *trace.RecorderOptions {
		return &trace.RecorderOptions{Max: entries, Context: c, Depth: 16}
	}
	for _, x := range allocators {
		if x.name != "caching" && x.name != "arena" {
			continue
		}
		for _, how := range []struct {
			name    string
			opts    *trace.RecorderOptions
			stopped bool
		}{
			{name: "alone"},
			{name: "stopped", opts: stacks(trace.ContextNever), stopped: true},
			{name: "recording", opts: stacks(trace.ContextNever)},
			{name: "recording/clock", opts: &trace.RecorderOptions{Max: entries, Clock: clock}},
			{name: "recording/stacks=state", opts: stacks(trace.ContextState)},
			{name: "recording/stacks=alloc", opts: stacks(trace.ContextAlloc)},
			{name: "recording/stacks=all", opts: stacks(trace.ContextAll)},
		} {
			b.Run(x.name+"/"+how.name, func(b *testing.B) {
				dev := sim.New(sim.Options{Total: 1 << 50, Unchecked: true})
				a, err := x.open(dev)
				if err != nil {
					b.Fatal(err)
				}
				if how.opts != nil {
					r := trace.NewRecorder(*how.opts)
					a = r.Attach(a)
					if how.stopped {
						r.Stop()
					}
				}
				warmPairs(b, a, dev.DefaultStream())
			})
		}
	}
	b.Run("caching/observed", func(b *testing.B) { // by an empty observer: the cost in the allocator itself
		dev := sim.New(sim.Options{Total: 1 << 50, Unchecked: true})
		a, err := caching.New(dev, caching.Default())
		if err != nil {
			b.Fatal(err)
		}
		a.Observe(func(mem.Event) {})
		warmPairs(b, a, dev.DefaultStream())
	})
}

// An event, in the recorder alone: of streams by turns.
func BenchmarkObserve(b *testing.B) {
	for _, streams := range []driver.StreamID{1, 2, 8} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			r := trace.NewRecorder(trace.RecorderOptions{Max: 1 << 16})
			b.ReportAllocs()
			e := mem.Event{Ptr: 1 << 30, Size: 512}
			for b.Loop() {
				r.Observe(e)
				if e.Stream++; e.Stream == streams {
					e.Stream = 0
				}
			}
		})
	}
}
