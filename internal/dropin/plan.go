package dropin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// plannedBackend is paged memory whose blocks are placed by plans of the program's steps. The plans are made while the
// program runs, or come from a file.
const plannedBackend = "planned"

// packingSteps is the number of steps of packing for a plan (pack.Options.Steps).
const packingSteps = 20

// openAllocator opens the allocator of a device by the settings.
func (g *gpu) openAllocator(dev driver.Device) (mem.Allocator, error) {
	s := g.process.settings
	if s.backend != plannedBackend {
		return mem.Open(s.backend+":"+s.text, dev)
	}
	cfg, err := paged.ParseConfig(s.text)
	if err != nil {
		return nil, err
	}
	if cfg.Page == 0 {
		cfg.Page = dev.Info().Granularity // what is at the edge of a large page would be wasted
	}
	below, err := paged.New(dev, cfg)
	if err != nil {
		return nil, err
	}
	o := planned.LearnOptions{Plan: s.saved, Background: true, Effort: packingSteps}
	saver := &g.process.saver
	if s.plan != "" && (saver.CompareAndSwap(nil, g) || saver.Load() == g) { // it may have failed to open before
		o.Followed = func(p *planned.Plan) { g.process.savePlan(p) }
	}
	l, err := planned.NewLearner(dev, below, o)
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return l, nil
}

// readPlan reads the plan of the settings, if its file exists.
func (s *settings) readPlan() error {
	f, err := os.Open(s.plan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return settingsError("plan: %w", err)
	}
	defer f.Close()
	if s.saved, err = planned.Read(f); err != nil {
		return settingsError("plan: %s: %w", s.plan, err)
	}
	return nil
}

// savePlan writes a plan to the file of the settings, for the next run.
func (p *Process) savePlan(plan *planned.Plan) {
	err := atomicfile.Write(p.settings.plan, atomicfile.Options{}, func(w io.Writer) error {
		_, err := plan.WriteTo(w)
		return err
	})
	if err != nil {
		text := err.Error()
		p.planError.Store(&text)
	}
}

// PlanInfo describes the plans of the devices in lines "KEY: VALUE". It is empty if the backend makes none.
func (p *Process) PlanInfo() string {
	var text strings.Builder
	for i := range p.gpus {
		g := &p.gpus[i]
		if !g.ready.Load() {
			continue
		}
		if l, ok := mem.Find[*planned.Learner](g.alloc); ok {
			c := l.Learned()
			fmt.Fprintf(&text, "plan of device %d: steps=%d plans=%d planned=%d placed=%d departed=%d\n", i, c.Steps,
				c.Plans, c.Planned, c.Placed, c.Departed)
		}
	}
	if failure := p.planError.Load(); failure != nil {
		fmt.Fprintf(&text, "plan was not saved: %s\n", strings.ReplaceAll(*failure, "\n", " "))
	}
	return text.String()
}
