package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// AsRecorded is the spec of the allocator and the settings of the recording.
const AsRecorded = "caching"

// A Spec is an allocator and its settings, by name.
type Spec struct {
	Text  string   // as it was given
	Notes []string // of settings without effect

	open   opener
	config caching.Config // of caching
}

// An opener makes an allocator that reserves at most limit bytes of dev; 0 is no limit.
type opener func(dev driver.Device, limit int64) (mem.Allocator, error)

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
	"caching": parseCaching,
}

// Allocators returns the names that specs may begin with, sorted.
func Allocators() []string { return slices.Sorted(maps.Keys(specParsers)) }

// ParseSpec reads a spec NAME[:SETTINGS]. "caching" alone means the recorded settings, "caching:" PyTorch's defaults,
// and "caching:SETTINGS" those, in the syntax of PYTORCH_CUDA_ALLOC_CONF (see caching.ParseConfig). The error is a
// *SpecError.
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
	s.open = func(dev driver.Device, limit int64) (mem.Allocator, error) {
		cfg := s.config
		if cfg.Limit == 0 || limit > 0 && limit < cfg.Limit {
			cfg.Limit = limit
		}
		return caching.New(dev, cfg)
	}
	return nil
}
