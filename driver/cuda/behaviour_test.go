//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// The assertions of PyTorch's tests, for this driver over a libcuda that counts calls: the numbers are those of
// docs/behaviours.md.

func TestBehaviour32MarksAndStamps(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	s, clock := r.stream(), r.d.Timing()
	if !reached(t, s, markOf(t, s)) || r.m.Calls("cuEventQuery") != 0 {
		t.Error("a mark of a stream without work is not reached at once")
	}
	stamp := func() driver.Stamp {
		t.Helper()
		st, err := clock.Stamp(s)
		r.ok(err)
		return st
	}
	p := r.alloc(1 << 20)
	from := stamp()
	syncOf(t, s)
	r.m.Hold(uint64(s.handle))
	r.ok(s.Fill(p, 1, 1<<20))
	behind, to := markOf(t, s), stamp()
	for range 3 {
		if reached(t, s, behind) || reached(t, s, to.Mark) {
			t.Error("a mark behind held work is reached")
		}
	}
	for what, pair := range map[string][2]driver.Stamp{"to": {from, to}, "from": {to, from}} {
		_, err := clock.Elapsed(pair[0], pair[1])
		r.wantErr("Elapsed "+what+" a stamp that is not reached", err, driver.ErrNotReady)
	}
	r.m.Release(uint64(s.handle))
	syncOf(t, s)
	if !reached(t, s, behind) || !reached(t, s, to.Mark) {
		t.Error("a mark is not reached after Sync")
	}
	if span, err := clock.Elapsed(from, to); err != nil || span <= 0 {
		t.Errorf("Elapsed between two stamps that are reached: %v, %v", span, err)
	}
	_, err := clock.Elapsed(from, driver.Stamp{Mark: behind})
	r.wantErr("Elapsed to a mark that is no stamp", err, driver.ErrInvalid)
}

// An event that is asked about during a capture would end it with an error, so the allocator must not ask.
func TestBehaviour33AllocDuringACaptureQueriesNoEvent(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	main, side, drawn := r.stream(), r.stream(), r.stream()
	graphs := r.d.Graphs()
	a, err := caching.New(r.d, caching.Default())
	r.ok(err)
	alloc := func() mem.Block {
		t.Helper()
		b, err := a.Alloc(main, 512)
		r.ok(err)
		return b
	}
	r.m.Hold(uint64(side.handle))
	before := alloc()
	r.ok(side.Fill(before.Ptr, 1, 512))
	a.Free(before, side)

	id := mem.PoolID{1, 0}
	a.BeginAllocateToPool(id, func(s driver.Stream) bool {
		yes, err := graphs.Capturing(s)
		return yes && err == nil
	})
	r.ok(graphs.Begin(main))
	logged := len(r.m.Log())
	captured := alloc()
	r.ok(main.Fill(captured.Ptr, 2, 512))
	fork := markOf(t, main)
	r.ok(drawn.WaitFor(main, fork))
	r.ok(drawn.Fill(captured.Ptr, 3, 512))
	a.Free(captured, drawn)
	for range 3 {
		if b := alloc(); b.Ptr == before.Ptr || b.Ptr == captured.Ptr {
			t.Error("a block that is in use was allocated")
		} else {
			a.Free(b)
		}
	}
	a.ProcessPending()
	join := markOf(t, drawn)
	r.ok(main.WaitFor(drawn, join))
	for _, c := range r.m.Log()[logged:] {
		if c.Symbol == "cuEventQuery" || strings.Contains(c.Symbol, "Synchronize") {
			t.Errorf("%s was called during the capture", c.Symbol)
		}
	}
	g, err := graphs.End(main)
	r.ok(err)
	a.EndAllocateToPool(id)

	a.ProcessPending()
	if n := a.Stats().Active.All.Current; n != 1 {
		t.Errorf("%d blocks are pending, want the one of the stream that is held", n)
	}
	r.m.Release(uint64(side.handle))
	syncOf(t, side)
	if b := alloc(); b.Ptr != before.Ptr {
		t.Error("the block from before the capture did not come back")
	} else {
		a.Free(b)
	}
	r.ok(g.Close())
	a.ReleasePool(id)
	r.ok(a.EmptyCache())
	if n := a.Stats().ReservedBytes.All.Current; n != 0 {
		t.Errorf("%d bytes are reserved in the end", n)
	}
	r.ok(a.Close())
}

// looking are the functions that only query and start nothing: none of them makes a context.
var looking = []string{
	"cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetPCIBusId",
	"cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2", "cuDriverGetVersion", "cuInit", "cuMemGetAllocationGranularity",
}

// symbolsOf are the functions that a machine was asked for, each once.
func symbolsOf(calls []fakecuda.Call) []string {
	set := map[string]bool{}
	for _, c := range calls {
		set[c.Symbol] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// A program that has this package in it and does not use it can still fork, and has no context on any device.
func TestBehaviour65LoadingStartsNothing(t *testing.T) {
	loads := 0
	load := onceLoaded(func() (*cu.Lib, dl.Tries, error) {
		loads++
		return nil, nil, driver.ErrAbsent
	})
	if loads != 0 {
		t.Error("the library is loaded before anybody asks")
	}
	for range 2 {
		_, _, _ = load()
	}
	if loads != 1 {
		t.Errorf("the library was loaded %d times", loads)
	}

	m := newMachine(t, fakecuda.Options{})
	c := driverOf(m) // as init does, and the symbols are looked up
	if !slices.Contains(driver.Drivers(), "cuda") {
		t.Error("the driver is not registered")
	}
	if log := m.Log(); len(log) != 0 {
		t.Errorf("before anybody asks, %q are called", symbolsOf(log))
	}
	if _, err := c.Devices(); err != nil {
		t.Fatal(err)
	}
	c.Diagnose()
	for _, symbol := range symbolsOf(m.Log()) {
		if !slices.Contains(looking, symbol) {
			t.Errorf("to list the devices %s is called", symbol)
		}
	}

	d := openOn(t, m, "")
	calls := len(m.Log())
	b, err := d.Pinned().AllocHost(100)
	testkit.Must(t, err)
	made := len(m.Log())
	if !d.Pinned().IsPinned(b) || d.Pinned().IsPinned(make([]byte, 8)) {
		t.Error("IsPinned does not tell page-locked memory from Go's")
	}
	if len(m.Log()) != made || made == calls {
		t.Error("IsPinned calls libcuda")
	}
	testkit.Must(t, d.Pinned().FreeHost(b))
}

// A process that was forked from one that used CUDA gets an error that says so: cuInit has its own result for this.
func TestBehaviour69AForkedChildIsToldSo(t *testing.T) {
	c := driverOf(newMachine(t, fakecuda.Options{Init: fakecuda.NotInitialized}))
	_, err := c.Open("")
	wantErr(t, "Open", err, driver.ErrAbsent, "CUDA_ERROR_NOT_INITIALIZED", "forked", "start another program")
	_, err = c.Devices()
	wantErr(t, "Devices", err, driver.ErrAbsent, "forked")
	found := c.Diagnose()
	if last := found[len(found)-1]; last.State != driver.Broken || !strings.Contains(last.Do, "forked") {
		t.Errorf("the last finding is %+v", last)
	}
}
