package arena_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// newArena makes an arena, and checks its invariants when the test ends.
func newArena(t testing.TB, dev driver.Device, cfg arena.Config) *arena.Arena {
	t.Helper()
	return memtest.New(t, arena.New, dev, cfg)
}

// A region of less than four of the suite's largest blocks, which is more than it ever has live where a request must
// not fail. The device has little else, so that the suite takes it for what is left.
const (
	maxBlock   = 4<<20 - 2
	regionSize = 16<<20 - 4096
	bounceSize = 64 << 10
	deviceSize = regionSize + bounceSize + 144<<10 // the suite keeps 128 KiB for itself
)

func TestConformance(t *testing.T) {
	fixed := memtest.Config{
		Sim:      sim.Options{Total: deviceSize},
		MaxBlock: maxBlock, Reserved: regionSize + bounceSize, Waits: true, Alignment: 512,
	}
	memtest.RunAll(t, fixed, arena.New, map[string]arena.Config{"fixed": {Size: regionSize, Bounce: bounceSize}})

	// The pages of a full device leave it a little, in which the bounce area fits.
	paged := memtest.Config{Reserved: bounceSize, Waits: true, Alignment: 512}
	memtest.RunAll(t, paged, arena.New, map[string]arena.Config{"paged": {Page: 8 << 20, Round: 1024, Bounce: bounceSize}})

	fixed.Ops, fixed.Seeds, fixed.FaultOps = 300, 2, 15
	memtest.RunAll(t, fixed, newWithin, map[string]arena.Config{"within": {Size: regionSize, Bounce: bounceSize}})
	fixed.Reserved += 8192
	memtest.RunAll(t, fixed, newNested, map[string]arena.Config{"nested": {Size: regionSize + 8192, Bounce: bounceSize}})
}

// newNested returns a child of a child, which is as good as the whole.
func newNested(dev driver.Device, cfg arena.Config) (family, error) {
	root, err := arena.New(dev, cfg)
	if err != nil {
		return family{}, err
	}
	middle, err := root.Child(regionSize + 4096)
	if err != nil {
		return family{}, err
	}
	inner, err := middle.Child(regionSize)
	return family{inner, []*arena.Arena{inner, middle, root}}, err
}

// A family is an arena that closes and checks its parents too.
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

func (f family) Check() error {
	var errs []error
	for _, a := range f.all {
		errs = append(errs, a.Check())
	}
	return errors.Join(errs...)
}

// newWithin returns an arena in a block of another allocator, which is as good as memory of the device.
func newWithin(dev driver.Device, cfg arena.Config) (lodger, error) {
	from := direct.New(dev, direct.Config{})
	a, err := arena.NewFrom(from, dev, dev.DefaultStream(), cfg)
	return lodger{a, from}, err
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
