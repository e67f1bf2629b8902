package pinned_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// For any numbers in the settings and a request, the allocator works, or an error names the number and the valid range.
func TestDefect02_NumbersOfPinnedSettings(t *testing.T) {
	for _, key := range []string{
		"pinned_max_round_threshold_mb", "pinned_max_cached_size_mb", "pinned_reserve_segment_size_mb",
		"pinned_num_register_threads",
	} {
		for _, n := range testkit.Numbers() {
			before := testkit.Allocated()
			cfg, err := pinned.ParseConfig(key + ":" + n)
			if err != nil {
				if !strings.Contains(err.Error(), n) || !strings.Contains(err.Error(), "want") {
					t.Errorf("%s:%s: %v", key, n, err)
				}
				continue
			}
			dev := sim.New(sim.Options{Pinned: 64 << 20})
			a, err := pinned.New(dev, cfg)
			if err == nil {
				for _, size := range []int64{0, 1, 4097, 1 << 30, 1 << 46, 1<<46 + 1, 1<<63 - 1} {
					if b, err := a.Alloc(size); err == nil {
						a.Free(b)
					}
				}
				err = a.Close()
			}
			if err != nil && !strings.Contains(err.Error(), "segment") {
				t.Errorf("%s:%s: %v", key, n, err)
			}
			if err := dev.Close(); err != nil {
				t.Errorf("%s:%s: %v", key, n, err)
			}
			if n := testkit.Allocated() - before; n > 64<<20 {
				t.Errorf("%s: %d bytes allocated", key, n)
			}
		}
	}
}
