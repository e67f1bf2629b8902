package pinned_test

import (
	"reflect"
	"strings"
	"testing"

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
		"pinned_num_register_threads:none":                    `want a power of two from 1 to 128, got "none"`,
		"pinned_num_register_threads:1024":                    `want a power of two from 1 to 128, got "1024"`,
		"pinned_num_register_threads:3":                       "want a power of two",
		"pinned_num_register_threads:0":                       "want a power of two",
		"pinned_use_background_threads:true":                  `want True or False, got "true"`,
		"pinned_use_background_threads":                       "want a colon",
		"expandable_segments":                                 "want a colon",
		"pinned_max_cached_size_mb:-1":                        "want a number of MiB",
		"pinned_max_cached_size_mb:99999999999":               "want a number of MiB",
		"pinned_reserve_segment_size_mb:":                     "want a number of MiB",
		"pinned_free_catch_all:True,":                         "a key has to follow the last comma",
		",":                                                   "unknown key",
		"pinned_free_catch_all:True:False":                    "want True or False",
		"pinned_free_catch_all:True,,backend:native":          "unknown key",
		"roundup_power2_divisions:[1:2,pinned_free_catch_all": "",
	} {
		_, err := pinned.ParseConfig(text)
		if says == "" {
			if err != nil { // the value is the device's allocator's to check
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", text, err, says)
		}
	}
}
