package caching

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// ParseConfig reads settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as
//
//	max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]
//
// on top of the defaults. White space does not matter, and booleans are exactly True or False. Besides PyTorch's keys
// there is pytorch-exact (see Config.PyTorchExact) and limit (bytes, as in 18.2GiB). Keys of PyTorch's that mean nothing
// to this allocator are checked as there and accepted; notes says which, one sentence each. An unknown key or a bad
// value is an error that names it and its position.
func ParseConfig(settings string) (cfg Config, notes []string, err error) {
	p := &parser{cfg: Default(), tokens: lex(settings)}
	for len(p.tokens) > 0 {
		key := p.tokens[0]
		parse := settingParsers[key.text]
		if parse == nil {
			return Config{}, nil, fmt.Errorf("caching: settings, at %d: unknown key %q; known are %s",
				key.at, key.text, strings.Join(settingKeys(), ", "))
		}
		p.key, p.tokens = key, p.tokens[1:]
		if err := p.expect(":"); err != nil {
			return Config{}, nil, err
		}
		if err := parse(p); err != nil {
			return Config{}, nil, err
		}
		if len(p.tokens) == 0 {
			break
		}
		if err := p.expect(","); err != nil {
			return Config{}, nil, err
		}
		if len(p.tokens) == 0 {
			return Config{}, nil, fmt.Errorf("caching: settings: a key has to follow the last comma")
		}
	}
	if err := p.cfg.Validate(); err != nil {
		return Config{}, nil, err
	}
	return p.cfg, p.notes, nil
}

// ParseConfigure is Configure with settings as in ParseConfig. As in PyTorch, each call starts with the split limit, the
// round-ups and garbage collection at their defaults; the other settings stay unless they are named.
func (a *Allocator) ParseConfigure(settings string) (notes []string, err error) {
	cfg, notes, err := ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	old := a.Config()
	named := map[string]bool{}
	for _, t := range lex(settings) {
		named[t.text] = true
	}
	for key, keep := range map[string]func(){
		"max_non_split_rounding_mb":   func() { cfg.MaxNonSplitRounding = old.MaxNonSplitRounding },
		"large_segment_size_mb":       func() { cfg.LargeSegmentSize = old.LargeSegmentSize },
		"expandable_segments":         func() { cfg.ExpandableSegments = old.ExpandableSegments },
		"per_process_memory_fraction": func() { cfg.MemoryFraction = old.MemoryFraction },
		"throw_on_cudamalloc_oom":     func() { cfg.ThrowOnOOM = old.ThrowOnOOM },
		"release_lock_on_cudamalloc":  func() { cfg.ReleaseLock = old.ReleaseLock },
		"limit":                       func() { cfg.Limit = old.Limit },
		"pytorch-exact":               func() { cfg.PyTorchExact = old.PyTorchExact },
		"expandable_segments_reserve": func() {
			cfg.ExpandableReserve, cfg.ExpandableReserveFraction = old.ExpandableReserve, old.ExpandableReserveFraction
		},
	} {
		if !named[key] {
			keep()
		}
	}
	return notes, a.Configure(cfg)
}

// A token is a delimiter or what stands between delimiters.
type token struct {
	text string
	at   int // byte offset in the settings
}

func lex(s string) []token {
	var tokens []token
	start := -1
	flush := func(end int) {
		if start >= 0 {
			text := strings.Map(func(r rune) rune {
				if r == ' ' || r == '\t' || r == '\n' {
					return -1
				}
				return r
			}, s[start:end])
			tokens = append(tokens, token{text, start})
			start = -1
		}
	}
	for i := range len(s) {
		switch s[i] {
		case ',', ':', '[', ']':
			flush(i)
			tokens = append(tokens, token{s[i : i+1], i})
		case ' ', '\t', '\n':
		default:
			if start < 0 {
				start = i
			}
		}
	}
	flush(len(s))
	return tokens
}

type parser struct {
	cfg    Config
	notes  []string
	key    token // whose value is being read
	tokens []token
}

func (p *parser) errorf(t token, format string, args ...any) error {
	return fmt.Errorf("caching: settings, at %d: %s: %s", t.at, p.key.text, fmt.Sprintf(format, args...))
}

func (p *parser) next() (token, error) {
	if len(p.tokens) == 0 {
		return token{}, p.errorf(p.key, "the value is missing")
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t, nil
}

func (p *parser) expect(delimiter string) error {
	t, err := p.next()
	if err != nil {
		return err
	}
	if t.text != delimiter {
		return p.errorf(t, "want %q, got %q", delimiter, t.text)
	}
	return nil
}

func (p *parser) integer() (int64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil || n < 0 {
		return 0, t, p.errorf(t, "want a whole number, got %q", t.text)
	}
	return n, t, nil
}

// mebibytes reads a number of MiB and returns bytes, cut to what an int64 holds.
func (p *parser) mebibytes() (int64, token, error) {
	n, t, err := p.integer()
	return min(n, 1<<43-1) << 20, t, err
}

func (p *parser) float() (float64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		return 0, t, p.errorf(t, "want a number, got %q", t.text)
	}
	return f, t, nil
}

func (p *parser) boolean(to *bool) error {
	t, err := p.next()
	if err != nil {
		return err
	}
	switch t.text {
	case "True":
		*to = true
	case "False":
		*to = false
	default:
		return p.errorf(t, "want True or False, got %q", t.text)
	}
	return nil
}

func (p *parser) note(why string) {
	p.notes = append(p.notes, p.key.text+" has no effect: "+why)
}

var settingParsers map[string]func(p *parser) error

func init() { // breaks the cycle between the table and the errors that list it
	settingParsers = map[string]func(p *parser) error{
		"max_split_size_mb": func(p *parser) error {
			n, t, err := p.mebibytes()
			if err == nil && n < p.cfg.LargeSegmentSize {
				err = p.errorf(t, "want at least the large segment size, %d", p.cfg.LargeSegmentSize>>20)
			}
			p.cfg.MaxSplitSize = n
			return err
		},
		"max_non_split_rounding_mb": func(p *parser) error {
			n, t, err := p.mebibytes()
			if err == nil && n < p.cfg.LargeSegmentSize {
				err = p.errorf(t, "want at least the large segment size, %d", p.cfg.LargeSegmentSize>>20)
			}
			p.cfg.MaxNonSplitRounding = n
			return err
		},
		"large_segment_size_mb": func(p *parser) error {
			n, t, err := p.mebibytes()
			if err == nil && n <= minLargeAlloc {
				err = p.errorf(t, "want more than %d", minLargeAlloc>>20)
			}
			p.cfg.LargeSegmentSize = n
			return err
		},
		"garbage_collection_threshold": func(p *parser) error {
			f, t, err := p.float()
			if err == nil && !(f > 0 && f < 1) {
				err = p.errorf(t, "want it between 0 and 1, both excluded, got %v", f)
			}
			p.cfg.GarbageCollectionThreshold = f
			return err
		},
		"roundup_power2_divisions": (*parser).roundups,
		"expandable_segments":      func(p *parser) error { return p.boolean(&p.cfg.ExpandableSegments) },
		"expandable_segments_reserve": func(p *parser) error {
			t, err := p.next()
			if err != nil {
				return err
			}
			if f, err := strconv.ParseFloat(t.text, 64); err == nil && f > 0 {
				p.cfg.ExpandableReserveFraction = f
				return nil
			}
			n, err := bytesize.Parse(t.text)
			if err != nil || n == 0 {
				return p.errorf(t, "want a part of the device's memory, such as 1.125, or a size, such as 40G, got %q", t.text)
			}
			p.cfg.ExpandableReserve = n
			return nil
		},
		"expandable_segments_reserve_by_class": func(p *parser) error {
			p.note("all expandable segments take the same reserve (expandable_segments_reserve)")
			return p.skipList()
		},
		"per_process_memory_fraction": func(p *parser) error {
			f, t, err := p.float()
			if err == nil && !(f >= 0 && f <= 1) {
				err = p.errorf(t, "want it in [0, 1], got %v", f)
			}
			p.cfg.MemoryFraction = f
			return err
		},
		"throw_on_cudamalloc_oom":    func(p *parser) error { return p.boolean(&p.cfg.ThrowOnOOM) },
		"release_lock_on_cudamalloc": func(p *parser) error { return p.boolean(&p.cfg.ReleaseLock) },
		"release_lock_on_hipmalloc":  func(p *parser) error { return p.boolean(&p.cfg.ReleaseLock) },
		"backend": func(p *parser) error {
			t, err := p.next()
			if err == nil && t.text != "native" {
				if t.text != "cudaMallocAsync" {
					return p.errorf(t, "want native or cudaMallocAsync, got %q", t.text)
				}
				p.note("this allocator is the native one")
			}
			return err
		},
		"graph_capture_record_stream_reuse": func(p *parser) error {
			p.note("blocks that other streams use wait until a capture ends")
			return p.boolean(new(bool))
		},
		"pinned_use_cuda_host_register": pinnedFlag,
		"pinned_use_hip_host_register":  pinnedFlag,
		"pinned_use_background_threads": pinnedFlag,
		"pinned_free_catch_all":         pinnedFlag,
		"pinned_num_register_threads": func(p *parser) error {
			p.note(pinnedNote)
			n, t, err := p.integer()
			if err == nil && (n < 1 || n > 128 || bits.OnesCount64(uint64(n)) != 1) {
				err = p.errorf(t, "want a power of two from 1 to 128, got %d", n)
			}
			return err
		},
		"pinned_max_round_threshold_mb":  pinnedNumber,
		"pinned_max_cached_size_mb":      pinnedNumber,
		"pinned_reserve_segment_size_mb": pinnedNumber,
		"pytorch-exact":                  func(p *parser) error { return p.boolean(&p.cfg.PyTorchExact) },
		"limit": func(p *parser) error {
			t, err := p.next()
			if err != nil {
				return err
			}
			n, err := bytesize.Parse(t.text)
			if err != nil || n == 0 {
				return p.errorf(t, "want a size, such as 18.2GiB, got %q", t.text)
			}
			p.cfg.Limit = n
			return nil
		},
	}
}

const pinnedNote = "it is about page-locked host memory, not the device's"

func pinnedFlag(p *parser) error {
	p.note(pinnedNote)
	return p.boolean(new(bool))
}

func pinnedNumber(p *parser) error {
	p.note(pinnedNote)
	_, _, err := p.integer()
	return err
}

func settingKeys() []string {
	keys := make([]string, 0, len(settingParsers))
	for key := range settingParsers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// roundups reads one number for all sizes, or a list of intervals: [256:1,512:2,>:4], where a key is the size in MiB
// from which on its value counts. The first value also counts below its key, and > sets all intervals above the last.
func (p *parser) roundups() error {
	table := &p.cfg.RoundupDivisions
	division := func() (int64, error) {
		n, t, err := p.integer()
		if err == nil && n != 0 && bits.OnesCount64(uint64(n)) != 1 {
			err = p.errorf(t, "want a power of two, or 0 for none, got %d", n)
		}
		return n, err
	}
	if len(p.tokens) == 0 || p.tokens[0].text != "[" {
		n, err := division()
		for i := range table {
			table[i] = n
		}
		return err
	}
	p.tokens = p.tokens[1:]
	last := -1
	for {
		key, err := p.next()
		if err != nil {
			return err
		}
		if key.text == "]" && last < 0 {
			return nil
		}
		if err := p.expect(":"); err != nil {
			return err
		}
		n, err := division()
		if err != nil {
			return err
		}
		if key.text == ">" {
			for i := max(last, 0) + 1; i < len(table); i++ {
				table[i] = n
			}
		} else {
			mb, err := strconv.ParseUint(key.text, 10, 64)
			if err != nil || bits.OnesCount64(mb) != 1 {
				return p.errorf(key, "want intervals that start at a power of two of MiB, or >, got %q", key.text)
			}
			at := interval(mb)
			if last < 0 {
				for i := range at {
					table[i] = n
				}
			}
			table[at], last = n, at
		}
		t, err := p.next()
		if err != nil {
			return err
		}
		if t.text == "]" {
			return nil
		}
		if t.text != "," {
			return p.errorf(t, "want \",\" or \"]\", got %q", t.text)
		}
	}
}

// skipList passes over [name:value,...].
func (p *parser) skipList() error {
	if err := p.expect("["); err != nil {
		return err
	}
	for {
		t, err := p.next()
		if err != nil {
			return err
		}
		if t.text == "]" {
			return nil
		}
	}
}
