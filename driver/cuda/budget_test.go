//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestConformanceWithinABudget: a device that may use a part of its memory is a smaller device.
func TestConformanceWithinABudget(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.AtOnce, Memory: 64 << 20, Granularity: 64 << 10})
	c := driverOf(m)
	drivertest.Run(t, func(t testing.TB) driver.Device {
		d, err := c.Open("total=24MiB")
		testkit.Must(t, err)
		return d
	})
}

func TestOpenReadsABudget(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Memory: 32 << 20})
	for args, want := range map[string]struct {
		ordinal int
		total   int64
	}{
		"": {0, 32 << 20}, "1": {1, 32 << 20}, "1,total=1MiB": {1, 1 << 20}, "total=4k": {0, 4 << 10},
		",total=1MiB": {0, 1 << 20}, "0, total=1GiB": {0, 32 << 20}, // no more than there is
	} {
		d := openOn(t, m, args)
		_, total, err := d.Available()
		testkit.Must(t, err)
		if info := d.Info(); info.Ordinal != want.ordinal || info.TotalMemory != want.total || total != want.total {
			t.Errorf("Open(%q): device %d, %d bytes, %d available, want %+v", args, info.Ordinal, info.TotalMemory, total, want)
		}
	}
	for args, says := range map[string]string{
		"0,total=0": "positive", "0,total=": "total=", "0,total=-1": "total=-1", "0,1": "total=SIZE", "0,size=1": "unknown setting",
		"total=1MiB,0": "total=SIZE",
	} {
		_, err := driverOf(m).Open(args)
		wantErr(t, "Open("+args+")", err, driver.ErrInvalid, says)
	}
}

// TestBudget: blocks and pages are counted until they are given back, and failed requests are not counted.
func TestBudget(t *testing.T) {
	const granule = 64 << 10
	m := newMachine(t, fakecuda.Options{Memory: 32 << 20, Granularity: granule})
	d, other := openOn(t, m, "0,total=1MiB"), openOn(t, m, "0,total=1MiB")
	vm := d.VirtualMemory()
	left := func(want int64) {
		t.Helper()
		free, _, err := d.Available()
		testkit.Must(t, err)
		if free != want {
			t.Errorf("%d bytes left, want %d", free, want)
		}
	}
	left(1 << 20)
	p := alloc(t, d, 1<<19)
	page, err := vm.Create(7 * granule)
	testkit.Must(t, err)
	left(granule)
	_, err = d.Alloc(granule + 1)
	wantErr(t, "Alloc", err, driver.ErrNoMemory, "64.00KiB of 1.00MiB left")
	_, err = vm.Create(2 * granule)
	wantErr(t, "Create", err, driver.ErrNoMemory, "64.00KiB of 1.00MiB left")
	_, err = d.Sharing().CreateShared(2 * granule)
	wantErr(t, "CreateShared", err, driver.ErrNoMemory)
	for symbol, call := range map[string]func() error{
		"cuMemAlloc_v2": func() error { _, err := d.Alloc(granule); return err },
		"cuMemCreate":   func() error { _, err := vm.Create(granule); return err },
	} {
		for _, result := range []fakecuda.Result{fakecuda.OutOfMemory, fakecuda.Unknown} {
			m.Fail(symbol, 1, result)
			if call() == nil {
				t.Errorf("%s failed without an error", symbol)
			}
			left(granule)
		}
	}
	q := alloc(t, other, 1<<20) // its budget is its own
	testkit.Must(t, other.Free(q))

	at, err := vm.Reserve(14 * granule)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(at, page, page))
	testkit.Must(t, vm.Drop(page))
	left(granule)
	testkit.Must(t, vm.Unmap(at, 7*granule))
	left(granule)
	testkit.Must(t, vm.Unmap(at+7*granule, 7*granule))
	left(8 * granule)
	m.Fail("cuMemFree_v2", 1, fakecuda.Unknown)
	if err := d.Free(p); err == nil {
		t.Error("Free succeeded with cuMemFree failing")
	}
	left(8 * granule)
	testkit.Must(t, d.Free(p))
	left(1 << 20)

	// Memory that another process shares counts in that process's account, not here.
	shared, err := d.Sharing().CreateShared(granule)
	testkit.Must(t, err)
	f, err := d.Sharing().ExportPage(shared)
	testkit.Must(t, err)
	again, err := d.Sharing().ImportPage(f, granule)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	left(1<<20 - granule)
	testkit.Must(t, vm.Drop(again))
	left(1<<20 - granule)
	testkit.Must(t, vm.Drop(shared))
	left(1 << 20)
	testkit.Must(t, vm.Release(at, 14*granule))
}
