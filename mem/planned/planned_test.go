package planned_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func plan(t testing.TB, p *trace.Program, o planned.Options) *planned.Plan {
	t.Helper()
	made, err := planned.Make(context.Background(), p, o)
	testkit.Must(t, err)
	return made
}

// open makes an allocator of a plan over a caching one, and checks it when the test ends.
func open(t testing.TB, dev driver.Device, p *planned.Plan) *planned.Allocator {
	t.Helper()
	return memtest.New(t, construct, dev, p)
}

func construct(dev driver.Device, p *planned.Plan) (*planned.Allocator, error) {
	fallback, err := caching.New(dev, caching.Default())
	if err != nil {
		return nil, err
	}
	return planned.New(dev, p, planned.Settings{Fallback: fallback})
}

// work is the only work of a recorded trace.
func work(t testing.TB, name string) *trace.Program {
	t.Helper()
	s, err := snapshot.ReadFile("../../testdata/traces/" + name + ".pickle.zst")
	testkit.Must(t, err)
	works, err := replay.Works(s)
	testkit.Must(t, err)
	return works[0].Program
}

// A plan of a trace serves all requests from little more memory than the requested peak, and makes only one driver call
// for memory.
func TestRecordedTraces(t *testing.T) {
	for _, name := range []string{"gpt2", "resnet", "unet"} {
		t.Run(name, func(t *testing.T) {
			p := work(t, name)
			made := plan(t, p, planned.Options{Trace: name, Steps: 1})
			dev := drivertest.OpenSim(t, 0)
			a := open(t, dev, made)
			before := memoryCalls(dev)
			r, err := replay.Run(p, a, dev, replay.Options{Drain: true})
			testkit.Must(t, err)
			c := a.Counts()
			ratio := float64(r.ReservedPeak) / float64(r.RequestedPeak)
			t.Logf("%+v, %d bytes reserved, %.5f times what is requested", c, r.ReservedPeak, ratio)
			if !r.Completed || int(c.Served) != r.Allocs || c.Missed > 0 || ratio > 1.005 {
				t.Errorf("%+v, %+v: want all served from 1.005 times the requested peak", r, c)
			}
			if n := memoryCalls(dev) - before; n > 0 {
				t.Errorf("%d driver calls", n)
			}
			s := a.Stats()
			if s.RequestedBytes.All.Peak != r.RequestedPeak || s.AllocatedBytes.All.Peak != r.AllocatedPeak ||
				s.Allocation.All.Allocated != int64(r.Allocs) || s.Allocation.All.Current != 0 {
				t.Errorf("statistics %+v after %+v", s, r)
			}
			var largest int64
			for _, op := range p.Ops {
				largest = max(largest, op.Size)
			}
			if s.LargestAlloc < largest || s.LargestAlloc >= largest+512 {
				t.Errorf("the largest block has %d bytes, the largest request %d", s.LargestAlloc, largest)
			}
		})
	}
}

// Streams share a region that is as large as their bytes at their peak, or each has its own part. The fallback serves
// the requests of captured graphs.
func TestRecordedStreams(t *testing.T) {
	p := work(t, "streams")
	var sizes []int64
	for _, apart := range []bool{false, true} {
		made := plan(t, p, planned.Options{Apart: apart})
		dev := drivertest.OpenSim(t, 0)
		a := open(t, dev, made)
		r, err := replay.Run(p, replay.AtOnce(a), dev, replay.Options{Drain: true})
		testkit.Must(t, err)
		placed, all := made.Slots()
		parts, streams := len(made.Streams), 0
		for i := range made.Streams {
			streams += len(made.Streams[i].Numbers())
		}
		if c := a.Counts(); !r.Completed || c.Missed > int64(r.Allocs/20) || placed == all || streams != 4 ||
			parts != map[bool]int{false: 1, true: 4}[apart] {
			t.Errorf("%+v, %+v, %d slots of %d, %d streams in %d parts", r, c, placed, all, streams, parts)
		}
		if requested := made.Requested(); !apart && made.Size() > requested+requested/1000 {
			t.Errorf("a region of %d bytes for %d requested ones", made.Size(), requested)
		}
		sizes = append(sizes, made.Size())
	}
	if sizes[0] >= sizes[1] {
		t.Errorf("a shared region of %d bytes, parts of %d", sizes[0], sizes[1])
	}
}

// A trace that departs from its plan still completes, and most of it is served from the plan.
func TestDeparture(t *testing.T) {
	for _, name := range []string{"gpt2", "resnet"} {
		p := work(t, name)
		made := plan(t, p, planned.Options{})
		for _, rate := range []int{20, 500} {
			dev := drivertest.OpenSim(t, 0)
			a := open(t, dev, made)
			changed, n := depart(p, rand.New(rand.NewPCG(1, uint64(rate))), rate)
			r, err := replay.Run(changed, a, dev, replay.Options{Drain: true})
			testkit.Must(t, err)
			c := a.Counts()
			ratio := float64(r.ReservedPeak) / float64(r.RequestedPeak)
			t.Logf("%s, %d departures: %+v, %.4f times what is requested", name, n, c, ratio)
			if !r.Completed || c.Served+c.Missed != int64(r.Allocs) || c.Missed > int64(10*n) {
				t.Errorf("%s, %d departures: %+v, %+v", name, n, r, c)
			}
		}
	}
}

// depart changes a program: a random part of the requests is omitted, has another size, is repeated, or is freed much
// later.
func depart(p *trace.Program, rng *rand.Rand, rate int) (*trace.Program, int) {
	q := &trace.Program{Blocks: p.Blocks, Streams: p.Streams, Pools: p.Pools}
	gone := map[uint32]bool{}
	var late []trace.Op
	n := 0
	for _, op := range p.Ops {
		if op.Kind != trace.OpAlloc {
			switch {
			case gone[op.Block]:
				continue
			case op.Kind == trace.OpFree && rng.IntN(rate) == 0:
				n++
				late = append(late, op)
				continue
			}
			q.Ops = append(q.Ops, op)
			continue
		}
		if len(late) > 0 && rng.IntN(50) == 0 {
			q.Ops, late = append(q.Ops, late[0]), late[1:]
		}
		if rng.IntN(rate) > 0 {
			q.Ops = append(q.Ops, op)
			continue
		}
		n++
		switch rng.IntN(3) {
		case 0:
			gone[op.Block] = true
			continue
		case 1:
			op.Size += 1 + rng.Int64N(1<<16)
		case 2:
			again := op
			again.Block = uint32(q.Blocks)
			q.Blocks++
			q.Ops = append(q.Ops, again, trace.Op{Kind: trace.OpFree, Block: again.Block})
		}
		q.Ops = append(q.Ops, op)
	}
	q.Ops = append(q.Ops, late...)
	return q, n
}

func memoryCalls(dev *sim.Device) (n int64) {
	calls := dev.Calls()
	for _, c := range []sim.Call{
		sim.CallAlloc, sim.CallFree, sim.CallReserve, sim.CallRelease, sim.CallCreate, sim.CallDrop, sim.CallMap, sim.CallUnmap,
	} {
		n += calls[c].Count
	}
	return n
}

// The memory that an allocator uses for a plan is proportional to the number of slots, even if no block is ever freed.
func TestMemoryOfAPlan(t *testing.T) {
	const n = 100_000
	p := &planned.Plan{Streams: []planned.StreamPlan{{Loop: -1, Size: n * 512, Slots: make([]planned.Slot, n)}}}
	for i := range p.Streams[0].Slots {
		p.Streams[0].Slots[i] = planned.Slot{Size: 512, Offset: int64(i) * 512, End: planned.Forever}
	}
	dev := drivertest.OpenSim(t, 1<<30)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := open(t, dev, p)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if bytes := int64(after.HeapAlloc) - int64(before.HeapAlloc); bytes > 250*n {
		t.Errorf("%d bytes for %d slots", bytes, n)
	}
	runtime.KeepAlive(a)
}
