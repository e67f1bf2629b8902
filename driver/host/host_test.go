package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestDriver runs the suite on a small device, on one with small pages, and on the whole machine.
func TestDriver(t *testing.T) {
	for _, spec := range []string{"host:total=64MiB", "host:total=16MiB,granularity=64KiB", "host"} {
		t.Run(spec, func(t *testing.T) {
			drivertest.Run(t, func(t testing.TB) driver.Device {
				d, err := driver.Open(spec)
				testkit.Must(t, err)
				return d
			})
		})
	}
}

// TestDriverWithoutVirtualMemory runs the suite as on systems other than Linux.
func TestDriverWithoutVirtualMemory(t *testing.T) {
	drivertest.Run(t, func(testing.TB) driver.Device { return newDevice(Options{Total: 64 << 20}, nil) })
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		spec               string
		total, granularity int64 // 0: whatever it is
		ordinal            int
		wrong              string
	}{
		{spec: "host", granularity: 2 << 20},
		{spec: "host:total=1GiB", total: 1 << 30, granularity: 2 << 20},
		{spec: "host: granularity=1m , total=100m,", total: 100 << 20, granularity: 1 << 20},
		{spec: "host:ordinal=3,total=1GiB", total: 1 << 30, granularity: 2 << 20, ordinal: 3},
		{spec: "host:ordinal=-1", wrong: "from 0"},
		{spec: "host:ordinal=x", wrong: "from 0"},
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
		testkit.Must(t, err)
		info := d.Info()
		if c.total != 0 && info.TotalMemory != c.total || info.TotalMemory <= 0 {
			t.Errorf("%s: total %d, want %d", c.spec, info.TotalMemory, c.total)
		}
		if info.Ordinal != c.ordinal {
			t.Errorf("%s: ordinal %d, want %d", c.spec, info.Ordinal, c.ordinal)
		}
		if d.VirtualMemory() != nil && info.Granularity != c.granularity {
			t.Errorf("%s: granularity %d, want %d", c.spec, info.Granularity, c.granularity)
		}
		testkit.Must(t, d.Close())
	}
	if _, err := Open(Options{Total: -1}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a negative total: %v", err)
	}
}

// TestBudget: the budget counts whole pages of the operating system, exactly.
func TestBudget(t *testing.T) {
	d, err := Open(Options{Total: 10 * pageSize})
	testkit.Must(t, err)
	defer d.Close()
	want := func(free int64) {
		t.Helper()
		if got, _, err := d.Available(); err != nil || got != free {
			t.Errorf("%d bytes available, %v; want %d", got, err, free)
		}
	}
	p := drivertest.Alloc(t, d, pageSize+1)
	want(8 * pageSize)
	q := drivertest.Alloc(t, d, 8*pageSize)
	want(0)
	if _, err := d.Alloc(1); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Alloc on a full device: %v", err)
	}
	testkit.Must(t, d.Free(p))
	want(2 * pageSize)
	testkit.Must(t, d.Free(q))
	want(10 * pageSize)
}

// TestTheSystemRefuses: with a total larger than the address space, the operating system refuses a request, which
// changes nothing.
func TestTheSystemRefuses(t *testing.T) {
	const total = 1 << 62
	d, err := Open(Options{Total: total})
	testkit.Must(t, err)
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

// TestPeers runs the suite on two devices, which are ordinals 0 and 1 of the driver.
func TestPeers(t *testing.T) {
	drivertest.RunPeers(t, func(t testing.TB) (a, b driver.Device) {
		a, err := driver.Open("host:total=64MiB")
		testkit.Must(t, err)
		b, err = driver.Open("host:total=64MiB,ordinal=1")
		testkit.Must(t, err)
		return a, b
	})
}

// TestStreamsHaveNoHandles: the driver has no foreign streams.
func TestStreamsHaveNoHandles(t *testing.T) {
	if _, err := open(t).NewStream(driver.StreamOptions{Foreign: 1}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("NewStream of a foreign stream: %v, want ErrUnsupported", err)
	}
}

// TestDevicesCanBeOpened by what the listing says.
func TestDevicesCanBeOpened(t *testing.T) {
	listings, err := driver.Lookup("host").Devices()
	testkit.Must(t, err)
	if len(listings) != 1 || listings[0].Free != listings[0].Info.TotalMemory {
		t.Fatalf("listed: %+v, want the machine, all of it free", listings)
	}
	d, err := driver.Open(listings[0].Spec)
	testkit.Must(t, err)
	if d.Info() != listings[0].Info {
		t.Errorf("opened %+v, listed %+v", d.Info(), listings[0].Info)
	}
	testkit.Must(t, d.Close())
}

// TestDiagnose: if devices can be opened, no finding is broken, and each lacking one names a remedy.
func TestDiagnose(t *testing.T) {
	findings := driver.Lookup("host").Diagnose()
	if len(findings) < 2 {
		t.Errorf("%d findings: want memory and virtual memory at least", len(findings))
	}
	for _, f := range findings {
		if f.What == "" || f.Found == "" || f.State == driver.Broken || f.State != driver.Good && f.Do == "" {
			t.Errorf("%+v: want what, what was found, not broken, and what to do if it is not good", f)
		}
		if f.What == "virtual memory" && (f.State == driver.Good) != (open(t).VirtualMemory() != nil) {
			t.Errorf("%+v, but a device has virtual memory: %v", f, open(t).VirtualMemory() != nil)
		}
	}
}
