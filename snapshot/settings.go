package snapshot

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/ashlar-go/ashlar/pickle"
)

// Settings are the settings of the allocator in the recording process.
type Settings struct {
	Conf                          string // the text of PYTORCH_CUDA_ALLOC_CONF
	MaxSplitSize                  int64  // bytes; -1 if blocks of every size may be split
	GarbageCollectionThreshold    float64
	ExpandableSegments            bool
	RoundupPower2Divisions        []RoundUp // by size; empty if the file does not say
	PinnedNumRegisterThreads      int64
	ReleaseLockOnCudaMalloc       bool
	PinnedUseCudaHostRegister     bool
	GraphCaptureRecordStreamReuse bool

	// Raw is the whole dict of settings, as pickle.Document.Plain returns it. If the file has no settings, Raw is nil
	// and the fields above are meaningless.
	Raw map[string]any
}

// A RoundUp is the number of steps into which sizes from MiB to 2*MiB are divided when requests are rounded up.
type RoundUp struct {
	MiB       int64
	Divisions int64 // 0: not rounded up in steps
}

// settings reads allocator_settings.
func (im *importer) settings(v pickle.Value) (Settings, error) {
	const place = "allocator_settings"
	if v.Kind() == pickle.None {
		return Settings{}, nil
	}
	pairs, err := im.dict(place, v)
	if err != nil {
		return Settings{}, err
	}
	s := Settings{MaxSplitSize: -1}
	r := reading{im: im, drops: true}
	r.fields("", pairs, func(key string, v pickle.Value) bool {
		var bad *problem
		switch key {
		case "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF":
			if text := r.text(key, v); text != "" {
				s.Conf = text
			}
		case "max_split_size":
			s.MaxSplitSize, bad = integer(im.doc, key, v)
		case "garbage_collection_threshold":
			s.GarbageCollectionThreshold, bad = im.number(key, v)
		case "expandable_segments":
			s.ExpandableSegments = r.boolean(key, v)
		case "roundup_power2_divisions":
			s.RoundupPower2Divisions, bad = im.roundUps(key, v)
		case "pinned_num_register_threads":
			s.PinnedNumRegisterThreads, bad = integer(im.doc, key, v)
		case "release_lock_on_cudamalloc":
			s.ReleaseLockOnCudaMalloc = r.boolean(key, v)
		case "pinned_use_cuda_host_register":
			s.PinnedUseCudaHostRegister = r.boolean(key, v)
		case "graph_capture_record_stream_reuse":
			s.GraphCaptureRecordStreamReuse = r.boolean(key, v)
		}
		r.note(bad)
		return true // keys from newer versions are in Raw
	})
	if r.bad != nil {
		return Settings{}, r.bad.at(place)
	}
	s.Raw = make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := im.doc.Str(pairs[i]); ok {
			if s.Raw[key], err = im.plain(pairs[i+1]); err != nil {
				return Settings{}, err
			}
		}
	}
	return s, nil
}

// number reads a float, or an int in place of one.
func (im *importer) number(key string, v pickle.Value) (float64, *problem) {
	if x, ok := im.doc.Float(v); ok {
		return x, nil
	}
	if x, ok := im.doc.Int(v); ok {
		return float64(x), nil
	}
	return 0, wrongType(key, "a float", v)
}

// roundUps reads the divisions, keyed by size in MiB: {"1": 0, "2": 4, ...}.
func (im *importer) roundUps(key string, v pickle.Value) ([]RoundUp, *problem) {
	if v.Kind() != pickle.Dict {
		return nil, wrongType(key, "a dict", v)
	}
	if !im.once(v) {
		return nil, &problem{field: key, reason: "the same dict as an earlier one"}
	}
	var all []RoundUp
	for i, pairs := 0, im.doc.Pairs(v); i+1 < len(pairs); i += 2 {
		text, _ := im.doc.Str(pairs[i])
		mib, err := strconv.ParseInt(text, 10, 64)
		if err != nil || mib <= 0 {
			return nil, &problem{field: key, reason: "want sizes in MiB as keys, got " + quote(text)}
		}
		n, bad := integer(im.doc, key, pairs[i+1])
		if bad != nil {
			return nil, bad
		}
		all = append(all, RoundUp{MiB: mib, Divisions: n})
	}
	slices.SortStableFunc(all, func(a, b RoundUp) int { return cmp.Compare(a.MiB, b.MiB) })
	return all, nil
}
