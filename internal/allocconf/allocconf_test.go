package allocconf

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const mib = 1 << 20

// parse returns what a text sets, with the keys that it sets in their order.
func parse(text string) (keys []string, values map[string]Value, notes []string, err error) {
	values = map[string]Value{}
	notes, err = Parse("here", text, 20*mib, func(key string, v Value) string {
		keys, values[key] = append(keys, key), v
		if key == "backend" {
			return "it is not"
		}
		return ""
	})
	return keys, values, notes, err
}

// The texts on the left are those that PyTorch's parsers read as what stands on the right.
func TestDefect10_WhatPyTorchReadsIsReadSo(t *testing.T) {
	divisions := func(n ...int64) (table [16]int64) {
		for i := range table {
			table[i] = n[min(i, len(n)-1)]
		}
		return table
	}
	for _, c := range []struct {
		text, key string
		want      Value
		notes     string
	}{
		{"expandable_segments:True,", "expandable_segments", Value{Bool: true}, ""},
		{" expandable_segments : Tr\tue\r\n,\v\f", "expandable_segments", Value{Bool: true}, ""},
		{"max_split_size_mb:64,large_segment_size_mb:64", "max_split_size_mb", Value{Int: 64 * mib}, ""},
		{"max_split_size_mb:+40", "max_split_size_mb", Value{Int: 40 * mib}, ""},
		{
			"max_split_size_mb:128MB", "max_split_size_mb",
			Value{Int: 128 * mib},
			"max_split_size_mb is read as 128, as by PyTorch: the text says 128MB",
		},
		{"max_split_size_mb:18446744073709551615", "max_split_size_mb", Value{Int: (1<<43 - 1) * mib}, ""},
		{
			"per_process_memory_fraction:0.5f", "per_process_memory_fraction",
			Value{Float: 0.5},
			"per_process_memory_fraction is read as 0.5, as by PyTorch: the text says 0.5f",
		},
		{
			"expandable_segments,True]backend[native", "expandable_segments",
			Value{Bool: true},
			`expandable_segments is read as if the "," at 19 were ":", as by PyTorch; ` +
				`expandable_segments is read as if the "]" at 24 were ",", as by PyTorch; ` +
				`backend is read as if the "[" at 32 were ":", as by PyTorch; backend has no effect: it is not`,
		},
		{"backend:hipMallocAsync", "backend", Value{Word: "hipMallocAsync"}, "backend has no effect: it is not"},
		{"roundup_power2_divisions:4", "roundup_power2_divisions", Value{Divisions: divisions(4)}, ""},
		{"roundup_power2_divisions:[4:8,]", "roundup_power2_divisions", Value{Divisions: divisions(8, 8, 8, 0)}, ""},
		{"roundup_power2_divisions:[]", "roundup_power2_divisions", Value{}, ""},
		{"roundup_power2_divisions:[1:2,>:0]", "roundup_power2_divisions", Value{Divisions: divisions(2, 0)}, ""},
		{"roundup_power2_divisions:[>:4]", "roundup_power2_divisions", Value{Divisions: divisions(0, 4)}, ""},
		{"roundup_power2_divisions:[9223372036854775808:4]", "roundup_power2_divisions", Value{Divisions: divisions(4)}, ""},
		{
			"roundup_power2_divisions:2,roundup_power2_divisions:[2:4,4:8]", "roundup_power2_divisions",
			Value{Divisions: divisions(4, 4, 8, 2)},
			"",
		},
		{"expandable_segments_reserve:0.5", "expandable_segments_reserve", Value{Reserve: Reserve{Fraction: 0.5}}, ""},
		{"expandable_segments_reserve:40g", "expandable_segments_reserve", Value{Reserve: Reserve{Bytes: 40 << 30}}, ""},
		{"expandable_segments_reserve:1e20G", "expandable_segments_reserve", Value{Reserve: Reserve{Bytes: 1 << 62}}, ""},
		{"expandable_segments_reserve:1e-20G", "expandable_segments_reserve", Value{Reserve: Reserve{Bytes: 1}}, ""},
		{
			"expandable_segments_reserve_by_class:[serving:0.25,bad:12X,ads:8G,]", "expandable_segments_reserve_by_class",
			Value{Classes: map[string]Reserve{"serving": {Fraction: 0.25}, "ads": {Bytes: 8 << 30}}},
			"expandable_segments_reserve_by_class 12X is ignored, as by PyTorch: " +
				"want a part of the device's memory, such as 0.5, or GiB, such as 40G",
		},
		{
			"expandable_segments_reserve_by_class:[]", "expandable_segments_reserve_by_class",
			Value{Classes: map[string]Reserve{}},
			"",
		},
		{"pinned_max_cached_size_mb:0", "pinned_max_cached_size_mb", Value{}, ""},
		{"limit:2GiB,pytorch-exact:True", "limit", Value{Int: 2 << 30}, ""},
	} {
		keys, values, notes, err := parse(c.text)
		if err != nil || !slices.Contains(keys, c.key) || !reflect.DeepEqual(values[c.key], c.want) {
			t.Errorf("%q sets %v to %+v, %v; want %+v", c.text, keys, values, err, c.want)
		}
		if got := strings.Join(notes, "; "); got != c.notes {
			t.Errorf("%q: the notes are %q, want %q", c.text, got, c.notes)
		}
	}
	for _, ignored := range []string{"abc", "G", "-1", "0", "12X", "inf", "nan", "0x1", "40GiB", "1e999", "1_0"} {
		_, values, notes, err := parse("expandable_segments_reserve:" + ignored)
		if v, ok := values["expandable_segments_reserve"]; err != nil || !ok || v.Reserve != (Reserve{}) || len(notes) != 1 {
			t.Errorf("a reserve of %s: %+v, %v, %v; want it noted and ignored", ignored, v, notes, err)
		}
	}
}

func TestDefect10_WhatPyTorchRefusesIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"roundup_power2_divisions:0":                    "at 25: roundup_power2_divisions: want a power of two, got 0",
		"roundup_power2_divisions:6":                    "want a power of two, got 6",
		"roundup_power2_divisions:[8:3]":                "want a power of two, or 0 for none, got 3",
		"roundup_power2_divisions:[6:4]":                `want intervals that start at a power of two of MiB, or >, got "6"`,
		"roundup_power2_divisions:[0:4]":                "want intervals that start at a power of two",
		"roundup_power2_divisions:[8:4":                 "the value is missing",
		"pinned_reserve_segment_size_mb:0":              "at 31: pinned_reserve_segment_size_mb: want more than 0",
		"pinned_reserve_segment_size_mb:":               "the value is missing",
		"pinned_num_register_threads:0":                 "want a power of two from 1 to 128",
		"pinned_num_register_threads:256":               "want a power of two from 1 to 128",
		"large_segment_size_mb:10":                      "at 22: large_segment_size_mb: want more than 10",
		"max_split_size_mb:40,large_segment_size_mb:41": "at 18: max_split_size_mb: want at least the large segment size, 41",
		"max_split_size_mb:19":                          "want at least the large segment size, 20",
		"max_split_size_mb:MB":                          "want a whole number",
		"max_split_size_mb:18446744073709551616":        "want a whole number",
		"max_split_size_mb:-1":                          "want a whole number",
		"per_process_memory_fraction:1e999":             "want a number",
		"per_process_memory_fraction:nan":               "want it in [0, 1], got NaN",
		"garbage_collection_threshold:1":                "want it between 0 and 1",
		"expandable_segments:1":                         "want True or False",
		"expandable_segments:True:":                     "",
		"expandable_segments:True:False":                `at 25: unknown key "False"`,
		"expandable_segments True":                      "unknown key",
		"expandable_segments:[True]":                    `want True or False, got "["`,
		"expandable_segments_reserve_by_class:0.5":      `want "[", got "0.5"`,
		"expandable_segments_reserve_by_class:[a:1":     "the value is missing",
		"expandable_segments_reserve_by_class:[a":       "the value is missing",
		"backend:mine":                                  "want native",
		"limit:0":                                       "want a size",
		",":                                             `at 0: unknown key ","; known are backend, expandable_segments, `,
		"backend:native,,":                              "unknown key",
	} {
		_, _, _, err := parse(text)
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
		case err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "here: settings, at "):
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// Sizes are not all read before the first is judged: what a text of a megabyte costs grows with its length.
func TestParseLongTexts(t *testing.T) {
	long := strings.Repeat("expandable_segments:True,", 40_000)
	if keys, _, _, err := parse(long); err != nil || len(keys) != 40_000 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if _, _, _, err := parse(strings.Repeat("x", 1<<20)); err == nil {
		t.Error("a key of a megabyte is known")
	}
}

func TestSplit(t *testing.T) {
	got := Split("a:1,b:[2:3,4:5],c:6,")
	if want := []string{"a:1", "b:[2:3,4:5]", "c:6", ""}; !slices.Equal(got, want) {
		t.Errorf("split into %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]")
	f.Add("expandable_segments_reserve_by_class:[a:1,b:2G],[[::,,")
	f.Fuzz(func(t *testing.T, text string) {
		keys, values, _, err := parse(text)
		if err != nil {
			return
		}
		for _, key := range keys {
			if v := values[key]; v.Int < 0 || !(v.Float >= 0) || v.Reserve.Bytes < 0 {
				t.Errorf("%q sets %s to %s", text, key, fmt.Sprint(v))
			}
		}
	})
}
