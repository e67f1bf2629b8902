package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// TestDriver runs the suite on a small device, on one with small pages, and on the whole machine.
func TestDriver(t *testing.T) {
	for _, spec := range []string{"host:total=64MiB", "host:total=16MiB,granularity=64KiB", "host"} {
		t.Run(spec, func(t *testing.T) {
			drivertest.Run(t, func(t testing.TB) driver.Device {
				d, err := driver.Open(spec)
				check(t, err)
				return d
			})
		})
	}
}

// TestDriverWithoutVirtualMemory is what other systems than Linux have.
func TestDriverWithoutVirtualMemory(t *testing.T) {
	drivertest.Run(t, func(testing.TB) driver.Device { return newDevice(Options{Total: 64 << 20}, nil) })
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		spec               string
		total, granularity int64 // 0: whatever it is
		wrong              string
	}{
		{spec: "host", granularity: 2 << 20},
		{spec: "host:total=1GiB", total: 1 << 30, granularity: 2 << 20},
		{spec: "host: granularity=1m , total=100m,", total: 100 << 20, granularity: 1 << 20},
		{spec: "host:total=0", wrong: "positive"},
		{spec: "host:total", wrong: "size"},
		{spec: "host:total=much", wrong: "much"},
		{spec: "host:granularity=3m", wrong: "power of two"},
		{spec: "host:granularity=512", wrong: "at least"},
		{spec: "host:size=1GiB", wrong: `unknown setting "size"`},
	} {
		d, err := driver.Open(c.spec)
		if c.wrong != "" {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want ErrInvalid with %q", c.spec, err, c.wrong)
			}
			continue
		}
		check(t, err)
		info := d.Info()
		if c.total != 0 && info.TotalMemory != c.total || info.TotalMemory <= 0 {
			t.Errorf("%s: total %d, want %d", c.spec, info.TotalMemory, c.total)
		}
		if d.VirtualMemory() != nil && info.Granularity != c.granularity {
			t.Errorf("%s: granularity %d, want %d", c.spec, info.Granularity, c.granularity)
		}
		check(t, d.Close())
	}
	if _, err := Open(Options{Total: -1}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a negative total: %v", err)
	}
}

// TestBudget: what counts is whole pages of the operating system, exactly.
func TestBudget(t *testing.T) {
	d, err := Open(Options{Total: 10 * pageSize})
	check(t, err)
	defer d.Close()
	want := func(free int64) {
		t.Helper()
		if got, _, err := d.Available(); err != nil || got != free {
			t.Errorf("%d bytes available, %v; want %d", got, err, free)
		}
	}
	p, err := d.Alloc(pageSize + 1)
	check(t, err)
	want(8 * pageSize)
	q, err := d.Alloc(8 * pageSize)
	check(t, err)
	want(0)
	if _, err := d.Alloc(1); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Alloc on a full device: %v", err)
	}
	check(t, d.Free(p))
	want(2 * pageSize)
	check(t, d.Free(q))
	want(10 * pageSize)
}

// TestTheSystemRefuses: a total beyond what addresses can hold lets the operating system say no, which changes nothing.
func TestTheSystemRefuses(t *testing.T) {
	const total = 1 << 62
	d, err := Open(Options{Total: total})
	check(t, err)
	defer d.Close()
	if _, err := d.Alloc(total / 2); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Alloc: %v, want ErrNoMemory", err)
	}
	if vm := d.VirtualMemory(); vm != nil {
		if _, err := vm.Reserve(total); !errors.Is(err, driver.ErrNoMemory) {
			t.Errorf("Reserve: %v, want ErrNoMemory", err)
		}
	}
	if free, _, err := d.Available(); err != nil || free != total {
		t.Errorf("%d bytes available, %v; want %d", free, err, int64(total))
	}
}
