package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// planSteps is the number of steps of packing for the plan of a row (pack.Options.Steps).
const planSteps = 20

// parsePlanned reads a plan from a file or makes one of the work. Paged memory serves the requests outside the plan,
// and all requests if the limit or the device is smaller than the plan's region. A plan that is made of the work has
// room for requests that failed when they were recorded, unless the device is too small for them.
//
// The path learn stands for no file: the work is planned while it runs.
func parsePlanned(s *Spec, path string, given bool, _ caching.Config) error {
	if path == learn {
		s.open = openLearner
		return nil
	}
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
			return openAtOnce(paged.New(dev, paged.Config{Limit: limit}))
		}
		left := &leftover{dev: dev, limit: limit, below: nothing{}}
		if rest := limit - plan.Size(); limit == 0 || rest >= dev.Info().Granularity {
			if left.below, err = paged.New(dev, paged.Config{Limit: max(rest, 0)}); err != nil {
				return nil, err
			}
		}
		a, err := planned.New(dev, plan, planned.Settings{Fallback: left})
		if err != nil {
			return nil, err
		}
		left.above = a
		return AtOnce(a), nil
	}
	return nil
}

const learn = "learn"

// openLearner returns an allocator that plans the work while it runs, over paged memory with small pages.
func openLearner(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
	below, err := paged.New(dev, paged.Config{Limit: limit, Page: dev.Info().Granularity})
	if err != nil {
		return nil, err
	}
	l, err := planned.NewLearner(dev, below, planned.LearnOptions{Effort: planSteps})
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return AtOnce(l), nil
}

// leftover is the fallback of a plan. It uses the memory that the limit leaves beside the region. Its errors describe
// the plan and the fallback together.
type leftover struct {
	dev   driver.Device
	limit int64 // bytes; 0 means no limit
	below mem.Allocator
	above mem.StatsReporter
}

func (l *leftover) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := l.below.Alloc(s, size)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) || oom.TooLarge {
		return b, err
	}
	e := *oom
	info, stats := l.dev.Info(), l.above.Stats()
	e.Device, e.DeviceName, e.Total, e.Stream = info.Ordinal, info.Name, info.TotalMemory, s.ID()
	if free, total, err := l.dev.Available(); err == nil {
		e.Free, e.Total = free, total
	}
	e.Allocated, e.Reserved = stats.AllocatedBytes.All.Current, stats.ReservedBytes.All.Current
	if e.Allowed = l.limit; l.limit > 0 && e.Cause == nil {
		e.Needed = e.Reserved + e.Segment
	}
	e.Remedies = nil // they apply to the fallback only
	return b, &e
}

func (l *leftover) Free(b mem.Block, used ...driver.Stream) { l.below.Free(b, used...) }

// Unwrap implements mem.Wrapper.
func (l *leftover) Unwrap() mem.Allocator { return l.below }

// nothing is an allocator that has no memory.
type nothing struct{}

func (nothing) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size == 0 {
		return mem.Block{}, nil
	}
	return mem.Block{}, &mem.OutOfMemory{Requested: size, Rounded: size, Segment: size}
}

func (nothing) Free(b mem.Block, _ ...driver.Stream) {
	if b != (mem.Block{}) {
		panic("replay: Free of a block that was not allocated")
	}
}
