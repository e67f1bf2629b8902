package arena_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// newArena makes an arena, and checks its invariants when the test ends.
func newArena(t testing.TB, dev driver.Device, cfg arena.Config) *arena.Arena {
	t.Helper()
	a, err := arena.New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func openHost(t testing.TB, total int64) driver.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Total: total})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// A region of less than four of the suite's largest blocks, which is more than it ever has live where a request must
// not fail. The device has little else, so that the suite takes it for what is left.
const (
	maxBlock   = 4<<20 - 2
	regionSize = 16<<20 - 4096
	bounceSize = 64 << 10
	deviceSize = regionSize + bounceSize + 144<<10 // the suite keeps 128 KiB for itself
)

func fixed() memtest.Config {
	return memtest.Config{
		Device: func(testing.TB) driver.Device { return sim.New(sim.Options{Total: deviceSize, CallSites: true}) },
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			return newArena(t, dev, arena.Config{Size: regionSize, Bounce: bounceSize})
		},
		MaxBlock: maxBlock, Reserved: regionSize + bounceSize, Waits: true, Alignment: 512,
	}
}

// The pages of a full device leave it a little, in which the bounce area fits.
func paged() memtest.Config {
	return memtest.Config{
		Device: func(testing.TB) driver.Device { return sim.New(sim.Options{Total: 256 << 20, CallSites: true}) },
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			return newArena(t, dev, arena.Config{Page: 8 << 20, Round: 1024, Bounce: bounceSize})
		},
		Reserved: bounceSize, Waits: true, Alignment: 512,
	}
}

// A child of a child is as good as the whole.
func nested(cfg memtest.Config) memtest.Config {
	cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
		root := newArena(t, dev, arena.Config{Size: regionSize + 8192, Bounce: bounceSize})
		middle, err := root.Child(regionSize + 4096)
		if err != nil {
			t.Fatal(err)
		}
		inner, err := middle.Child(regionSize)
		if err != nil {
			t.Fatal(err)
		}
		return family{inner, []*arena.Arena{inner, middle, root}}
	}
	cfg.Reserved += 8192
	cfg.Ops, cfg.Seeds, cfg.FaultOps = 300, 2, 15
	return cfg
}

// A family is an arena that closes its parents too.
type family struct {
	*arena.Arena
	all []*arena.Arena
}

func (f family) Close() error {
	for _, a := range f.all {
		if err := a.Close(); err != nil {
			return err
		}
	}
	return nil
}

// A block of another allocator is as good as memory of the device.
func within(cfg memtest.Config) memtest.Config {
	cfg.New = func(t testing.TB, dev driver.Device) mem.Allocator {
		from := direct.New(dev, direct.Config{})
		a, err := arena.NewFrom(from, dev, dev.DefaultStream(), arena.Config{Size: regionSize, Bounce: bounceSize})
		if err != nil {
			t.Fatal(err)
		}
		return lodger{a, from}
	}
	cfg.Ops, cfg.Seeds, cfg.FaultOps = 300, 2, 15
	return cfg
}

// A lodger is an arena in a block of another allocator, which it closes too.
type lodger struct {
	*arena.Arena
	from *direct.Allocator
}

func (l lodger) Close() error {
	if err := l.Arena.Close(); err != nil {
		return err
	}
	return l.from.Close()
}

func TestConformanceOnSim(t *testing.T) {
	for name, cfg := range map[string]memtest.Config{
		"fixed": fixed(), "paged": paged(), "nested": nested(fixed()), "within": within(fixed()),
	} {
		t.Run(name, func(t *testing.T) { memtest.Run(t, cfg) })
	}
}

func TestConformanceOnHost(t *testing.T) {
	for name, cfg := range map[string]memtest.Config{"fixed": fixed(), "paged": paged()} {
		total := map[string]int64{"fixed": deviceSize, "paged": 256 << 20}[name]
		cfg.Device = func(t testing.TB) driver.Device { return openHost(t, total) }
		cfg.Ops, cfg.Seeds, cfg.FaultOps = 300, 2, 15
		t.Run(name, func(t *testing.T) { memtest.Run(t, cfg) })
	}
}
