package pinned_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func TestHostRegister(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{HostRegister: true, RegisterThreads: 8})
	got, lost := intercept.Register, intercept.Unregister
	if runtime.GOOS != "linux" {
		got, lost = intercept.AllocHost, intercept.FreeHost
	}
	var blocks []mem.Block
	for _, size := range []int64{1, 4096, 100_000, 3 << 20} { // one goroutine's worth, and eight's
		b := alloc(t, a, size)
		bytes := a.Bytes(b)
		for i := range bytes {
			bytes[i] = byte(i)
		}
		if !d.Pinned().IsPinned(bytes[:b.Size]) {
			t.Errorf("a block of %d bytes is not page-locked", b.Size)
		}
		blocks = append(blocks, b)
	}
	if d.CallsOf(got) != 4 || d.Calls() != 4 {
		t.Errorf("%d calls of %s, %d of all", d.CallsOf(got), got, d.Calls())
	}
	want(t, a, "num_host_alloc", 4, "host_alloc_time.count", 4)
	for _, b := range blocks {
		a.Free(b)
	}
	d.failing(lost, driver.ErrLost)
	if err := a.EmptyCache(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("EmptyCache: %v", err)
	}
	d.healthy()
	if b := alloc(t, a, 4096); !same(b, blocks[1]) {
		t.Error("a block that could not be given back is lost")
	} else {
		a.Bytes(b)[0] = 1 // and still there
		a.Free(b)
	}
	d.failing(got, driver.ErrNoMemory)
	if _, err := a.Alloc(10 << 20); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Alloc: %v", err)
	}
	want(t, a, "num_host_alloc", 4, "num_host_free", 4) // the cache was given back for it
	closeAll(t, a, d)
}
