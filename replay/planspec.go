package replay

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// planSteps is how many orders the packing of a plan looks at that is made for a row.
const planSteps = 20

// parsePlanned takes a plan from a file, or has one made of the work. What it does not serve is paged memory's, and so is all if
// the limit, or the device, has less than the plan's region. Requests that failed when they were recorded have their places in a
// plan that is made, unless the device is too small for them.
func parsePlanned(s *Spec, path string, given bool, _ caching.Config) error {
	var fromFile *planned.Plan
	if given {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if fromFile, err = planned.Read(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	var once sync.Once
	var made *planned.Plan
	var failed error
	s.open = func(w *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		plan := fromFile
		if plan == nil {
			once.Do(func() {
				p := w.Program.Within(dev.Info().TotalMemory)
				made, failed = planned.Make(context.Background(), p, planned.Options{Steps: planSteps})
			})
			if plan = made; failed != nil {
				return nil, failed
			}
		}
		free, _, err := dev.Available()
		if err != nil {
			return nil, err
		}
		if free < plan.Size() || limit > 0 && limit < plan.Size() {
			a, err := paged.New(dev, paged.Config{Limit: limit})
			if err != nil {
				return nil, err
			}
			return AtOnce(a), nil
		}
		full := &nothing{dev: dev, limit: limit}
		var fallback mem.Allocator = full
		if rest := limit - plan.Size(); limit == 0 || rest >= dev.Info().Granularity {
			if fallback, err = paged.New(dev, paged.Config{Limit: max(rest, 0)}); err != nil {
				return nil, err
			}
		}
		a, err := planned.New(dev, plan, planned.Settings{Fallback: fallback})
		if err != nil {
			return nil, err
		}
		full.above = a
		return AtOnce(a), nil
	}
	return nil
}

// nothing is the fallback of a plan whose region is all that the limit allows.
type nothing struct {
	dev   driver.Device
	limit int64 // bytes
	above mem.StatsReporter
}

func (n *nothing) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size == 0 {
		return mem.Block{}, nil
	}
	info, stats := n.dev.Info(), n.above.Stats()
	e := &mem.OutOfMemory{
		Requested: size, Rounded: size, Segment: size, Device: info.Ordinal, DeviceName: info.Name, Total: info.TotalMemory,
		Allowed: n.limit, Allocated: stats.AllocatedBytes.All.Current, Reserved: stats.ReservedBytes.All.Current, Stream: s.ID(),
	}
	if n.limit > 0 {
		e.Needed = e.Reserved + size
	}
	if free, total, err := n.dev.Available(); err == nil {
		e.Free, e.Total = free, total
	}
	return mem.Block{}, e
}

func (*nothing) Free(b mem.Block, _ ...driver.Stream) {
	if b != (mem.Block{}) {
		panic("replay: Free of a block that nobody handed out")
	}
}
