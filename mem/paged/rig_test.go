package paged_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

const granule = 64 << 10 // of the simulated devices of these tests: small, so that memory moves often

// A rig is a device and an allocator on it, for one goroutine. At the end of the test everything must have been freed,
// and the device must have nothing to report.
type rig struct {
	t   testing.TB
	sim *sim.Device
	dev driver.Device // sim, or what wraps it
	a   *paged.Allocator
	s   driver.Stream // the default one
}

// newRig opens a device with this many granules, and an allocator. wrap, if not nil, wraps the device.
func newRig(t testing.TB, granules int64, o sim.Options, cfg paged.Config, wrap func(driver.Device) driver.Device) *rig {
	t.Helper()
	o.Total, o.Granularity, o.CallSites = granules*granule, granule, true
	r := &rig{t: t, sim: sim.New(o)}
	if r.dev = r.sim; wrap != nil {
		r.dev = wrap(r.sim)
	}
	r.s = r.dev.DefaultStream()
	var err error
	r.a, err = paged.New(r.dev, cfg)
	r.must(err)
	t.Cleanup(r.finish)
	return r
}

// simple returns a rig whose device does work at once.
func simple(t testing.TB, granules int64, cfg paged.Config) *rig {
	t.Helper()
	return newRig(t, granules, sim.Options{}, cfg, nil)
}

func (r *rig) must(err error) {
	if err != nil {
		r.t.Helper()
		r.t.Fatal(err)
	}
}

func (r *rig) check() {
	r.t.Helper()
	r.must(r.a.Check())
}

// finish frees the live blocks, closes the allocator, and checks for leaks.
func (r *rig) finish() {
	r.t.Helper()
	if err := r.a.Check(); err != nil {
		r.t.Error(err)
	}
	for _, err := range r.sim.Reports() {
		r.t.Errorf("the device reports: %v", err)
	}
	if r.t.Failed() {
		return
	}
	if err := r.a.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	if l := r.sim.Leaks(); len(l.Reservations) > 0 || len(l.Pages) > 0 {
		r.t.Errorf("after Close the device has %v", l)
	}
}

func (r *rig) alloc(s driver.Stream, size int64) mem.Block {
	r.t.Helper()
	b, err := r.a.Alloc(s, size)
	r.must(err)
	return b
}

// granules allocates n granules on the default stream.
func (r *rig) granules(n int64) mem.Block {
	r.t.Helper()
	return r.alloc(r.s, n*granule)
}

func (r *rig) free(blocks ...mem.Block) {
	for _, b := range blocks {
		r.a.Free(b)
	}
}

func (r *rig) stream() driver.Stream {
	r.t.Helper()
	s, err := r.dev.NewStream(driver.StreamOptions{})
	r.must(err)
	return s
}

// fill queues work on a block.
func (r *rig) fill(s driver.Stream, b mem.Block, pattern byte) {
	r.t.Helper()
	r.must(s.Fill(b.Ptr, pattern, b.Size))
}

// busy queues n pieces of work on a block.
func (r *rig) busy(s driver.Stream, b mem.Block, n int) {
	r.t.Helper()
	for range n {
		r.fill(s, b, 77)
	}
}

// holds checks that a pattern fills a block.
func (r *rig) holds(s driver.Stream, b mem.Block, pattern byte) {
	r.t.Helper()
	got := make([]byte, b.Size)
	r.must(s.CopyOut(got, b.Ptr))
	if n := bytes.Count(got, []byte{pattern}); n != len(got) {
		r.t.Fatalf("the block %#x: %d of %d bytes are not %#x", uint64(b.Ptr), len(got)-n, len(got), pattern)
	}
}

// calls counts the driver calls that do makes, of some kinds or of all.
func (r *rig) calls(do func(), kinds ...sim.Call) (n int64) {
	before := r.sim.Calls()
	do()
	after := r.sim.Calls()
	if len(kinds) == 0 {
		return after.Total().Count - before.Total().Count
	}
	for _, k := range kinds {
		n += after[k].Count - before[k].Count
	}
	return n
}

// noMemory returns the out-of-memory error in err.
func (r *rig) noMemory(err error) *mem.OutOfMemory {
	r.t.Helper()
	var e *mem.OutOfMemory
	if !errors.As(err, &e) || !errors.Is(err, mem.ErrNoMemory) {
		r.t.Fatalf("the error is %v: want an out-of-memory error", err)
	}
	return e
}
