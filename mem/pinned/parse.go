package pinned

import "github.com/ashlar-go/ashlar/internal/allocconf"

// ParseConfig reads the settings of this allocator from the text of PYTORCH_ALLOC_CONF, such as
//
//	pinned_use_background_threads:True,pinned_max_round_threshold_mb:128
//
// White space is ignored, booleans are exactly True or False, and a comma may follow the last value. The text may
// contain keys of the device's allocator: their values are checked, as in PyTorch, and ignored (see
// caching.ParseConfig). An unknown key or an invalid value is an error with its position. The caller sets Config.After
// and Config.Clock.
func ParseConfig(settings string) (Config, error) {
	var c Config
	const defaultLargeSegment = 20 << 20 // of mem/caching
	if _, err := allocconf.Parse("pinned", settings, defaultLargeSegment, c.set); err != nil {
		return Config{}, err
	}
	return c, nil
}

// set changes the setting of a key of this allocator.
func (c *Config) set(key string, v allocconf.Value) (unused string) {
	switch key {
	case "pinned_max_round_threshold_mb":
		c.MaxRoundThreshold = sizeOrNone(v.Int)
	case "pinned_max_cached_size_mb":
		c.MaxCachedSize = sizeOrNone(v.Int)
	case "pinned_reserve_segment_size_mb":
		c.ReserveSegment = v.Int
	case "pinned_use_cuda_host_register", "pinned_use_hip_host_register":
		c.HostRegister = v.Bool
	case "pinned_use_background_threads":
		c.BackgroundThreads = v.Bool
	case "pinned_free_catch_all":
		c.FreeCatchAll = v.Bool
	case "pinned_num_register_threads":
		c.RegisterThreads = int(v.Int)
	}
	return ""
}

// sizeOrNone converts a threshold of the text, where 0 MiB means none.
func sizeOrNone(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
