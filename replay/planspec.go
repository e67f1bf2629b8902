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
// the limit is less than the plan's region.
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
				made, failed = planned.Make(context.Background(), w.Program, planned.Options{Steps: planSteps})
			})
			if plan = made; failed != nil {
				return nil, failed
			}
		}
		if limit > 0 && limit < plan.Size() {
			a, err := paged.New(dev, paged.Config{Limit: limit})
			if err != nil {
				return nil, err
			}
			return AtOnce(a), nil
		}
		var fallback mem.Allocator = nothing{}
		if rest := limit - plan.Size(); limit == 0 || rest >= dev.Info().Granularity {
			var err error
			if fallback, err = paged.New(dev, paged.Config{Limit: max(rest, 0)}); err != nil {
				return nil, err
			}
		}
		a, err := planned.New(dev, plan, planned.Settings{Fallback: fallback})
		if err != nil {
			return nil, err
		}
		return AtOnce(a), nil
	}
	return nil
}

// nothing is an allocator that has no memory.
type nothing struct{}

func (nothing) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size == 0 {
		return mem.Block{}, nil
	}
	return mem.Block{}, &mem.OutOfMemory{Requested: size, Rounded: size}
}

func (nothing) Free(b mem.Block, _ ...driver.Stream) {
	if b != (mem.Block{}) {
		panic("replay: Free of a block that nobody handed out")
	}
}
