package replay

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// The meter between an allocator and a real device does not change the device's behaviour.
func TestMeteredDeviceIsADevice(t *testing.T) {
	drivertest.Run(t, func(testing.TB) driver.Device { return newMetered(sim.New(sim.Options{}), time.Now) })
}

// The calls for memory are counted and timed, each alone, and waits are stalls if there is work to wait for.
func TestMeteredDeviceCountsWhatIsAskedOfIt(t *testing.T) {
	inner := sim.New(sim.Options{Unchecked: true})
	var clock time.Time
	dev := newMetered(inner, func() time.Time { clock = clock.Add(time.Millisecond); return clock })
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	memory := func() driver.Pointer { p, err := dev.Alloc(4096); must(err); return p }
	used := func(when string, calls, stalls int64) {
		t.Helper()
		want := verify.DriverUse{DriverCalls: calls, DriverTime: time.Duration(calls) * time.Millisecond, Stalls: stalls}
		if got := dev.used(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
		if got := simulatedUse(inner); got.DriverCalls != calls || got.Stalls != stalls {
			t.Errorf("%s: the device itself counted %+v, want %+v", when, got, want)
		}
	}
	one := dev.DefaultStream()
	two, err := dev.NewStream(driver.StreamOptions{})
	must(err)
	p, q := memory(), memory()
	busy := inner.DefaultStream().(*sim.Stream)
	busy.Occupy()
	must(one.Fill(p, 1, 8))
	mark, err := one.Mark()
	must(err)
	must(two.WaitFor(one, mark))
	must(two.Fill(p, 2, 8))
	used("work is queued", 2, 0)
	must(two.Sync(context.Background()))
	must(two.Sync(context.Background()))
	must(one.Sync(context.Background()))
	used("one wait for all", 2, 1)
	busy.Occupy()
	must(dev.Free(q)) // which another stream works on
	must(dev.Free(p))
	used("a free waits for the device", 4, 2)
	vm, size := dev.VirtualMemory(), dev.Info().Granularity
	r, err := vm.Reserve(size)
	must(err)
	page, err := vm.Create(size)
	must(err)
	must(vm.Map(r, page))
	must(vm.Unmap(r, size))
	must(vm.Drop(page))
	must(vm.Release(r, size))
	if _, err := dev.Alloc(1 << 50); err == nil {
		t.Error("there is room for a pebibyte")
	}
	used("pages, and a call that fails", 11, 2)
	if u := newMetered(inner, nil).used(); u.DriverTime != -1 {
		t.Errorf("without a clock: %+v", u)
	}
	must(dev.Close())
}
