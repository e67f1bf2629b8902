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

// AsRecorded is the spec of the recorded allocator and settings.
const AsRecorded = "caching"

// A Spec is an allocator and its settings, by name.
type Spec struct {
	Text  string   // as given to ParseSpec
	Notes []string // remarks for the user about the row, such as settings without effect

	open   opener
	config caching.Config // of caching
}

// An opener makes an allocator for w that reserves at most limit bytes of dev; 0 means no limit. It is called for each
// run, and a search for the smallest limit makes more than ten runs: results that depend on w alone are worth caching.
type opener func(w *Work, dev driver.Device, limit int64) (mem.Allocator, error)

// A SpecError reports a spec that names no allocator or has invalid settings.
type SpecError struct {
	Spec string
	Err  error
}

func (e *SpecError) Error() string { return fmt.Sprintf("allocator %q: %v", e.Spec, e.Err) }

// Unwrap returns the reason.
func (e *SpecError) Unwrap() error { return e.Err }

// specParsers are the allocators that work can be compared on, by name. Each parser sets s.open. given is false if the
// spec has no settings; recorded holds the settings of the recording.
var specParsers = map[string]func(s *Spec, settings string, given bool, recorded caching.Config) error{
	"arena":   parseArena,
	"bfc":     parseBFC,
	"caching": parseCaching,
	"direct":  parseDirect,
	"paged":   parsePaged,
	"planned": parsePlanned,
}

// Allocators returns the allocator names of specs, sorted.
func Allocators() []string { return slices.Sorted(maps.Keys(specParsers)) }

// ParseSpec parses a spec NAME[:SETTINGS]. "caching" alone has the recorded settings, "caching:" has PyTorch's
// defaults, and "caching:SETTINGS" has the given ones in the syntax of PYTORCH_CUDA_ALLOC_CONF (see
// caching.ParseConfig). The settings of the other allocators are in the syntax of their packages (arena.ParseConfig,
// bfc.ParseConfig, direct.ParseConfig, paged.ParseConfig). "planned" alone makes a plan of the work itself;
// "planned:FILE" reads one (planned.Read), and "planned:learn" plans the work while it runs (planned.Learner). The
// error is a *SpecError.
//
// An arena reserves its memory by pages of the device's granularity as it fills, unless the settings have a page or a
// size. Its region is as large as the limit or, without a limit, as the device's free memory. It moves blocks when it
// is full. The memory that moving needs outside the region (1 MiB on a GPU, up to 64 MiB elsewhere) is not part of the
// limit.
func ParseSpec(text string, recorded caching.Config) (Spec, error) {
	s := Spec{Text: text}
	name, settings, given := strings.Cut(text, ":")
	parse := specParsers[name]
	if parse == nil {
		names := strings.Join(Allocators(), ", ")
		return s, &SpecError{text, fmt.Errorf("unknown name %q: want one of %s", name, names)}
	}
	if err := parse(&s, settings, given, recorded); err != nil {
		return s, &SpecError{text, err}
	}
	return s, nil
}

// lower returns the lower of two limits in bytes, where 0 means no limit.
func lower(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// openAtOnce wraps a new allocator with AtOnce.
func openAtOnce[A mem.Allocator](a A, err error) (mem.Allocator, error) {
	if err != nil {
		return nil, err
	}
	return AtOnce(a), nil
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

// openCaching returns an opener of caching allocators.
func openCaching(cfg caching.Config) opener {
	return func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		cfg.Limit = lower(cfg.Limit, limit)
		return caching.New(dev, cfg)
	}
}

func parseArena(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := arena.ParseConfig(settings)
	if err != nil {
		return err
	}
	// Settings that are invalid on every device are reported before a device is opened.
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
		return openAtOnce(arena.New(dev, arenaWithin(cfg, dev, limit)))
	}
	return nil
}

// arenaWithin sets the page and the size of an arena if the settings do not.
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
	cfg.Size = min(limit, max(dev.Info().TotalMemory, cfg.Page)) // the device's memory is the maximum
	if cfg.Page > 0 {
		cfg.Size -= cfg.Size % cfg.Page // a region consists of whole pages
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
		own, cfg := cfg.Limit, cfg
		if cfg.Limit = lower(own, limit); cfg.Limit != own && cfg.Initial > limit {
			cfg.Initial = limit - limit%dev.Info().Granularity
		}
		return openAtOnce(bfc.New(dev, cfg))
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
		cfg.Limit = lower(cfg.Limit, limit)
		return openAtOnce(paged.New(dev, cfg))
	}
	return nil
}

func parseDirect(s *Spec, settings string, _ bool, _ caching.Config) error {
	cfg, err := direct.ParseConfig(settings)
	if err != nil {
		return err
	}
	s.Notes = []string{s.Text + " asks the driver for each block, and each free waits for all work on the device. " +
		"What the driver rounds sizes up to is not counted."}
	s.open = func(_ *Work, dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := cfg
		cfg.Limit = lower(cfg.Limit, limit)
		return AtOnce(direct.New(dev, cfg)), nil
	}
	return nil
}
