package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/mem/caching"
)

// SettingsOf returns the settings of a caching allocator as in PyTorch's files: Raw with all its keys, and Conf with
// the settings that differ from the defaults, in the syntax of caching.ParseConfig. Conf omits settings that this
// syntax cannot express and rounds sizes down to whole MiB. MaxSplitSize and Raw have the exact sizes.
func SettingsOf(c caching.Config) Settings {
	s := Settings{
		Conf: confOf(&c), MaxSplitSize: c.MaxSplitSize, GarbageCollectionThreshold: c.GarbageCollectionThreshold,
		ExpandableSegments: c.ExpandableSegments, ReleaseLockOnCudaMalloc: c.ReleaseLock, PinnedNumRegisterThreads: 1,
		GraphCaptureRecordStreamReuse: c.GraphCaptureRecordStreamReuse,
	}
	if c.MaxSplitSize == caching.Unlimited {
		s.MaxSplitSize = -1
	}
	roundups := map[string]any{}
	for i, n := range c.RoundupDivisions {
		s.RoundupPower2Divisions = append(s.RoundupPower2Divisions, RoundUp{MiB: 1 << i, Divisions: n})
		roundups[strconv.Itoa(1<<i)] = n
	}
	s.Raw = map[string]any{
		"PYTORCH_CUDA_ALLOC_CONF":           s.Conf,
		"max_split_size":                    s.MaxSplitSize,
		"garbage_collection_threshold":      s.GarbageCollectionThreshold,
		"expandable_segments":               s.ExpandableSegments,
		"pinned_num_register_threads":       s.PinnedNumRegisterThreads,
		"release_lock_on_cudamalloc":        s.ReleaseLockOnCudaMalloc,
		"pinned_use_cuda_host_register":     s.PinnedUseCudaHostRegister,
		"graph_capture_record_stream_reuse": s.GraphCaptureRecordStreamReuse,
		"roundup_power2_divisions":          roundups,
	}
	return s
}

// confOf formats the settings that differ from the defaults.
func confOf(c *caching.Config) string {
	const mib = 1 << 20
	base := caching.Default()
	var all []string
	set := func(differs bool, key string, value any) {
		longer := append(slices.Clip(all), fmt.Sprintf("%s:%v", key, value))
		if _, _, err := caching.ParseConfig(strings.Join(longer, ",")); differs && err == nil {
			all = longer
		}
	}
	truth := func(b bool, key string) { set(b, key, "True") }
	set(c.LargeSegmentSize != base.LargeSegmentSize, "large_segment_size_mb", c.LargeSegmentSize/mib)
	set(c.MaxSplitSize != caching.Unlimited, "max_split_size_mb", c.MaxSplitSize/mib)
	rounding := c.MaxNonSplitRounding
	set(rounding != 0 && rounding != c.LargeSegmentSize, "max_non_split_rounding_mb", rounding/mib)
	set(c.RoundupDivisions != base.RoundupDivisions, "roundup_power2_divisions", roundUpText(c.RoundupDivisions[:]))
	set(c.GarbageCollectionThreshold != 0, "garbage_collection_threshold", c.GarbageCollectionThreshold)
	truth(c.ExpandableSegments, "expandable_segments")
	set(c.ExpandableReserve != (caching.Reserve{}), "expandable_segments_reserve", reserveText(c.ExpandableReserve))
	if classes := c.ExpandableReserveByClass; len(classes) > 0 {
		var entries []string
		for _, class := range slices.Sorted(maps.Keys(classes)) {
			entries = append(entries, class+":"+reserveText(classes[class]))
		}
		set(true, "expandable_segments_reserve_by_class", "["+strings.Join(entries, ",")+"]")
	}
	set(c.MemoryFraction != 1, "per_process_memory_fraction", c.MemoryFraction)
	truth(c.ThrowOnOOM, "throw_on_cudamalloc_oom")
	truth(c.ReleaseLock, "release_lock_on_cudamalloc")
	truth(c.GraphCaptureRecordStreamReuse, "graph_capture_record_stream_reuse")
	set(c.Limit != 0, "limit", c.Limit)
	truth(c.PyTorchExact, "pytorch-exact")
	return strings.Join(all, ",")
}

// reserveText formats a reserve in GiB, or as a fraction of the device's memory.
func reserveText(r caching.Reserve) string {
	if r.Bytes != 0 {
		return strconv.FormatFloat(float64(r.Bytes)/(1<<30), 'g', -1, 64) + "G"
	}
	return fmt.Sprint(r.Fraction)
}

// roundUpText formats the divisions: one number for all sizes, or one for each size.
func roundUpText(divisions []int64) string {
	if len(slices.Compact(slices.Clone(divisions))) == 1 {
		return fmt.Sprint(divisions[0])
	}
	all := make([]string, len(divisions))
	for i, n := range divisions {
		all[i] = fmt.Sprintf("%d:%d", 1<<i, n)
	}
	return "[" + strings.Join(all, ",") + "]"
}
