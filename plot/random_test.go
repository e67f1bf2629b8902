package plot

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// randomHistory is a recording whose events contradict each other, with times that run back.
func randomHistory(r *rand.Rand) (*holders.History, error) {
	at := func() driver.Pointer { return driver.Pointer(1+r.IntN(40)) << (8 + r.IntN(50)) }
	size := func() int64 { return int64(1+r.IntN(40)) << r.IntN(50) }
	t := &trace.Trace{Pools: make([]mem.PoolID, 1), Metadata: []string{""}, Streams: []uint64{0}}
	for i := range r.IntN(60) {
		t.Events = append(t.Events, trace.Event{
			Action: mem.Action(r.IntN(int(mem.NumActions))), Ptr: at(), Size: size(), TimeUS: int64(r.IntN(100)),
		})
		if i > 0 && r.IntN(10) == 0 {
			t.Gaps = append(t.Gaps, i)
		}
	}
	s := &snapshot.Snapshot{Traces: []*trace.Trace{t}}
	p := driver.Pointer(1 << 20)
	for range r.IntN(4) {
		n := size() >> 8 << 8
		s.Segments = append(s.Segments, snapshot.Segment{
			Ptr: p, TotalSize: n, Blocks: []snapshot.Block{{Ptr: p, Size: n, State: mem.BlockState(r.IntN(3))}},
		})
		p += driver.Pointer(n) << r.IntN(2)
	}
	return holders.New(s, 0)
}

// Pictures of recordings that contradict themselves are drawn, or refused with an error.
func TestContradictoryRecordings(t *testing.T) {
	drawn := 0
	for seed := range uint64(120) {
		h, err := randomHistory(rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			continue
		}
		for _, axis := range []Axis{AxisAuto, AxisTime, AxisEvents} {
			for _, draw := range []func(*holders.History, Options) (Panel, error){Memory, Addresses} {
				x, err := draw(h, Options{Axis: axis})
				if err != nil {
					continue
				}
				p := Draw(x)
				if out := svg(t, p); strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
					t.Errorf("seed %d: a length is no number", seed)
				}
				drawn++
				if n := len(p.shapes); n > 2000 {
					t.Errorf("seed %d: %d shapes", seed, n)
				}
				if seed%40 == 0 {
					if err := p.WritePNG(io.Discard, Light); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			}
		}
	}
	if drawn < 500 {
		t.Errorf("%d of 720 pictures were drawn", drawn)
	}
}
