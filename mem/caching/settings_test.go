package caching_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
)

func TestBehaviour16_RoundUps(t *testing.T) {
	b := newBench(t, gib, "roundup_power2_divisions:4")
	block := b.alloc(84 * mib)
	testkit.Equal(t, "allocated", b.Stats().AllocatedBytes.All.Current, 96*mib)
	testkit.Equal(t, "requested", b.Stats().RequestedBytes.All.Current, 84*mib)
	b.Free(block)
}

func TestBehaviour17_RoundUpsByInterval(t *testing.T) {
	b := newBench(t, 2*gib, "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
	for _, c := range []struct {
		settings   string
		size, want int64
	}{
		{"", 0, 0}, // as opened
		{"roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]", 84, 88},
		{"roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]", 400, 512},
		{"max_split_size_mb:200", 84, 84}, // other keys turn round-ups off
	} {
		if c.size == 0 {
			continue
		}
		b.configure(c.settings)
		block := b.alloc(c.size*mib - 100)
		testkit.Equal(t, c.settings, block.Size>>20<<20, c.want*mib)
		b.Free(block)
		b.emptyCache()
	}
}

func divisions(t *testing.T, settings string) map[int]int64 {
	t.Helper()
	cfg, _, err := caching.ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	m := map[int]int64{}
	for i, d := range cfg.RoundupDivisions {
		m[1<<i] = d
	}
	return m
}

func TestBehaviour18_IntervalsFillBackAndForth(t *testing.T) {
	got := divisions(t, "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
	for mb, want := range map[int]int64{1: 8, 32: 8, 64: 8, 128: 2, 256: 4, 512: 2, 1024: 4, 2048: 1, 4096: 1, 32768: 1} {
		testkit.Equal(t, "divisions", got[mb], want)
	}
}

// A gap between intervals has no round-ups: each parse starts anew.
func TestBehaviour19_IntervalsWithAGap(t *testing.T) {
	b := newBench(t, gib, "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
	b.configure("roundup_power2_divisions:[128:8,256:16,512:1,2048:8,>:2]")
	got := b.Config().RoundupDivisions
	for i, want := range map[int]int64{6: 8, 7: 8, 8: 16, 9: 1, 10: 0, 11: 8, 12: 2, 15: 2} {
		testkit.Equal(t, "divisions", got[i], want)
	}
}

func TestBehaviour20_BadSettings(t *testing.T) {
	for settings, want := range map[string]string{
		"unknown_key:1":                                "at 0: unknown key \"unknown_key\"",
		"garbage_collection_threshold:1.2":             "at 29: garbage_collection_threshold: want it between 0 and 1",
		"garbage_collection_threshold:0":               "garbage_collection_threshold: want it between 0 and 1",
		"garbage_collection_threshold:nan":             "garbage_collection_threshold: want it between 0 and 1",
		"max_split_size_mb:2":                          "at 18: max_split_size_mb: want at least the large segment size, 20",
		"max_non_split_rounding_mb:1":                  "max_non_split_rounding_mb: want at least",
		"large_segment_size_mb:10":                     "large_segment_size_mb: want more than 10",
		"expandable_segments:true":                     "expandable_segments: want True or False, got \"true\"",
		"expandable_segments:1":                        "expandable_segments: want True or False",
		"release_lock_on_cudamalloc:none":              "release_lock_on_cudamalloc: want True or False",
		"pinned_num_register_threads:none":             "pinned_num_register_threads: want a whole number",
		"pinned_num_register_threads:1024":             "pinned_num_register_threads: want a power of two from 1 to 128",
		"pinned_use_cuda_host_register:yes":            "pinned_use_cuda_host_register: want True or False",
		"roundup_power2_divisions:3":                   "roundup_power2_divisions: want a power of two",
		"roundup_power2_divisions:[3:4]":               "roundup_power2_divisions: want intervals that start at a power of two",
		"roundup_power2_divisions:[64:4":               "roundup_power2_divisions: the value is missing",
		"roundup_power2_divisions:[64:4;128:2]":        "roundup_power2_divisions: the value is missing",
		"per_process_memory_fraction:1.1":              "per_process_memory_fraction: want it in [0, 1]",
		"per_process_memory_fraction:-0.1":             "per_process_memory_fraction: want it in [0, 1]",
		"backend:mine":                                 "backend: want native, cudaMallocAsync",
		"max_split_size_mb":                            "max_split_size_mb: the value is missing",
		"max_split_size_mb:":                           "max_split_size_mb: the value is missing",
		"max_split_size_mb=100":                        "unknown key \"max_split_size_mb=100\"",
		"expandable_segments:True max_split_size_mb:9": "want True or False, got \"Truemax_split_size_mb\"",
		"limit:lots":                                   "limit: want a size",
		"roundup_power2_divisions:0":                   "roundup_power2_divisions: want a power of two, got 0",
		"pinned_reserve_segment_size_mb:0":             "pinned_reserve_segment_size_mb: want more than 0",
		"expandable_segments:True,,":                   "at 25: unknown key \",\"",
	} {
		_, _, err := caching.ParseConfig(settings)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseConfig(%q) = %v, want an error with %q", settings, err, want)
		}
	}
}

func TestBehaviour21_MemoryFraction(t *testing.T) {
	b := newBench(t, gib, "")
	old := b.alloc(mib)
	for _, bad := range []float64{-0.1, 1.1, 2} {
		if err := b.SetMemoryFraction(bad); err == nil {
			t.Errorf("SetMemoryFraction(%v) was accepted", bad)
		}
	}
	if err := b.SetMemoryFraction(0.5); err != nil {
		t.Fatal(err)
	}
	b.fails(gib / 2)
	b.Free(b.alloc(gib/2 - 4*mib))
	if err := b.s.Fill(old.Ptr, 1, old.Size); err != nil {
		t.Fatal(err)
	}
	b.Free(old)
	for text, want := range map[string]float64{"0": 0, "0.5": 0.5, "1": 1} {
		cfg, _, err := caching.ParseConfig("per_process_memory_fraction:" + text)
		if err != nil || cfg.MemoryFraction != want {
			t.Errorf("fraction %s: got %v, %v", text, cfg.MemoryFraction, err)
		}
	}
}

// Every key of PyTorch's is understood or said to mean nothing here, and white space does not matter.
func TestSettingsOfPyTorch(t *testing.T) {
	cfg, notes, err := caching.ParseConfig(" backend:cudaMallocAsync, max_split_size_mb : 128,max_non_split_rounding_mb:40," +
		"large_segment_size_mb:32,garbage_collection_threshold:0.8,roundup_power2_divisions:[ 1:2 , >:4 ],expandable_segments:True," +
		"expandable_segments_reserve:40G,expandable_segments_reserve_by_class:[a:1,b:2],per_process_memory_fraction:0.9," +
		"throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True," +
		"pinned_use_cuda_host_register:True,pinned_num_register_threads:8,pinned_use_background_threads:True," +
		"pinned_max_round_threshold_mb:4,pinned_max_cached_size_mb:9,pinned_reserve_segment_size_mb:7,pinned_free_catch_all:True")
	if err != nil {
		t.Fatal(err)
	}
	want := caching.Default()
	want.MaxSplitSize, want.MaxNonSplitRounding, want.LargeSegmentSize = 128*mib, 40*mib, 32*mib
	want.GarbageCollectionThreshold, want.MemoryFraction = 0.8, 0.9
	want.ExpandableSegments, want.ExpandableReserve = true, caching.Reserve{Bytes: 40 * gib}
	want.ExpandableReserveByClass = map[string]caching.Reserve{"a": {Fraction: 1}, "b": {Fraction: 2}}
	want.ThrowOnOOM, want.ReleaseLock, want.GraphCaptureRecordStreamReuse = true, true, true
	want.RoundupDivisions = [16]int64{2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("settings: got %+v, want %+v", cfg, want)
	}
	var noted []string
	for _, n := range notes {
		key, _, _ := strings.Cut(n, " ")
		noted = append(noted, key)
	}
	testkit.Equal(t, "keys without effect", strings.Join(noted, " "), "backend "+
		"pinned_use_cuda_host_register pinned_num_register_threads pinned_use_background_threads "+
		"pinned_max_round_threshold_mb pinned_max_cached_size_mb pinned_reserve_segment_size_mb pinned_free_catch_all")
	if cfg, _, err := caching.ParseConfig(""); err != nil || !reflect.DeepEqual(cfg, caching.Default()) {
		t.Errorf("no settings: %+v, %v", cfg, err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]")
	f.Add("[[::,,")
	f.Fuzz(func(t *testing.T, settings string) {
		if cfg, _, err := caching.ParseConfig(settings); err == nil {
			if err := cfg.Validate(); err != nil {
				t.Errorf("%q was accepted, and is not valid: %v", settings, err)
			}
		}
	})
}

// The reported limit is the smaller of the two, and 0 without one.
func TestLimitThatIsTold(t *testing.T) {
	d := drivertest.OpenSim(t, 1<<30)
	for _, c := range []struct {
		fraction    float64
		bytes, want int64
	}{{1, 0, 0}, {0.5, 0, 1 << 29}, {0, 0, 1}, {1, 1 << 20, 1 << 20}, {0.5, 1 << 20, 1 << 20}, {0.5, 1 << 30, 1 << 29}} {
		cfg := caching.Default()
		cfg.MemoryFraction, cfg.Limit = c.fraction, c.bytes
		a, err := caching.New(d, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Limit(); got != c.want {
			t.Errorf("a part of %v, %d bytes: a limit of %d, want %d", c.fraction, c.bytes, got, c.want)
		}
	}
}
