package replay_test

import (
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A capacity that no simulated device can have is refused, wherever it comes from, and the largest is not.
func TestDefect02_CapacitiesHaveARange(t *testing.T) {
	script := func(text string) (*replay.Work, error) {
		s, err := trace.ParseScript(text)
		if err != nil {
			t.Fatal(err)
		}
		return replay.ScriptWork(s)
	}
	w, err := script("alloc a 3MiB\n")
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.ReadFile(traces + "streams.pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	specs := []string{"caching", "arena", "bfc", "paged"}
	for _, capacity := range []int64{math.MinInt64, -1, 0, 1, sim.MaxTotal, sim.MaxTotal + 1, math.MaxInt64} {
		_, compared := replay.Compare(w, replay.CompareOptions{Capacity: capacity, Specs: specs[:1]})
		_, searched := replay.SmallestLimit(w, "caching", capacity)
		_, chosen := replay.DefaultSpecs(w, replay.CompareOptions{Capacity: capacity})
		_, verified := verify.Verify(s, verify.Options{TotalMemory: capacity})
		in := capacity >= 0 && capacity <= sim.MaxTotal
		for what, err := range map[string]error{"Compare": compared, "SmallestLimit": searched, "DefaultSpecs": chosen, "Verify": verified} {
			if in != (err == nil) || err != nil && !strings.Contains(err.Error(), "want 1 to 36028797018963968 (32768TiB)") {
				t.Errorf("%s with a capacity of %d: %v", what, capacity, err)
			}
		}
	}
	if _, err := replay.Compare(w, replay.CompareOptions{Capacity: sim.MaxTotal, Limit: math.MaxInt64, Specs: specs[:2]}); err != nil {
		t.Error(err)
	}
	if _, err := replay.Compare(w, replay.CompareOptions{Capacity: sim.MaxTotal, Specs: specs}); err != nil {
		t.Error(err)
	}
	for _, total := range []string{"0", "32768TiB1", "36028797018963969", "8191PiB"} {
		if _, err := script("device sim total=" + total + "\n"); err == nil || !strings.Contains(err.Error(), "script:1:1") ||
			!strings.Contains(err.Error(), total) || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "unknown unit") {
			t.Errorf("a device of %s: %v", total, err)
		}
	}
}
