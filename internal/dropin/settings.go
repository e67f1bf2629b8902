package dropin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// settings are the choices of the program that uses the library. Their text has the syntax of PYTORCH_ALLOC_CONF:
//
//	backend:paged,limit:18GiB,spare:1GiB
type settings struct {
	backend string // the allocator's name, for mem.Open
	text    string // the backend's own settings, in its own syntax
	limit   int64  // bytes per device; 0 is none
	host    int64  // bytes of host memory for contents of paused memory; 0 is no limit

	plan  string        // the file of the plan, of the backend planned
	saved *planned.Plan // what it had at the start
}

// A backend is an allocator that settings may name.
type backend struct {
	assign string // separates a key from its value: PyTorch's syntax for mem/caching, Ashlar's for the others
	check  func(settings string) error
}

var backends = map[string]backend{
	"paged":   {"=", checkPaged},
	"planned": {"=", checkPaged},
	"caching": {":", func(text string) error { _, _, err := caching.ParseConfig(text); return err }},
	"bfc":     {"=", func(text string) error { _, err := bfc.ParseConfig(text); return err }},
	"arena":   {"=", func(text string) error { _, err := arena.ParseConfig(text); return err }},
}

func checkPaged(text string) error { _, err := paged.ParseConfig(text); return err }

// parseSettings parses settings. All keys except backend, limit, host and plan belong to the backend.
func parseSettings(text string) (settings, error) {
	s := settings{backend: "paged"}
	text = strings.TrimSuffix(strings.TrimSpace(text), ",")
	if text == "" {
		return s, nil
	}
	var others [][2]string
	seen := map[string]bool{}
	for _, part := range allocconf.Split(text) {
		key, value, ok := strings.Cut(part, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || key == "" || value == "":
			return s, settingsError("%q is not of the form key:value", strings.TrimSpace(part))
		case seen[key]:
			return s, settingsError("%q is given twice", key)
		}
		seen[key] = true
		switch key {
		case "backend":
			if _, ok := backends[value]; !ok {
				return s, settingsError("unknown backend %q; known are %s", value, names())
			}
			s.backend = value
		case "limit", "host":
			n, err := bytesize.Parse(value)
			if err != nil {
				return s, settingsError("%s: %w", key, err)
			}
			if key == "limit" {
				s.limit = n
			} else {
				s.host = n
			}
		case "plan":
			s.plan = value
		default:
			others = append(others, [2]string{key, value})
		}
	}
	if s.plan != "" && s.backend != plannedBackend {
		return s, settingsError("plan needs backend:%s, not %s", plannedBackend, s.backend)
	}
	b := backends[s.backend]
	for i, setting := range others {
		if i > 0 {
			s.text += ","
		}
		s.text += setting[0] + b.assign + setting[1]
	}
	if err := b.check(s.text); err != nil {
		return s, settingsError("%w", err)
	}
	return s, nil
}

// prepareForPeers changes defaults for a process with several devices, which may use each other's memory: see
// paged.Allocator.AddPeer.
func (s *settings) prepareForPeers() {
	if s.backend != "paged" && s.backend != plannedBackend || strings.Contains(s.text, "aliases=") {
		return
	}
	if s.text != "" {
		s.text += ","
	}
	s.text += "aliases=off"
}

func settingsError(format string, args ...any) error {
	return fmt.Errorf("%w: settings: %w", ErrInvalid, fmt.Errorf(format, args...))
}

func names() string {
	var all []string
	for name := range backends {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
