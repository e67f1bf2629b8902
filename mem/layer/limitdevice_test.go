package layer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// What a limited device has given up is what the device itself says, whichever call fails: blocks until they are freed,
// pages until they are dropped and mapped nowhere.
func TestLimitDeviceCountsWhatTheDeviceGaveUp(t *testing.T) {
	const page = 2 << 20
	for n := int64(0); ; n++ { // which call fails; none in the first round
		s := drivertest.OpenSim(t, 64<<20)
		broken := fault.Wrap(s)
		d := layer.NewLimitedDevice(broken, 16<<20, "the limit of the test")
		check := func(what string) {
			t.Helper()
			free, total, err := s.Available()
			if err != nil || d.Taken() != total-free {
				t.Fatalf("call %d fails: %s: %d bytes are taken, and the device has given up %d, %v", n, what, d.Taken(), total-free, err)
			}
		}
		if n > 0 {
			broken.SetRules(fault.Rule{Nth: n})
		}
		var refused *mem.LimitError
		big, _ := d.Alloc(8 << 20)
		check("Alloc")
		if _, err := d.Alloc(9 << 20); n == 0 && (!errors.As(err, &refused) || !errors.Is(err, driver.ErrNoMemory) || refused.Live != 8<<20) {
			t.Errorf("an Alloc over the limit: %v", err)
		}
		vm := d.VirtualMemory()
		at, err := vm.Reserve(4 * page)
		if err == nil {
			p, _ := vm.Create(page)
			check("Create")
			mapped := vm.Map(at, p) == nil
			twice := vm.Map(at+page, p) == nil
			dropped := vm.Drop(p) == nil
			check("Drop of a page that is mapped")
			if mapped {
				vm.Unmap(at, page)
			}
			check("Unmap of one place")
			if twice {
				vm.Unmap(at+page, page)
			}
			check("Unmap of the other")
			if n == 0 && (!mapped || !twice || !dropped || d.Taken() != 8<<20) {
				t.Errorf("%v, %v, %v, %d bytes taken; want the block alone", mapped, twice, dropped, d.Taken())
			}
		}
		if n == 0 {
			if _, err := vm.Create(10 << 20); !errors.As(err, &refused) {
				t.Errorf("a page over the limit: %v", err)
			}
			if free, total, err := d.Available(); err != nil || free != 8<<20 || total != 64<<20 {
				t.Errorf("%d free of %d, %v; want what the limit leaves", free, total, err)
			}
		}
		if big != 0 {
			d.Free(big)
		}
		check("Free")
		failed := broken.Failed()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n > 0 && failed == 0 {
			break
		}
	}
}

func TestLimitDeviceWantsALimit(t *testing.T) {
	for _, limit := range []int64{0, -1} {
		testkit.WantPanic(t, fmt.Sprintf("a limit of %d", limit), "", func() {
			layer.NewLimitedDevice(drivertest.OpenSim(t, 0), limit, "")
		})
	}
}

// An out-of-memory error names the limit if the limit refused the request, and not if the device did.
func TestLimitDeviceExplains(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		limit, size int64
		settings    string
		allowed     int64
		limitName   string
		needed      int64
	}{
		"the limit":       {16 * mib, 20 * mib, "", 16 * mib, "the limit of the test", 32 * mib},
		"hardly enough":   {32 * mib, 20 * mib, "limit:24MiB", 24 * mib, "", 32 * mib},
		"a MiB too small": {31 * mib, 20 * mib, "limit:24MiB", 31 * mib, "the limit of the test", 32 * mib},
		"the device":      {100 * mib, 70 * mib, "", 0, "", 0},
	} {
		d := layer.NewLimitedDevice(drivertest.OpenSim(t, 64*mib), c.limit, "the limit of the test")
		cfg, _, err := caching.ParseConfig(c.settings)
		testkit.Must(t, err)
		below, err := caching.New(d, cfg)
		testkit.Must(t, err)
		a := d.Over(below)
		live, err := a.Alloc(d.DefaultStream(), 12*mib)
		testkit.Must(t, err)
		_, err = a.Alloc(d.DefaultStream(), c.size)
		var oom *mem.OutOfMemory
		if !errors.As(err, &oom) || oom.Allowed != c.allowed || oom.LimitName != c.limitName || oom.Needed != c.needed ||
			oom.Free != 52*mib {
			t.Errorf("%s: %v; want %+v", name, err, c)
		}
		a.Free(live)
		testkit.Must(t, below.Close())
	}
}

// An allocator's error passes as it is, unless it is out of memory.
func TestLimitDevicePassesOtherErrors(t *testing.T) {
	broken := fault.Wrap(drivertest.OpenSim(t, 64<<20))
	d := layer.NewLimitedDevice(broken, 16<<20, "the limit of the test")
	a := d.Over(newCaching(t, d))
	broken.SetRules(fault.Rule{Nth: 1, Code: driver.ErrLost})
	if _, err := a.Alloc(d.DefaultStream(), 512); !errors.Is(err, driver.ErrLost) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the device is lost: %v", err)
	}
}
