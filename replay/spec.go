package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// AsRecorded is the spec of the allocator and the settings of the recording.
const AsRecorded = "caching"

// A Spec is an allocator and its settings, by name.
type Spec struct {
	Text  string   // as it was given
	Notes []string // what a person should know of the row, such as settings without effect

	open   opener
	config caching.Config // of caching
}

// An opener makes an allocator for work that reserves at most limit bytes of dev; 0 is no limit. It is called for each run,
// of which a search of the smallest limit takes more than ten: what depends on the work alone is worth keeping.
type opener func(w *Work, dev driver.Device, limit int64) (mem.Allocator, error)

// A SpecError is a spec that names no allocator, or bad settings of one.
type SpecError struct {
	Spec string
	Err  error
}

func (e *SpecError) Error() string { return fmt.Sprintf("allocator %q: %v", e.Spec, e.Err) }

// Unwrap returns the reason.
func (e *SpecError) Unwrap() error { return e.Err }

// specParsers are the allocators that work can be compared on. A parser is told whether settings were given at all, and
// what the work was recorded under.
var specParsers = map[string]func(s *Spec, settings string, given bool, recorded caching.Config) error{
	"arena":   parseArena,
	"bfc":     parseBFC,
	"caching": parseCaching,
	"direct":  parseDirect,
	"paged":   parsePaged,
	"planned": parsePlanned,
}

// Allocators returns the names that specs may begin with, sorted.
func Allocators() []string { return slices.Sorted(maps.Keys(specParsers)) }

// ParseSpec reads a spec NAME[:SETTINGS]. "caching" alone means the recorded settings, "caching:" PyTorch's defaults,
// and "caching:SETTINGS" those, in the syntax of PYTORCH_CUDA_ALLOC_CONF (see caching.ParseConfig). The settings of the
// others are in the syntax of their own packages (arena.ParseConfig, bfc.ParseConfig, direct.ParseConfig, paged.ParseConfig).
// "planned" alone means a plan of the very work, and "planned:FILE" one that was written (planned.Read). The error is a
// *SpecError.
//
// An arena reserves its memory page by page, by the device's granularity, as far as it is filled, unless the settings have a
// page or a size. Its region is as large as the limit or, without one, as the device's free memory; blocks are moved when
// it is full. What moving needs beside the region (1 MiB on a GPU, up to 64 MiB elsewhere) counts in no limit.
func ParseSpec(text string, recorded caching.Config) (Spec, error) {
	s := Spec{Text: text}
	name, settings, given := strings.Cut(text, ":")
	parse := specParsers[name]
	if parse == nil {
		names := strings.Join(Allocators(), ", ")
		return s, &SpecError{text, fmt.Errorf("no allocator is named %q; there is: %s", name, names)}
	}
	if err := parse(&s, settings, given, recorded); err != nil {
		return s, &SpecError{text, err}
	}
	return s, nil
}

func parseCaching(s *Spec, settings string, given bool, recorded caching.Config) (err error) {
	s.config = recorded
	s.config.PyTorchExact = true
	if given {
		if s.config, s.Notes, err = caching.ParseConfig(settings); err != nil {
			return err
		}
	}
	s.open = openCaching(s.config)
	return nil
}

// openCaching makes caching allocators.
func openCaching(cfg caching.Config) opener {
	return func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		if cfg.Limit == 0 || limit > 0 && limit < cfg.Limit {
			cfg.Limit = limit
		}
		return caching.New(dev, cfg)
	}
}

func parseArena(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := arena.ParseConfig(settings)
	if err != nil {
		return err
	}
	// What is wrong on every device is said before there is one.
	probe := cfg
	if few := max(cfg.Round, cfg.Page, 1<<20); cfg.Size == 0 || cfg.Size > few {
		probe.Size = few
	}
	dev := sim.New(sim.Options{Unchecked: true, Granularity: 512})
	if _, err := arena.New(dev, probe); err != nil {
		return errors.Join(err, dev.Close())
	}
	if err := dev.Close(); err != nil {
		return err
	}
	s.open = func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		a, err := arena.New(dev, arenaWithin(cfg, dev, limit))
		if err != nil {
			return nil, err
		}
		return AtOnce(a), nil
	}
	return nil
}

// arenaWithin gives an arena the pages and the size that its settings leave open.
func arenaWithin(cfg arena.Config, dev driver.Device, limit int64) arena.Config {
	if cfg.Size == 0 && cfg.Page == 0 && dev.VirtualMemory() != nil {
		cfg.Page = dev.Info().Granularity
	}
	if limit == 0 || cfg.Size > 0 && cfg.Size <= limit {
		return cfg
	}
	if limit < cfg.Page {
		cfg.Page = 0
	}
	cfg.Size = min(limit, max(dev.Info().TotalMemory, cfg.Page)) // there is no more to reserve
	if cfg.Page > 0 {
		cfg.Size -= cfg.Size % cfg.Page // a region is of whole pages
	}
	return cfg
}

func parseBFC(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := bfc.ParseConfig(settings)
	if err != nil {
		return err
	}
	if cfg.Retry != nil {
		cfg.Retry = nil
		s.Notes = append(s.Notes, s.Text+": retry has no effect here, since nothing else frees while a request waits.")
	}
	s.open = func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		if limit > 0 && (cfg.Limit == 0 || limit < cfg.Limit) {
			cfg.Limit = limit
			if cfg.Initial > limit {
				cfg.Initial = limit - limit%dev.Info().Granularity
			}
		}
		a, err := bfc.New(dev, cfg)
		if err != nil {
			return nil, err
		}
		return AtOnce(a), nil
	}
	return nil
}

func parsePaged(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := paged.ParseConfig(settings)
	if err != nil {
		return err
	}
	s.open = func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		if limit > 0 && (cfg.Limit == 0 || limit < cfg.Limit) {
			cfg.Limit = limit
		}
		a, err := paged.New(dev, cfg)
		if err != nil {
			return nil, err
		}
		return AtOnce(a), nil
	}
	return nil
}

func parseDirect(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := direct.ParseConfig(settings)
	if err != nil {
		return err
	}
	s.Notes = []string{s.Text + " asks the driver for each block, and each free waits for all work on the device. What the driver " +
		"rounds sizes up to is not counted."}
	s.open = func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		if cfg.Limit == 0 || limit > 0 && limit < cfg.Limit {
			cfg.Limit = limit
		}
		return AtOnce(direct.New(dev, cfg)), nil
	}
	return nil
}
