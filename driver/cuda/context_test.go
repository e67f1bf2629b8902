//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"golang.org/x/sys/unix"
)

// The contexts of a thread that calls this driver, and its mode of captures, are its owner's: each call leaves them as
// they were.

// contextCall are the calls around every batch of others.
var contextCall = map[string]bool{"cuCtxPushCurrent_v2": true, "cuCtxPopCurrent_v2": true}

// A tour calls everything once, goes on after errors, and looks after each call.
type tour struct {
	lib     *cu.Lib
	long    int    // bytes of a copy in pieces; 0: none
	second  string // the other device
	mode    cu.CaptureMode
	looked  func(after string)
	failed  []error
	dev     driver.Device
	other   driver.Device
	s, side driver.Stream
	p       driver.Pointer
}

// step makes one call, which no earlier one must have failed for if it has needs.
func (o *tour) step(name string, call func() error, needs ...bool) bool {
	for _, ok := range needs {
		if !ok {
			return false
		}
	}
	err := call()
	if err != nil {
		o.failed = append(o.failed, fmt.Errorf("%s: %w", name, err))
	}
	o.looked(name)
	return err == nil
}

// made is step for a call that returns something.
func made[T any](o *tour, name string, call func() (T, error), needs ...bool) (v T, ok bool) {
	ok = o.step(name, func() (err error) { v, err = call(); return err }, needs...)
	return v, ok
}

// take makes the tour, on device 0 and the second.
func (o *tour) take(c *cudaDriver) {
	o.step("Diagnose", func() error { c.Diagnose(); return nil })
	made(o, "Devices", c.Devices)
	var ok bool
	if o.other, ok = made(o, "Open", func() (driver.Device, error) { return c.Open(o.second) }); ok {
		defer o.step("Close", o.other.Close)
	}
	if o.dev, ok = made(o, "Open", func() (driver.Device, error) { return c.Open("0") }); !ok {
		return
	}
	o.dev.(*device).staged().workers = 4
	defer o.step("Close again", o.dev.Close)
	defer o.step("Close", o.dev.Close)
	o.step("Available", func() error { _, _, err := o.dev.Available(); return err })
	if o.s, ok = made(o, "NewStream", o.newStream); !ok {
		return
	}
	if o.side, ok = made(o, "NewStream", o.newStream); !ok {
		return
	}
	o.p, ok = made(o, "Alloc", func() (driver.Pointer, error) { return o.dev.Alloc(max(8192, int64(o.long))) })
	if !ok {
		return
	}
	o.streams()
	o.kernels()
	o.graphs()
	o.timing()
	o.pinned()
	o.virtual()
	o.peers()
	o.sharing()
	o.step("Close of a stream", o.side.Close)
	o.step("Free", func() error { return o.dev.Free(o.p) })
	if err := o.dev.Free(o.p); !errors.Is(err, driver.ErrInvalid) {
		o.failed = append(o.failed, fmt.Errorf("Free of nothing: %w", err))
	}
	o.looked("Free of nothing")
}

func (o *tour) newStream() (driver.Stream, error) { return o.dev.NewStream(driver.StreamOptions{}) }

func (o *tour) streams() {
	s, p := o.s, o.p
	o.step("Fill", func() error { return s.Fill(p, 1, 4096) })
	o.step("Copy", func() error { return s.Copy(p+4096, p, 4096) })
	for _, n := range []int{100, o.long} {
		o.step("CopyIn", func() error { return s.CopyIn(p, make([]byte, n)) })
		o.step("CopyOut", func() error { return s.CopyOut(make([]byte, n), p) })
	}
	m, ok := made(o, "Mark", s.Mark)
	o.step("Reached", func() error { _, err := s.Reached(m); return err }, ok)
	o.step("WaitFor", func() error { return o.side.WaitFor(s, m) }, ok)
	o.step("Sync", func() error { return s.Sync(context.Background()) })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o.step("Fill", func() error { return s.Fill(p, 1, 4096) })
	o.step("Sync with an end", func() error { return s.Sync(ctx) })
	foreign := driver.StreamOptions{Foreign: uintptr(s.(*stream).handle)}
	if f, ok := made(o, "NewStream", func() (driver.Stream, error) { return o.dev.NewStream(foreign) }); ok {
		made(o, "Mark", f.Mark)
		o.step("Close of a foreign stream", f.Close)
	}
}

func (o *tour) kernels() {
	k := o.dev.Kernels()
	o.step("Launch of a call", func() error {
		return k.Launch(o.s, driver.Kernel{Call: func(uintptr) error {
			if c, r := o.lib.CtxGetCurrent(); r == cu.Success && c != o.dev.(*device).ctx {
				return fmt.Errorf("the context of another device is current in a call")
			}
			if other, ok := o.other.(*device); ok { // as cudaSetDevice does
				o.lib.CtxSetCurrent(other.ctx)
			}
			return nil
		}})
	})
	m, ok := made(o, "Load", func() (driver.Module, error) { return k.Load([]byte(testPTX)) })
	if !ok {
		return
	}
	f, ok := made(o, "Function", func() (driver.Function, error) { return m.Function("nothing") })
	o.step("Launch", func() error { return k.Launch(o.s, driver.Kernel{Code: f, Shared: 64 << 10}) }, ok)
	o.step("Sync", func() error { return o.s.Sync(context.Background()) })
	o.step("Close of a module", m.Close)
}

func (o *tour) graphs() {
	g := o.dev.Graphs()
	begun := o.step("Begin", func() error { return g.Begin(o.s) })
	o.step("Capturing", func() error { _, err := g.Capturing(o.s); return err }, begun)
	o.step("Fill", func() error { return o.s.Fill(o.p, 1, 64) }, begun)
	m, marked := made(o, "Mark", o.s.Mark, begun)
	drawn := o.step("WaitFor", func() error { return o.side.WaitFor(o.s, m) }, marked)
	o.step("Ordered", func() error { _, err := g.Ordered(o.s, m, o.side); return err }, drawn)
	back, marked := made(o, "Mark", o.side.Mark, drawn)
	o.step("WaitFor", func() error { return o.s.WaitFor(o.side, back) }, marked)
	graph, ended := made(o, "End", func() (driver.Graph, error) { return g.End(o.s) }, begun)
	if ended {
		o.step("Launch of a graph", func() error { return graph.Launch(o.s) })
		o.step("Close of a graph", graph.Close)
	}
	o.step("Sync", func() error { return o.s.Sync(context.Background()) })
}

func (o *tour) timing() {
	t := o.dev.Timing()
	a, ok := made(o, "Stamp", func() (driver.Stamp, error) { return t.Stamp(o.s) })
	o.step("Sync", func() error { return o.s.Sync(context.Background()) })
	o.step("Elapsed", func() error { _, err := t.Elapsed(a, a); return err }, ok)
	o.step("Discard", func() error { return t.Discard(a) }, ok)
}

func (o *tour) pinned() {
	p := o.dev.Pinned()
	b, ok := made(o, "AllocHost", func() ([]byte, error) { return p.AllocHost(4096) })
	o.step("IsPinned", func() error { p.IsPinned(b); return nil }, ok)
	o.step("CopyInAsync", func() error { return p.CopyInAsync(o.s, o.p, b) }, ok)
	o.step("CopyOutAsync", func() error { return p.CopyOutAsync(o.s, b, o.p) }, ok)
	o.step("FreeHost", func() error { return p.FreeHost(b) }, ok)
	own, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	registered := o.step("Register", func() error { return p.Register(own) }, err == nil)
	o.step("Unregister", func() error { return p.Unregister(own) }, registered)
}

func (o *tour) virtual() {
	vm, g := o.dev.VirtualMemory(), o.dev.Info().Granularity
	if vm == nil {
		return
	}
	at, reserved := made(o, "Reserve", func() (driver.Pointer, error) { return vm.Reserve(2 * g) })
	page, created := made(o, "Create", func() (driver.Page, error) { return vm.Create(g) })
	next, more := made(o, "Create", func() (driver.Page, error) { return vm.Create(g) })
	mapped := o.step("Map", func() error { return vm.Map(at, page, next) }, reserved, created, more)
	o.step("Share", func() error { return o.dev.Peers().Share(at, g, o.other) }, mapped, o.other != nil)
	o.step("Unmap", func() error { return vm.Unmap(at, 2*g) }, mapped)
	o.step("Drop", func() error { return vm.Drop(page) }, created)
	o.step("Drop", func() error { return vm.Drop(next) }, more)
	o.step("Release", func() error { return vm.Release(at, 2*g) }, reserved)
}

func (o *tour) peers() {
	p := o.dev.Peers()
	if o.other == nil {
		return
	}
	o.step("CanAccess", func() error { _, err := p.CanAccess(o.other); return err })
	o.step("Enable", func() error { return p.Enable(o.other) })
	q, ok := made(o, "Alloc", func() (driver.Pointer, error) { return o.other.Alloc(64) })
	o.step("CopyPeer", func() error { return p.CopyPeer(o.s, o.p, o.dev, q, o.other, 64) }, ok)
	o.step("Disable", func() error { return p.Disable(o.other) })
	o.step("Free", func() error { return o.other.Free(q) }, ok)
	o.step("Enable", func() error { return p.Enable(o.other) }) // until Close
}

func (o *tour) sharing() {
	sh := o.dev.Sharing()
	made(o, "Export", func() ([]byte, error) { return sh.Export(o.p) })
	page, ok := made(o, "CreateShared", func() (driver.Page, error) { return sh.CreateShared(o.dev.Info().Granularity) })
	if ok {
		f, exported := made(o, "ExportPage", func() (interface{ Close() error }, error) { return sh.ExportPage(page) })
		o.step("Close of a file", func() error { return f.Close() }, exported)
		o.step("Drop", func() error { return o.dev.VirtualMemory().Drop(page) })
	}
	if e, ok := made(o, "NewEvent", sh.NewEvent); ok {
		made(o, "Handle", e.Handle)
		o.step("Record", func() error { return e.Record(o.s) })
		o.step("Wait", func() error { return e.Wait(o.side) })
		o.step("Reached", func() error { _, err := e.Reached(); return err })
		o.step("Close of an event", e.Close)
	}
}

// The contexts that a thread may have when it calls.
var threads = []struct {
	name    string
	current []cu.Device // from the bottom
}{
	{"no context", nil},
	{"another device's", []cu.Device{1}},
	{"the device's own", []cu.Device{0}},
	{"three", []cu.Device{0, 1, 0}},
}

// tourOn makes the tour on a thread with these contexts and says what it leaves changed.
func tourOn(c *cudaDriver, o *tour, current []cu.Device) (changed []string) {
	lib, _, _ := c.load()
	o.lib = lib
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends, and the contexts on it
		if lib.Init() != cu.Success {
			changed = append(changed, "cuInit fails")
			return
		}
		var want cu.Context
		var stack []cu.Context
		for _, dev := range current {
			want, _ = lib.PrimaryCtxRetain(dev)
			defer lib.PrimaryCtxRelease(dev)
			if len(stack) == 0 {
				lib.CtxSetCurrent(want) // which the driver does not call
			} else {
				lib.CtxPushCurrent(want)
			}
			stack = append(stack, want)
		}
		o.looked = func(after string) {
			if got, r := lib.CtxGetCurrent(); r != cu.Success || got != want {
				changed = append(changed, fmt.Sprintf("after %s context %#x is current, before it was %#x", after, got, want))
				lib.CtxSetCurrent(want) // to find the next as well
			}
			if got := exchange(lib, o.mode); got != o.mode {
				changed = append(changed, fmt.Sprintf("after %s the mode of captures is %d, before it was %d", after, got, o.mode))
			}
		}
		exchange(lib, o.mode)
		o.take(c)
		for i := len(stack) - 1; i >= 0; i-- {
			if got, r := lib.CtxGetCurrent(); r != cu.Success || got != stack[i] {
				changed = append(changed, fmt.Sprintf("context %d of the thread is %#x, was %#x", i, got, stack[i]))
			}
			lib.CtxSetCurrent(0) // takes the last one off
		}
		if got, _ := lib.CtxGetCurrent(); got != 0 {
			changed = append(changed, fmt.Sprintf("context %#x was left on the thread", got))
		}
	}()
	<-ended
	return changed
}

// exchange sets the thread's mode of captures, also where a test has one call fail, and returns what it was.
func exchange(lib *cu.Lib, mode cu.CaptureMode) cu.CaptureMode {
	before, r := lib.ExchangeCaptureMode(mode)
	if r != cu.Success && r.Missing() == "" {
		before, _ = lib.ExchangeCaptureMode(mode)
	}
	return before
}

var tourOptions = fakecuda.Options{Granularity: 64 << 10, Kernels: map[string]fakecuda.Kernel{"nothing": doNothing}}

func TestCallsLeaveTheThreadsContexts(t *testing.T) {
	for _, x := range threads {
		t.Run(x.name, func(t *testing.T) {
			m := newMachine(t, tourOptions)
			o := &tour{second: "1", long: 2*workerBytes + 5}
			for _, what := range tourOn(driverOf(m), o, x.current) {
				t.Error(what)
			}
			for _, err := range o.failed {
				t.Error(err)
			}
		})
	}
}

// TestFailedCallsLeaveTheThreadsContexts fails each call of libcuda in turn, except those of long copies, which
// TestEveryFailedCallOfACopy fails.
func TestFailedCallsLeaveTheThreadsContexts(t *testing.T) {
	for _, x := range threads[:3] {
		m := fakecuda.New(tourOptions)
		tourOn(driverOf(m), &tour{second: "1", mode: cu.CaptureThreadLocal}, x.current)
		calls := map[string]int{}
		for _, c := range m.Log() {
			calls[c.Symbol]++
		}
		m.Close()
		for symbol, n := range calls {
			switch symbol {
			case "cuInit", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2":
				continue // the test's own: the next test fails those of the driver
			}
			for nth := 1; nth <= n && !t.Failed(); nth++ {
				m := fakecuda.New(tourOptions)
				m.Fail(symbol, nth, fakecuda.OutOfMemory)
				for _, what := range tourOn(driverOf(m), &tour{second: "1", mode: cu.CaptureThreadLocal}, x.current) {
					t.Errorf("thread with %s, call %d of %s failed: %s", x.name, nth, symbol, what)
				}
				m.Close()
			}
		}
	}
}

// TestFailedOpeningsLeaveTheThreadsContexts: the context was not made, or could not be asked.
func TestFailedOpeningsLeaveTheThreadsContexts(t *testing.T) {
	for _, symbol := range []string{"cuDevicePrimaryCtxRetain", "cuMemGetInfo_v2", "cuCtxPushCurrent_v2"} {
		m := newMachine(t, fakecuda.Options{})
		runtime.LockOSThread()
		before, _ := cu.New(m.Lookup).CtxGetCurrent()
		m.Fail(symbol, 1, fakecuda.OutOfMemory)
		if _, err := driverOf(m).Open(""); err == nil {
			t.Errorf("Open without %s", symbol)
		}
		if after, _ := cu.New(m.Lookup).CtxGetCurrent(); after != before {
			t.Errorf("%s failed: context %#x is current, before it was %#x", symbol, after, before)
		}
		runtime.UnlockOSThread()
		m.Close()
	}
}

// TestALostDeviceLeavesTheThreadsContexts: nothing works on it, but going back to the context before.
func TestALostDeviceLeavesTheThreadsContexts(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d, lib := openOn(t, m, ""), cu.New(m.Lookup)
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	ended := make(chan cu.Context)
	go func() {
		runtime.LockOSThread()
		m.Break(0, fakecuda.IllegalAddress)
		wantErr(t, "Fill", s.Fill(p, 1, 64), driver.ErrLost)
		wantErr(t, "Fill", s.Fill(p, 1, 64), driver.ErrLost)
		wantErr(t, "Close", d.Close(), driver.ErrLost)
		c, _ := lib.CtxGetCurrent()
		ended <- c
	}()
	if c := <-ended; c != 0 {
		t.Errorf("context %#x is current on a thread that had none", c)
	}
}
