package pinned

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseConfig reads the settings of this allocator from the text of PYTORCH_ALLOC_CONF, such as
//
//	pinned_use_background_threads:True,pinned_max_round_threshold_mb:128
//
// White space does not matter, and booleans are exactly True or False. The keys of the device's allocator may be there
// too and are left to it (mem/caching checks their values). An unknown key or a bad value is an error that names it and
// its position. Config.After and Config.Clock are for the caller to set.
func ParseConfig(settings string) (Config, error) {
	var c Config
	for at := 0; strings.TrimSpace(settings[at:]) != ""; {
		at += len(settings[at:]) - len(strings.TrimLeft(settings[at:], " \t\n"))
		end := at + fieldEnd(settings[at:])
		key, value, given := strings.Cut(settings[at:end], ":")
		key, value = squeeze(key), squeeze(value)
		var err error
		switch parse := settingParsers[key]; {
		case parse == nil && !slices.Contains(deviceKeys, key):
			err = fmt.Errorf("unknown key %q; known are %s, and those of the device's allocator",
				key, strings.Join(settingKeys(), ", "))
		case !given:
			err = fmt.Errorf("%s: want a colon and a value", key)
		case parse != nil:
			if err = parse(&c, value); err != nil {
				err = fmt.Errorf("%s: %w", key, err)
			}
		}
		if err != nil {
			return Config{}, fmt.Errorf("pinned: settings, at %d: %w", at, err)
		}
		if end == len(settings) {
			break
		}
		if at = end + 1; strings.TrimSpace(settings[at:]) == "" {
			return Config{}, fmt.Errorf("pinned: settings: a key has to follow the last comma")
		}
	}
	return c, nil
}

// fieldEnd is where a setting ends: at a comma that is in no list, or with the text.
func fieldEnd(s string) int {
	list := false
	for i := range len(s) {
		switch s[i] {
		case '[':
			list = true
		case ']':
			list = false
		case ',':
			if !list {
				return i
			}
		}
	}
	return len(s)
}

// squeeze takes all white space out.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// settingParsers read the value of each key of this allocator.
var settingParsers = map[string]func(c *Config, value string) error{
	"pinned_max_round_threshold_mb": func(c *Config, value string) error {
		return sizeOrNone(&c.MaxRoundThreshold, value)
	},
	"pinned_max_cached_size_mb": func(c *Config, value string) error { return sizeOrNone(&c.MaxCachedSize, value) },
	"pinned_reserve_segment_size_mb": func(c *Config, value string) (err error) {
		c.ReserveSegment, err = mebibytes(value)
		return err
	},
	"pinned_use_cuda_host_register": func(c *Config, value string) error { return boolean(&c.HostRegister, value) },
	"pinned_use_hip_host_register":  func(c *Config, value string) error { return boolean(&c.HostRegister, value) },
	"pinned_use_background_threads": func(c *Config, value string) error { return boolean(&c.BackgroundThreads, value) },
	"pinned_free_catch_all":         func(c *Config, value string) error { return boolean(&c.FreeCatchAll, value) },
	"pinned_num_register_threads": func(c *Config, value string) error {
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n < 1 || n > maxRegisterThreads || n&(n-1) != 0 {
			return fmt.Errorf("want a power of two from 1 to %d, got %q", maxRegisterThreads, value)
		}
		c.RegisterThreads = int(n)
		return nil
	},
}

// deviceKeys are the settings of the device's allocator, as mem/caching knows them.
var deviceKeys = []string{
	"backend", "expandable_segments", "expandable_segments_reserve", "expandable_segments_reserve_by_class",
	"garbage_collection_threshold", "graph_capture_record_stream_reuse", "large_segment_size_mb", "limit",
	"max_non_split_rounding_mb", "max_split_size_mb", "per_process_memory_fraction", "pytorch-exact",
	"release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "roundup_power2_divisions", "throw_on_cudamalloc_oom",
}

func settingKeys() []string {
	keys := make([]string, 0, len(settingParsers))
	for key := range settingParsers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func boolean(to *bool, value string) error {
	if value != "True" && value != "False" {
		return fmt.Errorf("want True or False, got %q", value)
	}
	*to = value == "True"
	return nil
}

func mebibytes(value string) (int64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n > 1<<(maxBits-20) {
		return 0, fmt.Errorf("want a number of MiB up to %d, got %q", int64(1)<<(maxBits-20), value)
	}
	return int64(n) << 20, nil
}

// sizeOrNone reads a threshold: 0 MiB is none.
func sizeOrNone(to *int64, value string) error {
	n, err := mebibytes(value)
	if n == 0 {
		n = -1
	}
	*to = n
	return err
}
