package tune

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
)

// A key of PYTORCH_CUDA_ALLOC_CONF, with the values to try in ascending order.
type key struct {
	name   string
	values []string
	first  []int // indices of the values that are tried before any other
}

// The keys that change how much memory is needed, the most promising first. Sizes are MiB. The values of a key are
// those that its users report, about a factor of two apart.
var keys = []key{
	expandable:   {"expandable_segments", []string{"True"}, []int{0}},
	splitLimit:   {"max_split_size_mb", []string{"32", "64", "128", "256", "512", "1024"}, []int{1, 3}},
	divisions:    {"roundup_power2_divisions", []string{"2", "4", "8", "16", "32"}, []int{1, 3}},
	collection:   {"garbage_collection_threshold", []string{"0.6", "0.8", "0.9"}, []int{1}},
	largeSegment: {"large_segment_size_mb", []string{"12", "32", "64", "128"}, []int{0, 2}},
	noSplitRound: {"max_non_split_rounding_mb", []string{"64", "256", "1024"}, nil},
}

// Indices into keys.
const (
	expandable = iota
	splitLimit
	divisions
	collection
	largeSegment
	noSplitRound
	numKeys
)

// unset in a setting means that the key is not in it.
const unset = -1

// A setting has the index of a value for each of keys, or unset.
type setting [numKeys]int

var defaults = setting{unset, unset, unset, unset, unset, unset}

// with returns s with another value of a key.
func (s setting) with(key, value int) setting {
	s[key] = value
	return s
}

// size is the number of keys in s, or 1 if s is PyTorch's defaults, since that is a change, too.
func (s setting) size() int {
	n := 0
	for _, value := range s {
		if value != unset {
			n++
		}
	}
	return max(n, 1)
}

// A space is the settings that may be tried.
type space struct {
	keep string // settings that all of them have
	kept [numKeys]bool
}

func newSpace(keep string) (*space, error) {
	cfg, _, err := caching.ParseConfig(keep)
	if err != nil {
		return nil, &replay.SpecError{Spec: replay.AsRecorded + ":" + keep, Err: err}
	}
	sp := &space{keep: strings.Trim(strings.TrimSpace(keep), ",")}
	for _, part := range allocconf.Split(sp.keep) {
		name, _, _ := strings.Cut(part, ":")
		for k := range keys {
			sp.kept[k] = sp.kept[k] || keys[k].name == strings.TrimSpace(name)
		}
	}
	if cfg.ExpandableSegments {
		for _, k := range withoutEffect {
			sp.kept[k] = true
		}
	}
	return sp, nil
}

// withoutEffect are the keys that do nothing for expandable segments, or only harm: their blocks are always split, and
// are not collected (c10/cuda/CUDACachingAllocator.cpp).
var withoutEffect = []int{splitLimit, noSplitRound, collection}

// text returns s in the syntax of PYTORCH_CUDA_ALLOC_CONF, without the settings to keep.
func (s setting) text() string {
	var parts []string
	for k, value := range s {
		if value != unset {
			parts = append(parts, keys[k].name+":"+keys[k].values[value])
		}
	}
	return strings.Join(parts, ",")
}

// Join joins settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, without empty ones.
func Join(settings ...string) string {
	settings = slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return s == "" })
	return strings.Join(settings, ",")
}

// full returns s with the settings to keep.
func (sp *space) full(s setting) string { return Join(sp.keep, s.text()) }

// spec returns the allocator of s. Its policy is PyTorch's in every detail, as that of the recorded settings.
func (sp *space) spec(s setting) string {
	return replay.AsRecorded + ":" + Join(sp.full(s), "pytorch-exact:True")
}

// Varies reports whether Search tries values of a key of PYTORCH_CUDA_ALLOC_CONF.
func Varies(name string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return k.name == name })
}

// valid reports whether s makes sense: no key is one of those to keep or without effect, and the values agree.
func (sp *space) valid(s setting) bool {
	for k, value := range s {
		if value != unset && sp.kept[k] {
			return false
		}
	}
	if s[expandable] != unset && slices.ContainsFunc(withoutEffect, func(k int) bool { return s[k] != unset }) {
		return false
	}
	if s[noSplitRound] != unset && s[splitLimit] == unset {
		return false
	}
	_, _, err := caching.ParseConfig(sp.full(s))
	return err == nil
}

// recorded reports whether s is the settings of all works.
func (sp *space) recorded(s setting, works []*replay.Work) bool {
	return !slices.ContainsFunc(works, func(w *replay.Work) bool { return sp.differences(s, w) > 0 })
}

// differences returns how many settings of a recording are other than with s.
func (sp *space) differences(s setting, w *replay.Work) (n int) {
	cfg, _, err := caching.ParseConfig(sp.full(s))
	if err != nil {
		return math.MaxInt
	}
	cfg.PyTorchExact = w.Recorded.PyTorchExact
	a, b := reflect.ValueOf(cfg), reflect.ValueOf(w.Recorded)
	for i := range a.NumField() {
		if a.Type().Field(i).IsExported() && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			n++
		}
	}
	return n
}

// nearest returns the setting next to that of a recording: equal to it in each key, if the space has its value.
func (sp *space) nearest(w *replay.Work) setting {
	s := defaults
	for k := range keys {
		for value := range keys[k].values {
			if t := s.with(k, value); sp.differences(t, w) < sp.differences(s, w) {
				s = t
			}
		}
	}
	return s
}

// start returns the settings to begin with: PyTorch's defaults, the first values of each key alone, and the neighbors
// of the settings that all works were recorded with.
func (sp *space) start(works []*replay.Work) []setting {
	all := []setting{defaults}
	for k := range keys {
		for _, value := range keys[k].first {
			all = append(all, defaults.with(k, value))
		}
	}
	near := sp.nearest(works[0])
	if near == defaults || slices.ContainsFunc(works, func(w *replay.Work) bool { return sp.nearest(w) != near }) {
		return all
	}
	for _, s := range append([]setting{near}, sp.neighbors(near)...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// neighbors returns the settings next to s: with the next smaller or larger value of one of its keys; and with one key
// more, which has one of its first values, or any value if it has no first ones.
func (sp *space) neighbors(s setting) []setting {
	var near, more []setting
	for k, value := range s {
		switch {
		case value != unset:
			if value > 0 {
				near = append(near, s.with(k, value-1))
			}
			if value+1 < len(keys[k].values) {
				near = append(near, s.with(k, value+1))
			}
		case len(keys[k].first) > 0:
			for _, value := range keys[k].first {
				more = append(more, s.with(k, value))
			}
		default:
			for value := range keys[k].values {
				more = append(more, s.with(k, value))
			}
		}
	}
	return append(near, more...)
}
