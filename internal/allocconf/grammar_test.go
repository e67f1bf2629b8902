package allocconf

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// right makes a value of a key, as text and as what it means.
func right(key string, in *testkit.Input) (text string, v Value) {
	n := int64(1 + in.N(64))
	part := float64(n) / 100
	switch key {
	case "max_split_size_mb", "max_non_split_rounding_mb": // at least any large segment size below
		return fmt.Sprint(100 + n), Value{Int: (100 + n) * mib}
	case "large_segment_size_mb":
		return fmt.Sprint(10 + n), Value{Int: (10 + n) * mib}
	case "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb", "pinned_reserve_segment_size_mb":
		return fmt.Sprint(n), Value{Int: n * mib}
	case "garbage_collection_threshold", "per_process_memory_fraction":
		return fmt.Sprint(part), Value{Float: part}
	case "expandable_segments_reserve":
		if n%2 == 0 {
			return fmt.Sprintf("%dG", n), Value{Reserve: Reserve{Bytes: n << 30}}
		}
		return fmt.Sprint(part), Value{Reserve: Reserve{Fraction: part}}
	case "expandable_segments_reserve_by_class":
		return fmt.Sprintf("[a:%dG,b:%v]", n, part), Value{Classes: map[string]Reserve{"a": {Bytes: n << 30}, "b": {Fraction: part}}}
	case "pinned_num_register_threads":
		return fmt.Sprint(1 << (n % 8)), Value{Int: 1 << (n % 8)}
	case "roundup_power2_divisions":
		var d [16]int64
		for i := range d {
			d[i] = 1 << (n % 5)
		}
		return fmt.Sprint(d[0]), Value{Divisions: d}
	case "backend":
		word := testkit.Choose(in, "native", "cudaMallocAsync", "hipMallocAsync")
		return word, Value{Word: word}
	case "limit":
		return fmt.Sprintf("%dMiB", n), Value{Int: n * mib}
	}
	return map[bool]string{true: "True", false: "False"}[n%2 == 0], Value{Bool: n%2 == 0}
}

// Settings mean what each of them means, whatever white space stands between them. The error of settings with wrong ones
// is that of the first, with its place.
func FuzzSettings(f *testing.F) {
	f.Add([]byte{3, 0, 1, 9, 0, 5, 4, 0, 2, 60, 0, 14, 8, 0, 0, 7, 0})
	f.Add([]byte{10, 1, 0, 30, 0, 0, 1, 12, 2, 3, 2, 44, 1, 5, 2})
	f.Add([]byte{1, 0, 2, 0, 7, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		in := &testkit.Input{Rest: input}
		var text strings.Builder
		want := map[string]Value{}
		wrongKey, from, to := "", 0, 0
		for steps := 0; in.More() && steps < 12; steps++ {
			key := testkit.Choose(in, keys()...)
			value, v := right(key, in)
			begin := text.Len()
			first := false
			// PyTorch ignores a reserve that is wrong.
			if in.N(8) == 7 && wrongKey == "" && !strings.HasPrefix(key, "expandable_segments_reserve") {
				value, wrongKey, from, first = testkit.Choose(in, "-1", "none", ""), key, begin, true
			}
			for _, part := range []string{key, ":", value, ","} {
				text.WriteString(part)
				if in.N(6) == 5 {
					text.WriteString(testkit.Choose(in, " ", "\t\n", "\v"))
				}
			}
			if first {
				to = text.Len()
			}
			want[key] = v
		}
		_, got, notes, err := parse(text.String())
		if wrongKey == "" {
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q means %+v (%v, %v), want %+v", &text, got, notes, err, want)
			}
			return
		}
		at := -1
		if err != nil {
			fmt.Sscanf(err.Error(), "here: settings, at %d: ", &at)
		}
		if at < from || at >= to || !strings.Contains(err.Error(), ": "+wrongKey+": ") {
			t.Fatalf("%q: %v, want the error of %s, at %d to %d", &text, err, wrongKey, from, to-1)
		}
	})
}
