//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

func TestTiming(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, clock := r.stream(), r.d.Timing()
	p := r.alloc(1 << 20)
	stamp := func() driver.Stamp {
		t.Helper()
		st, err := clock.Stamp(s)
		r.ok(err)
		return st
	}
	from := stamp()
	r.ok(s.Fill(p, 1, 1<<20))
	to := stamp()
	r.m.Hold(uint64(s.handle))
	_, err := clock.Elapsed(from, to)
	r.wantErr("Elapsed of what is not reached", err, driver.ErrNotReady)
	r.m.Release(uint64(s.handle))
	syncOf(t, s)
	if !reached(t, s, from.Mark) || !reached(t, s, to.Mark) {
		t.Error("a stamp's mark is not reached after Sync")
	}
	took, err := clock.Elapsed(from, to)
	r.ok(err)
	back, err := clock.Elapsed(to, from)
	r.ok(err)
	none, err := clock.Elapsed(to, to)
	r.ok(err)
	if took <= 0 || back != -took || none != 0 {
		t.Errorf("elapsed %v, back %v, from one to itself %v", took, back, none)
	}

	r.ok(clock.Discard(from))
	r.wantErr("Discard twice", clock.Discard(from), driver.ErrInvalid)
	_, err = clock.Elapsed(from, to)
	r.wantErr("Elapsed of a discarded stamp", err, driver.ErrInvalid)
	_, err = clock.Elapsed(to, driver.Stamp{ID: 1 << 40})
	r.wantErr("Elapsed of no stamp", err, driver.ErrInvalid)

	made := r.m.Calls("cuEventCreate")
	for range 100 {
		r.ok(s.Fill(p, 1, 16))
		r.ok(clock.Discard(stamp())) // not reached
		syncOf(t, s)
	}
	if n := r.m.Calls("cuEventCreate") - made; n > 4 {
		t.Errorf("%d events made for stamps one after the other", n)
	}
	r.ok(r.d.Close())
	_, err = clock.Stamp(s)
	r.wantErr("Stamp after Close", err, driver.ErrClosed)
	r.ok(clock.Discard(to))
}

// TestStampsMarkIsBehindIt: the mark's being reached says that the clock was read.
func TestStampsMarkIsBehindIt(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, clock := r.stream(), r.d.Timing()
	m := markOf(t, s)
	st, err := clock.Stamp(s)
	r.ok(err)
	if st.Mark.Tick <= m.Tick {
		t.Errorf("tick %d, of the mark before %d", st.Mark.Tick, m.Tick)
	}
	for !reached(t, s, st.Mark) {
	}
	_, err = clock.Elapsed(st, st)
	r.ok(err)
}

func TestFailedStampLeavesNothing(t *testing.T) {
	for _, symbol := range []string{"cuEventCreate", "cuEventRecord"} {
		for nth := 1; nth <= 2; nth++ { // the stamp's own event, and its mark's
			t.Run(symbol, func(t *testing.T) {
				r := newRig(t, fakecuda.Options{})
				s, clock := r.stream(), r.d.Timing()
				r.m.Fail(symbol, nth, fakecuda.OutOfMemory)
				_, err := clock.Stamp(s)
				r.wantErr("Stamp", err, driver.ErrNoMemory)
				_, err = clock.Stamp(s)
				r.ok(err)
			})
		}
	}
}

func TestStampInACaptureIsRefused(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s := r.stream()
	r.ok(r.d.Graphs().Begin(s))
	_, err := r.d.Timing().Stamp(s)
	r.wantErr("Stamp", err, driver.ErrCapturing)
	_, err = r.d.Graphs().End(s)
	r.ok(err)
}
