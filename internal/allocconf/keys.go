package allocconf

import "github.com/ashlar-go/ashlar/internal/bytesize"

// readers read the value of each key: PyTorch's, and those of Ashlar's own (limit, pytorch-exact).
var readers map[string]func(p *parser) (Value, error)

func init() { // breaks the cycle between the table and the errors that list it
	readers = map[string]func(p *parser) (Value, error){
		"max_split_size_mb":         (*parser).atLeastLarge,
		"max_non_split_rounding_mb": (*parser).atLeastLarge,
		"large_segment_size_mb": func(p *parser) (Value, error) {
			n, t, err := p.mebibytes()
			if err == nil && n <= 10<<20 {
				err = p.errorf(t, "want more than 10")
			}
			p.large = n
			return Value{Int: n}, err
		},
		"garbage_collection_threshold": func(p *parser) (Value, error) {
			return p.part(func(f float64) bool { return f > 0 && f < 1 }, "between 0 and 1, both excluded")
		},
		"roundup_power2_divisions": (*parser).roundups,
		"expandable_segments":      (*parser).boolean,
		"expandable_segments_reserve": func(p *parser) (Value, error) {
			r, err := p.reserve()
			return Value{Reserve: r}, err
		},
		"expandable_segments_reserve_by_class": (*parser).classes,
		"per_process_memory_fraction": func(p *parser) (Value, error) {
			return p.part(func(f float64) bool { return f >= 0 && f <= 1 }, "in [0, 1]")
		},
		"throw_on_cudamalloc_oom":    (*parser).boolean,
		"release_lock_on_cudamalloc": (*parser).boolean,
		"release_lock_on_hipmalloc":  (*parser).boolean,
		"backend": func(p *parser) (Value, error) {
			t, err := p.next()
			if err == nil && t.text != "native" && t.text != "cudaMallocAsync" && t.text != "hipMallocAsync" {
				err = p.errorf(t, "want native, cudaMallocAsync or hipMallocAsync, got %q", t.text)
			}
			return Value{Word: t.text}, err
		},
		"graph_capture_record_stream_reuse": (*parser).boolean,
		"pinned_use_cuda_host_register":     (*parser).boolean,
		"pinned_use_hip_host_register":      (*parser).boolean,
		"pinned_use_background_threads":     (*parser).boolean,
		"pinned_free_catch_all":             (*parser).boolean,
		"pinned_num_register_threads": func(p *parser) (Value, error) {
			n, t, err := p.whole()
			if err == nil && (n > 128 || !powerOfTwo(n)) {
				err = p.errorf(t, "want a power of two from 1 to 128, got %d", n)
			}
			return Value{Int: int64(n)}, err
		},
		"pinned_max_round_threshold_mb": (*parser).hostSize,
		"pinned_max_cached_size_mb":     (*parser).hostSize,
		"pinned_reserve_segment_size_mb": func(p *parser) (Value, error) {
			t := p.key
			if len(p.tokens) > 0 {
				t = p.tokens[0]
			}
			v, err := p.hostSize()
			if err == nil && v.Int == 0 {
				err = p.errorf(t, "want more than 0")
			}
			return v, err
		},
		"pytorch-exact": (*parser).boolean,
		"limit": func(p *parser) (Value, error) {
			t, err := p.next()
			if err != nil {
				return Value{}, err
			}
			n, err := bytesize.Parse(t.text)
			if err != nil || n == 0 {
				return Value{}, p.errorf(t, "want a size, such as 18.2GiB, got %q", t.text)
			}
			return Value{Int: n}, nil
		},
	}
}

// hostSize reads a size of page-locked memory in MiB, of which mem/pinned serves 64 TiB at most.
func (p *parser) hostSize() (Value, error) {
	n, t, err := p.mebibytes()
	if err == nil && n > 1<<46 {
		err = p.errorf(t, "want a number of MiB up to %d, got %q", 1<<26, t.text)
	}
	return Value{Int: n}, err
}
