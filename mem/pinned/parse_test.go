package pinned_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func TestParseConfig(t *testing.T) {
	tests := []struct {
		text string
		want pinned.Config
	}{
		{"", pinned.Config{}},
		{"  ", pinned.Config{}},
		{"pinned_use_background_threads:True", pinned.Config{BackgroundThreads: true}},
		{"pinned_use_cuda_host_register:True,pinned_num_register_threads:8", pinned.Config{HostRegister: true, RegisterThreads: 8}},
		{"pinned_use_hip_host_register : Tr ue", pinned.Config{HostRegister: true}},
		{"pinned_max_round_threshold_mb:128, pinned_max_cached_size_mb: 1024", pinned.Config{MaxRoundThreshold: 128 << 20, MaxCachedSize: 1 << 30}},
		{"pinned_max_round_threshold_mb:0,pinned_max_cached_size_mb:0", pinned.Config{MaxRoundThreshold: -1, MaxCachedSize: -1}},
		{"pinned_reserve_segment_size_mb:2048,pinned_free_catch_all:True", pinned.Config{ReserveSegment: 2 << 30, FreeCatchAll: true}},
		{"pinned_free_catch_all:True,pinned_free_catch_all:False", pinned.Config{}},
		{
			"roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:True,pinned_num_register_threads:128",
			pinned.Config{RegisterThreads: 128},
		},
	}
	for _, test := range tests {
		got, err := pinned.ParseConfig(test.text)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %+v, %v, want %+v", test.text, got, err, test.want)
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	for text, says := range map[string]string{
		"pinned_threads:1":                                    `at 0: unknown key "pinned_threads"`,
		"expandable_segments:True, x:1":                       `at 26: unknown key "x"`,
		"pinned_num_register_threads:none":                    `want a whole number, got "none"`,
		"pinned_num_register_threads:1024":                    "want a power of two from 1 to 128, got 1024",
		"pinned_num_register_threads:3":                       "want a power of two",
		"pinned_num_register_threads:0":                       "want a power of two",
		"pinned_use_background_threads:true":                  `want True or False, got "true"`,
		"pinned_use_background_threads":                       "the value is missing",
		"expandable_segments":                                 "the value is missing",
		"pinned_max_cached_size_mb:-1":                        "want a whole number",
		"pinned_max_cached_size_mb:99999999999":               "want a number of MiB up to 67108864",
		"pinned_reserve_segment_size_mb:":                     "the value is missing",
		",":                                                   "unknown key",
		"pinned_free_catch_all:True:False":                    `at 27: unknown key "False"`,
		"pinned_free_catch_all:True,,backend:native":          "unknown key",
		"roundup_power2_divisions:[1:2,pinned_free_catch_all": "want a whole number", // the device's settings too
		"max_split_size_mb:1":                                 "want at least the large segment size, 20",
	} {
		_, err := pinned.ParseConfig(text)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", text, err, says)
		}
	}
}

// The same settings text configures both allocators, and both parse it in the same way.
func TestDefect10_SettingsAreReadAsByTheDevicesAllocator(t *testing.T) {
	for text, want := range map[string]pinned.Config{
		"pinned_free_catch_all:True,":                                      {FreeCatchAll: true},
		"expandable_segments_reserve:abc,pinned_num_register_threads:8x":   {RegisterThreads: 8},
		"max_split_size_mb:40, pinned_max_cached_size_mb:64MiB,\r\n":       {MaxCachedSize: 64 << 20},
		"expandable_segments_reserve_by_class:[a:0.5],backend:native,\v\f": {},
	} {
		got, err := pinned.ParseConfig(text)
		if _, _, device := caching.ParseConfig(text); err != nil || device != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, %v; want %+v", text, got, err, device, want)
		}
	}
	for _, text := range []string{"roundup_power2_divisions:0", "pinned_reserve_segment_size_mb:0", "max_split_size_mb:19"} {
		_, err := pinned.ParseConfig(text)
		if _, _, device := caching.ParseConfig(text); err == nil || device == nil {
			t.Errorf("%q: %v, %v; want errors", text, err, device)
		}
	}
}
