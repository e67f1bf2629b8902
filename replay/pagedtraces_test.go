package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// callsUpTo returns the calls that the device has seen when a program has run up to an op.
func callsUpTo(t *testing.T, p *trace.Program, limit int64, op int) (sim.Calls, int64) {
	t.Helper()
	dev := sim.New(sim.Options{Unchecked: true})
	a, err := paged.New(dev, paged.Config{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	part := *p
	part.Ops = p.Ops[:op]
	res, err := replay.Run(&part, replay.AtOnce(a), dev, replay.Options{})
	if err != nil || !res.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	calls := dev.Calls()
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	return calls, res.ReservedPeak
}

// remapping is the modelled time of the driver between two readings: all that pages cost but to make them and to map them for
// the first time; and with what that costs, all.
func remapping(from, to sim.Calls) (remapped, all time.Duration) {
	for _, c := range []sim.Call{sim.CallCreate, sim.CallMap, sim.CallUnmap, sim.CallDrop} {
		all += to[c].Time - from[c].Time
	}
	created := to[sim.CallCreate].Count - from[sim.CallCreate].Count
	first := time.Duration(created) * sim.H200().MapNext
	return all - (to[sim.CallCreate].Time - from[sim.CallCreate].Time) - first, all
}

// What the recorded traces need on paged memory: the smallest limit over what is requested at the peak; the driver's time under
// 1.004 of that, once the first third of the work has passed, and without a limit.
func TestRecordedTracesOnPagedMemory(t *testing.T) {
	var sum float64
	n := 0
	for _, name := range recordedNames(t) {
		s, err := snapshot.ReadFile(traces + name + ".pickle.zst")
		if err != nil {
			t.Fatal(err)
		}
		events := s.Traces[0].Events
		span := time.Duration(events[len(events)-1].TimeUS-events[0].TimeUS) * time.Microsecond
		w := works(t, name)[0]
		most, small := 1.004, strings.HasPrefix(name, "streams")
		if small {
			most = 1.025 // one pool is a graph's, and shares no page
		}
		c, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"paged"}, Capacity: 140 << 30, Smallest: true})
		if err != nil {
			t.Fatal(err)
		}
		row := &c.Rows[0]
		peak := c.Bound.RequestedPeak
		over := float64(row.SmallestLimit) / float64(peak)
		t.Logf("%s: smallest %.4f, reserved %.4f; later: %d calls, %v, %d stalls", name, over,
			float64(row.ReservedPeak)/float64(peak), row.Later.DriverCalls, row.Later.DriverTime, row.Later.Stalls)
		if over > most || float64(row.ReservedPeak) > max(most, 1.02)*float64(peak) {
			t.Errorf("%s: smallest limit %.4f times what is requested, reserved %.4f times", name, over, float64(row.ReservedPeak)/float64(peak))
		}
		if !small {
			sum, n = sum+over, n+1
		}
		if later := row.Later.DriverTime; later > span/200 {
			t.Errorf("%s: without a limit the driver takes %v after the first third of a run of %v", name, later, span)
		}
		if small {
			continue
		}
		third, ops := len(w.Program.Ops)/3, len(w.Program.Ops)
		limit := int64(1.004 * float64(peak))
		before, _ := callsUpTo(t, w.Program, limit, third)
		after, _ := callsUpTo(t, w.Program, limit, ops)
		remapped, all := remapping(before, after)
		t.Logf("%s: within 1.004: later %v of remapping, %v in all", name, remapped, all)
		if remapped > span/100 {
			t.Errorf("%s: remapping takes %v after the first third of a run of %v", name, remapped, span)
		}
		if strings.HasPrefix(name, "resnet") {
			before, _ := callsUpTo(t, w.Program, 0, 2*third)
			after, _ := callsUpTo(t, w.Program, 0, ops)
			if _, all := remapping(before, after); all != 0 {
				t.Errorf("%s: the driver takes %v in the last third, whose shapes repeat", name, all)
			}
		}
	}
	if average := sum / float64(n); average > 1.0025 {
		t.Errorf("the smallest limits are %.4f times what is requested, on average", average)
	} else {
		t.Logf("average %.5f", average)
	}
}

// Under a limit a request in 500 waits for work of the device, when all work takes as long as it can.
func TestStallsOfPagedMemory(t *testing.T) {
	for _, name := range []string{"resnet", "unet", "gpt2"} {
		w := works(t, name)[0]
		peak := w.Program.Stats().PeakBytes
		c, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"paged"}, Limit: int64(1.004 * float64(peak))})
		if err != nil {
			t.Fatal(err)
		}
		row := &c.Rows[0]
		if later := row.Later; !row.Completed() || later.Stalls > int64(row.Allocs)*2/3/500 {
			t.Errorf("%s: %d stalls after the first third of %d requests", name, later.Stalls, row.Allocs)
		}
	}
}

// Twenty gibibytes come up in a tenth of a second of the driver's time.
func TestBringingUpPagedMemory(t *testing.T) {
	for _, block := range []int64{20 << 30, 1 << 30, 64 << 20, 6 << 20, 1 << 20} {
		dev := sim.New(sim.Options{Unchecked: true})
		a, err := paged.New(dev, paged.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < 20<<30; at += block {
			if _, err := a.Alloc(dev.DefaultStream(), block); err != nil {
				t.Fatal(err)
			}
		}
		if _, all := remapping(sim.Calls{}, dev.Calls()); all > 100*time.Millisecond {
			t.Errorf("blocks of %d MiB: 20 GiB take the driver %v", block>>20, all)
		} else {
			t.Logf("blocks of %d MiB: %v", block>>20, all)
		}
	}
}
