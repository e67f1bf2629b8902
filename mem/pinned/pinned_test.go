package pinned_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

const mib = 1 << 20

// bare is a device without page-locked memory.
type bare struct{ *device }

func (bare) Pinned() driver.Pinned { return nil }

func TestNew(t *testing.T) {
	if _, err := pinned.New(bare{newDevice()}, pinned.Config{}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("on a device without page-locked memory: %v", err)
	}
	for _, cfg := range []pinned.Config{
		{RegisterThreads: 3},
		{RegisterThreads: 256},
		{RegisterThreads: -1},
		{ReserveSegment: -1},
		{Interval: -1},
		{BackgroundThreads: true},
	} {
		if _, err := pinned.New(newDevice(), cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	d := newDevice()
	d.failing(intercept.AllocHost, driver.ErrNoMemory)
	if _, err := pinned.New(d, pinned.Config{ReserveSegment: mib}); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("no room for the reserved segment: %v", err)
	}
}

func TestSizes(t *testing.T) {
	tests := []struct {
		round, cached int64
		size, block   int64
	}{
		{0, 0, 1, 1},
		{0, 0, 3, 4},
		{0, 0, 4096, 4096},
		{0, 0, 4097, 8192},
		{mib, 0, mib, mib},
		{mib, 0, mib + 1, mib + 4096},
		{mib, 0, 3*mib - 4096, 3*mib - 4096},
		{3 * mib, 0, 3*mib - 1, 4 * mib}, // as PyTorch: the request counts
		{-1, 0, 100, 4096},
		{0, 3 * mib, 2*mib + 1, 2*mib + 4096}, // 4 MiB would not be cached
		{0, 3 * mib, 2 * mib, 2 * mib},
		{0, -1, 100, 4096},
	}
	for _, test := range tests {
		d := newDevice()
		a := open(t, d, pinned.Config{MaxRoundThreshold: test.round, MaxCachedSize: test.cached})
		b := alloc(t, a, test.size)
		if int64(len(a.Bytes(b))) != test.size || int64(cap(a.Bytes(b))) != test.block || b.Size != test.block {
			t.Errorf("%+v: %d bytes of %d", test, len(a.Bytes(b)), b.Size)
		}
		want(t, a, "allocated_bytes.current", int(test.block))
		a.Free(b)
		closeAll(t, a, d)
	}
}

func TestZeroAndNegative(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	b := alloc(t, a, 0)
	a.Free(b)
	if b != (mem.Block{}) || a.Bytes(b) != nil || a.Stats() != (pinned.Stats{}) || d.Calls() != 0 {
		t.Errorf("no bytes are %v, with %+v", b, a.Stats())
	}
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = a.Alloc(-1) }), "pinned: Alloc of -1 bytes")
	if _, err := a.Alloc(1 << 62); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc of 4 EiB: %v", err)
	}
}

// Above the rounding threshold a bucket holds blocks of several sizes. PyTorch once allocated whichever was freed last
// (pull request 192722).
func TestBucketsOfSeveralSizes(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{MaxRoundThreshold: mib})
	small := alloc(t, a, 150*mib/64)
	a.Free(small)
	large := alloc(t, a, 200*mib/64)
	if same(large, small) || large.Size < 200*mib/64 {
		t.Fatalf("a request of %d bytes got the block of %d", 200*mib/64, small.Size)
	}
	middle := alloc(t, a, 180*mib/64) // with 150 free
	a.Free(large)
	a.Free(middle)
	// 150, 180 and 200 are free: the smallest that fits.
	for _, test := range []struct {
		size int64
		want mem.Block
	}{{160 * mib / 64, middle}, {150 * mib / 64, small}, {190 * mib / 64, large}} {
		b := alloc(t, a, test.size)
		if !same(b, test.want) {
			t.Errorf("a request of %d bytes got a block of %d, want %d", test.size, b.Size, test.want.Size)
		}
		a.Free(b)
	}
	want(t, a, "num_host_alloc", 3)
	twin := alloc(t, a, 200*mib/64)
	other := alloc(t, a, 200*mib/64)
	a.Free(twin)
	a.Free(other)
	if b := alloc(t, a, 190*mib/64); !same(b, other) {
		t.Error("of two equally large the one that was freed first is reused first")
	} else {
		a.Free(b)
	}
	closeAll(t, a, d)
}

func TestLastFreedFirst(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	first, second := alloc(t, a, 64), alloc(t, a, 64)
	a.Free(first)
	a.Free(second)
	if b := alloc(t, a, 64); !same(b, second) {
		t.Error("the block that was freed first is reused first")
	}
	if b := alloc(t, a, 128); same(b, first) {
		t.Error("a block serves a larger request")
	}
	if b := alloc(t, a, 32); same(b, first) {
		t.Error("a block serves a request of another bucket")
	}
}

func TestTooLargeToCache(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{MaxCachedSize: mib})
	b := alloc(t, a, mib+1)
	a.Free(b)
	want(t, a, "allocations.current", 0, "num_host_free", 1, "active_requests.current", 0)

	s := d.stream(t)
	d.hold(s)
	b = alloc(t, a, mib+1)
	d.work(t, s)
	piece(t, a, b, s)
	a.Free(b)
	want(t, a, "allocations.current", 1, "active_requests.current", 1)
	d.resume(s)
	c := alloc(t, a, 1) // looks
	want(t, a, "allocations.current", 1, "num_host_free", 2)

	d.failing(intercept.FreeHost, driver.ErrLost)
	b = alloc(t, a, mib+1)
	a.Free(b)
	if err := a.Err(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Err after a Free whose FreeHost failed: %v", err)
	}
	if err := a.Err(); err != nil {
		t.Errorf("Err tells an error twice: %v", err)
	}
	d.healthy()
	if again := alloc(t, a, mib+1); !same(again, b) {
		t.Error("a block that could not be given back is lost")
	} else {
		a.Free(again)
	}
	want(t, a, "allocations.current", 1, "num_host_free", 3)
	a.Free(c)
	closeAll(t, a, d)
}

func TestMisuse(t *testing.T) {
	d := newDevice()
	a, other := open(t, d, pinned.Config{}), open(t, d, pinned.Config{})
	b := alloc(t, a, 100)
	testkit.Contains(t, testkit.Panic(t, func() { other.Free(b) }), "pinned: Free of a block that is not live")
	testkit.Contains(t, testkit.Panic(t, func() { other.ReleaseCaptured(b) }), "pinned: ReleaseCaptured of a block")
	testkit.Contains(t, testkit.Panic(t, func() { _ = a.RecordStream(b, nil) }), "pinned: Record on a nil stream")
	a.Free(b)
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(b) }), "pinned: Free of a block that is not live (128 bytes")
	testkit.Contains(t, testkit.Panic(t, func() { a.Bytes(b) }), "pinned: Bytes of a block that is not live (128 bytes")
	testkit.Contains(t, testkit.Panic(t, func() { a.ReleaseCaptured(b) }), "pinned: ReleaseCaptured of a block")
	testkit.Contains(t, testkit.Panic(t, func() { a.ReleaseCaptured(mem.Block{}) }),
		"pinned: ReleaseCaptured of a block")
	again := alloc(t, a, 100)
	if !same(again, b) {
		t.Fatal("not reused")
	}
	// the memory is live, b is not
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(b) }), "pinned: Free of a block that is not live")
	a.Free(again)
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(again) }), "pinned: Free of a block that is not live")
	closeAll(t, a, d)
	closeAll(t, other, d)
}

func TestClose(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b, c := alloc(t, a, 100), alloc(t, a, 100)
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "2 blocks of 256 bytes") {
		t.Errorf("Close with live blocks: %v", err)
	}
	d.hold(s)
	d.work(t, s)
	piece(t, a, b, s)
	a.Free(b)
	a.Free(c)
	d.failing(intercept.FreeHost, driver.ErrLost)
	if err := a.Close(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Close on a device that fails: %v", err)
	}
	d.healthy()
	a.Free(alloc(t, a, 100)) // it is still open
	closeAll(t, a, d)
	closeAll(t, a, d)
	if _, err := a.Alloc(1); !errors.Is(err, pinned.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	if err := a.EmptyCache(); err != nil {
		t.Errorf("EmptyCache after Close: %v", err)
	}
}

// Memory that the device freed when it was closed is not freed again, and causes no error.
func TestDeviceClosedFirst(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{ReserveSegment: 4096})
	big := alloc(t, a, 8192)
	a.Free(big)
	a.Free(alloc(t, a, 64))
	d.failing(intercept.FreeHost, driver.ErrClosed)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	want(t, a, "allocations.current", 0)
}

// A block too large to be cached is not taken from the segment, since it would never return there.
