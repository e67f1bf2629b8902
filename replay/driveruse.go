package replay

import (
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

// Later are the figures of the ops from index len(Ops)/3 on, where memory that was cached at the beginning can be
// reused.
type Later struct {
	verify.DriverUse
	Recorded time.Duration // duration of these ops in the recording; 0 if unknown
}

// Share returns the driver's time as a fraction of the recorded time, or -1 if one of them is unknown.
func (l *Later) Share() float64 {
	if l.DriverTime < 0 || l.Recorded <= 0 {
		return -1
	}
	return float64(l.DriverTime) / float64(l.Recorded)
}

// thirdOf returns the index of the first op of Later.
func thirdOf(p *trace.Program) int { return len(p.Ops) / 3 }

// memoryCalls are the driver calls that a comparison counts.
var memoryCalls = []sim.Call{
	sim.CallAlloc, sim.CallFree, sim.CallReserve, sim.CallRelease, sim.CallCreate, sim.CallDrop, sim.CallMap,
	sim.CallUnmap,
}

// simulatedUse returns the use of a simulated device so far.
func simulatedUse(d *sim.Device) (u verify.DriverUse) {
	tallies := d.Calls()
	for _, c := range memoryCalls {
		u.DriverCalls += tallies[c].Count
		u.DriverTime += tallies[c].Time
	}
	u.Stalls = tallies[sim.CallSync].Stalls + tallies[sim.CallFree].Stalls
	return u
}

// A gauge reads the driver use of a run twice: before op after, and at the end. Waits for streams of deferred frees are
// stalls too.
type gauge struct {
	after int
	read  func() verify.DriverUse

	waits      atomic.Int64 // for streams of deferred frees
	early, all verify.DriverUse
	passed     bool // op after was reached
}

func (g *gauge) now() verify.DriverUse {
	u := g.read()
	u.Stalls += g.waits.Load()
	return u
}

// before is called before op, and returns the op before which it must be called again, at most limit.
func (g *gauge) before(op, limit int) int {
	if op == g.after {
		g.early, g.passed = g.now(), true
	}
	if op < g.after {
		return min(limit, g.after)
	}
	return limit
}

// later returns the use from op after on, or nil if the run ended before.
func (g *gauge) later() *Later {
	if !g.passed {
		return nil
	}
	return &Later{DriverUse: g.all.Since(g.early)}
}

// recorded returns the duration of the ops [from, to) in the recording, or 0 if it is unknown.
func (w *Work) recorded(from, to int) time.Duration {
	if w.snapshot == nil || w.Program.Entries == nil {
		return 0
	}
	recorded := w.snapshot.Traces[w.Device]
	var first, last int64
	for i := from; i < to; i++ {
		entry := w.Program.Entries[i]
		if entry == trace.NoEntry {
			continue
		}
		last = recorded.TimeUS(int(entry))
		if first == 0 {
			first = last
		}
	}
	if first <= 0 || last <= first {
		return 0
	}
	return time.Duration(last-first) * time.Microsecond
}

// entryOf returns the entry of the first op from index op on that has one, or the number of entries.
func (w *Work) entryOf(op int) int {
	for _, entry := range w.Program.Entries[op:] {
		if entry != trace.NoEntry {
			return int(entry)
		}
	}
	return w.snapshot.Traces[w.Device].Len()
}

// occupiable returns the streams as simulated streams, or nil if one is not simulated.
func occupiable(streams []driver.Stream) []*sim.Stream {
	all := make([]*sim.Stream, len(streams))
	for i, s := range streams {
		own, ok := s.(*sim.Stream)
		if !ok {
			return nil
		}
		all[i] = own
	}
	return all
}
