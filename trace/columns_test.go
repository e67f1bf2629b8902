package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// eventsLike returns events: usual ones, and with odd ones among them.
func eventsLike(n int, odd bool, seed uint64) []Event {
	random := rand.New(rand.NewPCG(seed, 1))
	events := make([]Event, n)
	at := int64(1790000000000000)
	for i := range events {
		at += random.Int64N(40)
		events[i] = Event{
			TimeUS: at, Ptr: driver.Pointer(0x7f0000000000 + 512*random.Int64N(1<<24)), Size: random.Int64N(50) * 4096,
			Stack: StackID(random.IntN(2000)), Stream: random.Uint32N(2), Pool: uint16(random.IntN(2)),
			Metadata: uint32(random.IntN(3)), Action: mem.Action(random.IntN(int(mem.NumActions))),
		}
		if odd && random.IntN(1000) == 0 {
			events[i] = Event{
				TimeUS: int64(random.Uint64()), Ptr: driver.Pointer(random.Uint64()), Size: int64(random.Uint64()),
				Stack: StackID(random.Uint32()), Stream: random.Uint32(), Metadata: random.Uint32(),
				Pool: uint16(random.Uint32()), Action: mem.Action(random.IntN(256)),
			}
		}
	}
	return events
}

func columnsOf(events []Event) *Columns {
	var w ColumnsWriter
	for i := range events {
		w.Add(&events[i])
	}
	return w.Columns()
}

func TestColumnsHaveTheEvents(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, chunkEvents - 1, chunkEvents, chunkEvents + 1, 50_000} {
		for _, odd := range []bool{false, true} {
			events := eventsLike(n, odd, uint64(n))
			c := columnsOf(events)
			if c.Len() != n || !slices.Equal(c.Events(), events) {
				t.Fatalf("%d events, odd %v: the columns have other events", n, odd)
			}
			r := (&Trace{Columns: c}).Reader()
			plain := (&Trace{Events: events}).Reader()
			for i := range events {
				e := events[i]
				if *r.At(i) != e || c.At(i) != e || c.TimeUS(i) != e.TimeUS || c.Size(i) != e.Size || c.Ptr(i) != e.Ptr {
					t.Fatalf("%d events: event %d is %v, want %v", n, i, c.At(i), e)
				}
				a, next := r.Two(i)
				b, later := plain.Two(i)
				if *a != *b || (next == nil) != (later == nil) || next != nil && *next != *later {
					t.Fatalf("%d events: event %d is followed by %v, want %v", n, i, next, later)
				}
			}
			for i := n - 1; i >= 0; i-- {
				if *r.At(i) != events[i] {
					t.Fatalf("%d events, backwards: event %d", n, i)
				}
			}
			if n > 100 && !slices.Equal(c.Slice(50, n-7).Events(), events[50:n-7]) {
				t.Fatalf("%d events: a slice has other events", n)
			}
		}
	}
}

func TestColumnsReplaceNumbers(t *testing.T) {
	events := []Event{{Stack: 0, Stream: 1, Metadata: 2, Pool: 1}, {Stack: 2, Stream: 0, Metadata: 0, Pool: 0}}
	c := columnsOf(events).Renumbered(Numbers{
		Stacks: []StackID{0, 9, 5}, Streams: []uint32{7, 3}, Metadata: []uint32{4, 0, math.MaxUint32}, Pools: []uint32{6, 8},
	})
	want := []Event{{Stack: 0, Stream: 3, Metadata: math.MaxUint32, Pool: 8}, {Stack: 5, Stream: 7, Metadata: 4, Pool: 6}}
	if !slices.Equal(c.Events(), want) || c.At(1) != want[1] {
		t.Errorf("%v, want %v", c.Events(), want)
	}
}

// A recording takes at most 10 bytes for each event.
func TestColumnsAreCompact(t *testing.T) {
	const n = 200_000
	c := columnsOf(eventsLike(n, false, 1))
	bytes := 0
	for _, k := range c.chunks {
		bytes += len(k.bytes) + int(numFields)*40 + 32
	}
	if bytes > 10*n {
		t.Errorf("%.1f bytes for each event, want at most 10", float64(bytes)/n)
	}
}

func BenchmarkColumns(b *testing.B) {
	const n = 1_000_000
	events := eventsLike(n, false, 1)
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			columnsOf(events)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
	})
	r := (&Trace{Columns: columnsOf(events)}).Reader()
	b.Run("read", func(b *testing.B) {
		sum := int64(0)
		for b.Loop() {
			for i := range n {
				sum += r.At(i).Size
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/event")
	})
}
