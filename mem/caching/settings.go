package caching

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// settingParsers read the value of each key.
var settingParsers map[string]func(p *parser) error

func init() { // breaks the cycle between the table and the errors that list it
	settingParsers = map[string]func(p *parser) error{
		"max_split_size_mb":         func(p *parser) error { return p.atLeastLargeSegment(&p.cfg.MaxSplitSize) },
		"max_non_split_rounding_mb": func(p *parser) error { return p.atLeastLargeSegment(&p.cfg.MaxNonSplitRounding) },
		"large_segment_size_mb": func(p *parser) error {
			n, t, err := p.mebibytes()
			if err == nil && (n <= minLargeAlloc || n >= maxBlockSize) {
				err = p.errorf(t, "want more than %d and less than 2 TiB", minLargeAlloc>>20)
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
			return p.boolean(&p.cfg.GraphCaptureRecordStreamReuse)
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
