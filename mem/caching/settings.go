package caching

import "github.com/ashlar-go/ashlar/internal/allocconf"

// ParseConfig reads settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as
//
//	max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]
//
// Other settings have their defaults. White space is ignored, booleans are exactly True or False, and a comma may
// follow the last value. There are two keys in addition to PyTorch's: pytorch-exact (see Config.PyTorchExact) and limit
// (bytes, as in 18.2GiB). Keys of PyTorch without effect on this allocator are checked as in PyTorch and accepted;
// notes has a sentence for each. As in PyTorch, a reserve that is not a number is ignored, and so is text after the
// digits of a number; notes reports that, too. An unknown key or an invalid value is an error with its position.
func ParseConfig(settings string) (cfg Config, notes []string, err error) {
	cfg = Default()
	if notes, err = cfg.parse(settings); err != nil {
		return Config{}, nil, err
	}
	return cfg, notes, cfg.Validate()
}

// ParseConfigure is Configure with settings as in ParseConfig. As in PyTorch, each call resets the split limit, the
// round-up divisions and garbage collection to their defaults, and the non-split rounding to the large segment size,
// before it applies the given settings. Other settings stay unless they are given.
func (a *Allocator) ParseConfigure(settings string) (notes []string, err error) {
	err = a.update(func(c *Config) error {
		notes, err = c.parse(settings)
		return err
	})
	return notes, err
}

// parse applies the settings of a string and resets those that every string resets, like PyTorch's parseArgs
// (c10/core/AllocatorConfig.cpp).
func (c *Config) parse(settings string) (notes []string, err error) {
	next := *c
	next.MaxSplitSize = Unlimited
	next.RoundupDivisions = [16]int64{}
	next.GarbageCollectionThreshold = 0
	next.MaxNonSplitRounding = 0
	notes, err = allocconf.Parse("caching", settings, c.LargeSegmentSize, next.set)
	if err == nil {
		*c = next
	}
	return notes, err
}

// set changes the setting of a key. If that has no effect, it returns the reason.
func (c *Config) set(key string, v allocconf.Value) (unused string) {
	switch key {
	case "max_split_size_mb":
		c.MaxSplitSize = v.Int
	case "max_non_split_rounding_mb":
		c.MaxNonSplitRounding = v.Int
	case "large_segment_size_mb":
		c.LargeSegmentSize = v.Int
	case "garbage_collection_threshold":
		c.GarbageCollectionThreshold = v.Float
	case "roundup_power2_divisions":
		c.RoundupDivisions = v.Divisions
	case "expandable_segments":
		c.ExpandableSegments = v.Bool
	case "expandable_segments_reserve":
		if r := v.Reserve; r != (allocconf.Reserve{}) {
			c.ExpandableReserve = Reserve(r)
		}
	case "expandable_segments_reserve_by_class":
		c.ExpandableReserveByClass = make(map[string]Reserve, len(v.Classes))
		for class, r := range v.Classes {
			c.ExpandableReserveByClass[class] = Reserve(r)
		}
	case "per_process_memory_fraction":
		c.MemoryFraction = v.Float
	case "throw_on_cudamalloc_oom":
		c.ThrowOnOOM = v.Bool
	case "release_lock_on_cudamalloc", "release_lock_on_hipmalloc":
		c.ReleaseLock = v.Bool
	case "graph_capture_record_stream_reuse":
		c.GraphCaptureRecordStreamReuse = v.Bool
	case "backend":
		if v.Word != "native" {
			return "this allocator is the native one"
		}
	case "pytorch-exact":
		c.PyTorchExact = v.Bool
	case "limit":
		c.Limit = v.Int
	default:
		return "it is about page-locked host memory, not the device's"
	}
	return ""
}
