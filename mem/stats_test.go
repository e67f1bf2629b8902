package mem_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// The keys of torch.cuda.memory_stats(), as PyTorch's documentation builds them.
func TestStatsMapHasPyTorchsKeys(t *testing.T) {
	var want []string
	for _, quantity := range strings.Fields("allocation segment active inactive_split " +
		"allocated_bytes reserved_bytes active_bytes inactive_split_bytes requested_bytes") {
		for _, pool := range []string{"all", "large_pool", "small_pool"} {
			for _, metric := range []string{"current", "peak", "allocated", "freed"} {
				want = append(want, quantity+"."+pool+"."+metric)
			}
		}
	}
	for _, quantity := range []string{"oversize_allocations", "oversize_segments"} {
		for _, metric := range []string{"current", "peak", "allocated", "freed"} {
			want = append(want, quantity+"."+metric)
		}
	}
	want = append(want, strings.Fields("num_alloc_retries num_ooms num_sync_all_streams num_device_alloc num_device_free "+
		"num_oom_rejections max_split_size")...)
	got := slices.Sorted(maps.Keys(mem.Stats{}.Map()))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("keys: got %q, want %q", got, want)
	}
}

func TestStatsMapPutsValuesUnderTheirKeys(t *testing.T) {
	var s mem.Stats
	for i, a := range s.Arrays() {
		n := int64(100 * (i + 1))
		a.Array.All = mem.Stat{Current: n + 1, Peak: n + 2, Allocated: n + 3, Freed: n + 4}
		a.Array.SmallPool.Peak = n + 5
		a.Array.LargePool.Freed = n + 6
	}
	s.OversizeSegments.Peak, s.NumOOMs, s.MaxSplitSize = 1, 2, -1
	m := s.Map()
	for key, want := range map[string]int64{
		"allocation.all.current": 101, "segment.all.peak": 202, "active.all.allocated": 303, "inactive_split.all.freed": 404,
		"allocated_bytes.small_pool.peak": 505, "reserved_bytes.large_pool.freed": 606, "active_bytes.all.current": 701,
		"inactive_split_bytes.all.current": 801, "requested_bytes.all.peak": 902,
		"oversize_segments.peak": 1, "num_ooms": 2, "max_split_size": -1,
	} {
		if m[key] != want {
			t.Errorf("%s is %d, want %d", key, m[key], want)
		}
	}
}

func TestUsageFollowsBlocks(t *testing.T) {
	var u mem.Usage
	for _, size := range []int64{100, 300, 200} {
		u.Alloc(size)
	}
	u.Free(300)
	u.Alloc(50)
	want := mem.Usage{
		Bytes:  mem.Stat{Current: 350, Peak: 600, Allocated: 650, Freed: 300},
		Blocks: mem.Stat{Current: 3, Peak: 3, Allocated: 4, Freed: 1}, Largest: 300,
	}
	if u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
}

// What private pools have reserved goes under their IDs, as torch.cuda.memory_stats() writes them.
func TestStatsMapHasPrivatePools(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	a, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	p := a.NewPool(caching.PoolOptions{})
	b, err := p.Alloc(dev.DefaultStream(), 3<<20)
	testkit.Must(t, err)
	m := a.Stats().MapWithPools(a.ReservedByPrivatePools())
	id := p.ID()
	key := fmt.Sprintf("reserved_bytes_by_private_pools.%d_%d.", id[0], id[1])
	if n := len(m) - len(a.Stats().Map()); n != 12 || m[key+"all.current"] != 20<<20 || m[key+"large_pool.peak"] != 20<<20 {
		t.Errorf("%d keys of private pools, %s has %d and %d", n, key, m[key+"all.current"], m[key+"large_pool.peak"])
	}
	p.Free(b)
	testkit.Must(t, p.Close())
	testkit.Must(t, a.Close())
}
