//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// open returns a machine and the binding over it, on a locked thread.
func open(t *testing.T, opts fakecuda.Options) (*fakecuda.Machine, *cu.Lib) {
	t.Helper()
	runtime.LockOSThread()
	m := fakecuda.New(opts)
	t.Cleanup(func() {
		m.Close()
		runtime.UnlockOSThread()
	})
	l := cu.New(m.Lookup)
	ok(t, l.Init())
	return m, l
}

func ok(t *testing.T, r cu.Result) {
	t.Helper()
	if r != 0 {
		t.Fatalf("result %d", r)
	}
}

// equal compares a value that a call returned, with its result.
func equal[T comparable](t *testing.T, what string, got T, r cu.Result, want T) {
	t.Helper()
	if r != 0 || got != want {
		t.Errorf("%s is %v with result %d, want %v", what, got, r, want)
	}
}

func TestBindingFindsAllOfItsSymbols(t *testing.T) {
	_, l := open(t, fakecuda.Options{})
	if missing := l.Missing(); missing != nil {
		t.Errorf("not here: %q", missing)
	}
}

func TestWhatDevicesSay(t *testing.T) {
	_, l := open(t, fakecuda.Options{
		Devices: 3, Memory: 5 << 20, Name: "Some GPU", Version: 12040, Granularity: 64 << 10,
		Attributes: map[int32]int32{16: 7},
	})
	v, r := l.DriverVersion()
	equal(t, "the version", v, r, 12040)
	n, r := l.DeviceCount()
	equal(t, "the count", n, r, 3)
	d, r := l.DeviceGet(2)
	equal(t, "the device", d, r, cu.Device(2))
	if _, r := l.DeviceGet(3); r != cu.Result(fakecuda.InvalidDevice) {
		t.Errorf("a fourth device: %d", r)
	}
	name, r := l.DeviceName(d)
	equal(t, "the name", name, r, "Some GPU")
	pci, r := l.DevicePCIBusID(d)
	equal(t, "the bus", pci, r, "0000:1d:00.0")
	id, r := l.DeviceUUID(d)
	other, _ := l.DeviceUUID(1)
	equal(t, "the last byte of the UUID", id[15], r, 2)
	if id == other {
		t.Error("two devices have one UUID")
	}
	a, r := l.DeviceAttribute(16, d)
	equal(t, "an attribute of the options", a, r, 7)
	size, r := l.DeviceTotalMem(d)
	equal(t, "the memory", size, r, 5<<20)
	can, r := l.DeviceCanAccessPeer(d, 1)
	equal(t, "access to a peer", can, r, true)
	can, r = l.DeviceCanAccessPeer(d, d)
	equal(t, "access to itself", can, r, false)
	g, r := l.MemGranularity(cu.DeviceMemory(d, 0))
	equal(t, "the granularity", g, r, 64<<10)
}

func TestContextStack(t *testing.T) {
	_, l := open(t, fakecuda.Options{})
	a, r := l.PrimaryCtxRetain(0)
	ok(t, r)
	again, r := l.PrimaryCtxRetain(0)
	equal(t, "the context", again, r, a)
	b, r := l.PrimaryCtxRetain(1)
	ok(t, r)
	ok(t, l.CtxSetCurrent(a))
	ok(t, l.CtxPushCurrent(b))
	popped, r := l.CtxPopCurrent()
	equal(t, "what was popped", popped, r, b)
	c, r := l.CtxGetCurrent()
	equal(t, "what is left", c, r, a)
	ok(t, l.PrimaryCtxRelease(0))
	ok(t, l.CtxSetCurrent(a)) // one of two releases leaves it
	ok(t, l.PrimaryCtxRelease(0))
	if r := l.CtxSetCurrent(a); r != cu.Result(fakecuda.ContextIsDestroyed) {
		t.Errorf("the context after both releases: %d", r)
	}
}

func TestStreamsAndEventsSayWhatTheyAre(t *testing.T) {
	m, l := open(t, fakecuda.Options{})
	ctx, r := l.PrimaryCtxRetain(1)
	ok(t, r)
	ok(t, l.CtxSetCurrent(ctx))
	last, first, r := l.StreamPriorityRange()
	equal(t, "the priorities", [2]int{last, first}, r, [2]int{0, -5})
	s, r := l.StreamCreate(cu.StreamNonBlocking, -9)
	ok(t, r)
	c, r := l.StreamContext(s)
	equal(t, "its context", c, r, ctx)
	p, r := l.StreamPriority(s)
	equal(t, "its priority", p, r, -5)
	status, _, r := l.StreamCaptureInfo(s)
	equal(t, "its capture", status, r, cu.CaptureNone)
	if got := m.Streams(); !slices.Equal(got, []uint64{uint64(s)}) {
		t.Errorf("streams %#x, want %#x", got, s)
	}

	from, r := l.EventCreate(0)
	ok(t, r)
	to, r := l.EventCreate(0)
	ok(t, r)
	memory, r := l.MemAlloc(4 << 20)
	ok(t, r)
	ok(t, l.EventRecord(from, s))
	ok(t, l.MemsetD8Async(memory, 1, 4<<20, s))
	ok(t, l.EventRecord(to, s))
	if _, r := l.EventElapsed(from, to); r != cu.Result(fakecuda.NotReady) {
		t.Errorf("elapsed time before its end: %d", r)
	}
	ok(t, l.EventSynchronize(to))
	if ms, r := l.EventElapsed(from, to); r != 0 || ms <= 0 {
		t.Errorf("%v ms elapsed (%d)", ms, r)
	}
	if leaks := m.Leaks(); len(leaks) != 5 { // context, stream, events, memory
		t.Errorf("leaks: %q", leaks)
	}
	ok(t, l.EventDestroy(from))
	ok(t, l.EventDestroy(to))
	if r := l.EventDestroy(to); r != cu.Result(fakecuda.InvalidHandle) || len(m.Misuses()) != 1 {
		t.Errorf("a second destroy: %d, misuses %q", r, m.Misuses())
	}
}
