package bfc_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// A meter logs the requests to a device, and has room for the given number of bytes.
type meter struct {
	driver.Device
	room  int64
	asked []int64
}

func (m *meter) Alloc(size int64) (driver.Pointer, error) {
	m.asked = append(m.asked, size)
	if size > m.room {
		return 0, &driver.Error{Call: "Alloc", Code: driver.ErrNoMemory}
	}
	return m.Device.Alloc(size)
}

func TestSegmentsDouble(t *testing.T) {
	m := &meter{Device: sim.New(sim.Options{Unchecked: true}), room: 1 << 40}
	defer m.Close()
	a := newAllocator(t, m, bfc.Config{Limit: 90 * mib})
	for range 20 {
		if _, err := a.Alloc(m.DefaultStream(), 4*mib); err != nil {
			t.Fatal(err)
		}
	}
	// The first is made to fit; then each is as large again; the last is what the limit leaves.
	if want := []int64{4 * mib, 4 * mib, 8 * mib, 16 * mib, 32 * mib, 26 * mib}; !slices.Equal(m.asked, want) {
		t.Errorf("segments of %d: want %d", m.asked, want)
	}
}

func TestSegmentsBackOff(t *testing.T) {
	for _, c := range []struct {
		room, request int64
		asked         []int64
	}{
		{7000, 256, []int64{10240, 9216, 8448, 7680, 6912}},
		// The last is as large as the request, though nine tenths of the one before is less.
		{7424, 7424, []int64{10240, 9216, 8448, 7680, 7424}},
		// Below 2.5 KiB nine tenths are rounded up to no less: it ends all the same.
		{256, 256, []int64{
			10240, 9216, 8448, 7680, 6912, 6400, 5888, 5376, 4864, 4608, 4352, 4096, 3840, 3584, 3328, 3072, 2816, 2560,
			2304, 2048, 1792, 1536, 1280, 1024, 768, 512, 256,
		}},
	} {
		m := &meter{Device: sim.New(sim.Options{Unchecked: true}), room: c.room}
		a := newAllocator(t, m, bfc.Config{Limit: 10240, NoGrowth: true})
		b, err := a.Alloc(m.DefaultStream(), c.request)
		if err != nil || !slices.Equal(m.asked, c.asked) {
			t.Errorf("room for %d, %d wanted: %v, asked for %d; want %d", c.room, c.request, err, m.asked, c.asked)
		}
		a.Free(b)
		if err := errors.Join(a.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	}
}

// The size of the next segment does not overflow, however often segments come and go.
func TestSegmentsStopDoubling(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 64 * mib})
	for range 100 {
		b.Free(b.alloc(512))
		if err := b.EmptyCache(); err != nil {
			t.Fatal(err)
		}
	}
	b.alloc(512)
	if n := b.Stats().ReservedBytes.All.Current; n != 64*mib {
		t.Errorf("the segment is of %d bytes", n)
	}
}

// Unused segments are given back for a request that takes the place of all.
func TestUnusedSegmentsMakeRoom(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 6 * mib})
	b.Free(b.alloc(mib))
	b.Free(b.alloc(3 * mib))
	b.alloc(6 * mib)
	if s := b.Stats(); s.NumAllocRetries != 1 || s.NumDeviceFree != 2 || s.NumDeviceAlloc != 3 {
		t.Errorf("%d retries, %d segments given back, %d got: want 1, 2, 3", s.NumAllocRetries, s.NumDeviceFree, s.NumDeviceAlloc)
	}
}

// The error of a failed request is right: with its remedy the request fits.
func TestOutOfMemory(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 6 * mib, NoCollect: true})
	small := b.alloc(mib)     // in the first segment, of 2 MiB
	large := b.alloc(3 * mib) // fills the second
	b.Free(large)
	_, err := b.Alloc(b.s, 5*mib)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) {
		t.Fatal(err)
	}
	want := mem.OutOfMemory{
		Requested: 5 * mib, Rounded: 5 * mib, Segment: 5 * mib, Allowed: 6 * mib, Allocated: mib, Reserved: 6 * mib,
		Needed: 11 * mib, LargestFree: 4 * mib, Stranded: mib, Total: 4 * gib, Free: 4*gib - 6*mib, DeviceName: oom.DeviceName,
	}
	got := *oom
	got.Cached, got.Pinning, got.Remedies, got.Processes, got.Cause = nil, nil, nil, nil, nil
	if got.Error() != want.Error() || got.Allocated != want.Allocated || got.Stranded != want.Stranded {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if len(oom.Pinning) != 1 || oom.Pinning[0].Ptr != small.Ptr || oom.Pinning[0].Live != 1 || oom.Pinning[0].Stranded != mib {
		t.Errorf("pinning: %+v", oom.Pinning)
	}
	if len(oom.Cached) != 1 || oom.Cached[0].Bytes != 5*mib || oom.Cached[0].Blocks != 2 || oom.Cached[0].Largest != 4*mib {
		t.Errorf("cached: %+v", oom.Cached)
	}
	if len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=11MiB" {
		t.Fatalf("remedies: %+v", oom.Remedies)
	}
	b.Free(small)
	_, err = b.Alloc(b.s, 5*mib)
	if !errors.As(err, &oom) || len(oom.Remedies) != 2 || oom.Remedies[1].Name != "collect=on" {
		t.Fatalf("nothing is live: %v", err)
	}
	for _, cfg := range []bfc.Config{{Limit: 6 * mib}, {Limit: 11 * mib, NoCollect: true}} {
		b := newBench(t, cfg)
		b.Free(b.alloc(mib))
		b.Free(b.alloc(3 * mib))
		b.alloc(5 * mib)
	}
}

// A device failure other than a lack of memory is returned, and not taken for one.
func TestDeviceErrorsAreTold(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	a := newAllocator(t, dev, bfc.Config{})
	dev.SetRules(fault.Rule{Kind: intercept.Alloc, Nth: 1, Code: driver.ErrInvalid})
	if _, err := a.Alloc(dev.DefaultStream(), 512); !errors.Is(err, driver.ErrInvalid) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("%v: want driver.ErrInvalid", err)
	}
	if n := dev.CallsOf(intercept.Alloc); n != 1 {
		t.Errorf("%d segments asked for: nothing smaller would have helped", n)
	}
}

// New and Close fail with the device, and can be tried again; nothing is lost in between.
func TestNewAndCloseFailWithTheDevice(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	before := inner.Leaks().String()
	for _, kind := range []intercept.Kind{intercept.Available, intercept.Reserve} {
		dev.SetRules(fault.Rule{Kind: kind, Nth: 1, Code: driver.ErrInvalid})
		if a, err := bfc.New(dev, bfc.Config{Virtual: true}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s fails: %v, %v", kind, a, err)
		}
	}
	for _, kind := range []intercept.Kind{intercept.Unmap, intercept.Drop, intercept.Release} {
		dev.SetRules()
		a := newAllocator(t, dev, bfc.Config{Virtual: true})
		b, err := a.Alloc(dev.DefaultStream(), 512)
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
		dev.SetRules(fault.Rule{Kind: kind, Nth: 1, Code: driver.ErrInvalid})
		if err := a.Close(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s fails: Close says %v", kind, err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s failed before: %v", kind, err)
		}
	}
	if now := inner.Leaks().String(); now != before {
		t.Errorf("left behind: %s, before %s", now, before)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// A peopled device reports the processes that use its memory.
type peopled struct{ driver.Device }

func (peopled) Processes() ([]driver.ProcessMemory, error) {
	return []driver.ProcessMemory{{PID: 41, Bytes: 7}, {PID: 42, Bytes: -1}}, nil
}

func TestOutOfMemoryNamesProcesses(t *testing.T) {
	dev := peopled{drivertest.OpenSim(t, 0)}
	defer dev.Close()
	a := newAllocator(t, dev, bfc.Config{Limit: mib})
	var oom *mem.OutOfMemory
	if _, err := a.Alloc(dev.DefaultStream(), 2*mib); !errors.As(err, &oom) || len(oom.Processes) != 1 || oom.Processes[0].PID != 41 {
		t.Errorf("%v: want the process whose memory is known", err)
	}
}

func TestCloseWithBlocksOnLoan(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		b := newBench(t, bfc.Config{Limit: 64 * mib, Virtual: virtual})
		before, _, _ := b.dev.Available()
		block := b.alloc(512)
		if err := b.Close(); err == nil {
			t.Error("closed with a live block")
		}
		b.Free(block)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if now, _, _ := b.dev.Available(); now != before {
			t.Errorf("%d bytes are still held", before-now)
		}
		if _, err := b.Alloc(b.s, 512); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Alloc after Close: %v", err)
		}
		if err := b.EmptyCache(); err != nil {
			t.Errorf("EmptyCache after Close: %v", err)
		}
	}
}

// A retry is counted only if something was given back.
func TestRefusedCollectionsAreNotCounted(t *testing.T) {
	inner := drivertest.OpenSim(t, 64<<20)
	dev := fault.Wrap(inner)
	a := newAllocator(t, dev, bfc.Config{Limit: 4 * mib})
	b, err := a.Alloc(dev.DefaultStream(), mib)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
	dev.SetRules(fault.Rule{Kind: intercept.Free, Code: driver.ErrInvalid})
	if _, err := a.Alloc(dev.DefaultStream(), 4*mib); !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v: want the reason why the segment stays", err)
	}
	if s := a.Stats(); s.NumAllocRetries != 0 || s.NumDeviceFree != 0 {
		t.Errorf("%d retries, %d segments given back", s.NumAllocRetries, s.NumDeviceFree)
	}
	dev.SetRules()
}

// Only memory that is mapped page by page needs to be opened to a peer. The device's own is open to peers by itself.
func TestAddPeerWithoutPages(t *testing.T) {
	dev, other := drivertest.OpenSim(t, gib), drivertest.OpenSim(t, gib)
	for _, virtual := range []bool{false, true} {
		a := newAllocator(t, dev, bfc.Config{Virtual: virtual, Limit: 64 * mib})
		err := a.AddPeer(other)
		if virtual != errors.Is(err, driver.ErrUnsupported) || !virtual && err != nil {
			t.Errorf("virtual %t: AddPeer of a device that cannot reach it: %v", virtual, err)
		}
		b, err := a.Alloc(dev.DefaultStream(), mib)
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
	}
}
