package pinned_test

import (
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func TestStats(t *testing.T) {
	d := newDevice()
	now := time.Unix(0, 0)
	took := []time.Duration{300 * time.Microsecond, 100 * time.Microsecond, 50 * time.Microsecond, 70 * time.Microsecond}
	reads := 0
	a := open(t, d, pinned.Config{Clock: func() time.Time {
		if reads%2 == 1 {
			now = now.Add(took[reads/2])
		}
		reads++
		return now
	}})
	b, c := alloc(t, a, 100), alloc(t, a, 5000)
	want(t, a, "host_alloc_time.total", 400, "host_alloc_time.max", 300, "host_alloc_time.min", 100,
		"host_alloc_time.count", 2, "host_alloc_time.avg", 200)
	// Peaks are of the sum. PyTorch adds up the peaks of its buckets and would say 2 blocks of 8320 bytes.
	a.Free(b)
	a.Free(c)
	a.ResetPeakStats()
	want(t, a, "active_requests.peak", 0, "allocations.peak", 2, "host_alloc_time.max", 0, "host_alloc_time.total", 400)
	a.Free(alloc(t, a, 100))
	a.Free(alloc(t, a, 5000))
	want(t, a, "active_requests.peak", 1, "active_bytes.peak", 8192, "active_requests.allocated", 4, "active_requests.freed", 4)
	a.ResetAccumulatedStats()
	want(t, a, "active_requests.allocated", 0, "active_bytes.freed", 0, "num_host_alloc", 0, "allocations.current", 2,
		"active_bytes.peak", 8192, "host_alloc_time.count", 0, "host_alloc_time.avg", 0)
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	want(t, a, "host_free_time.total", 120, "host_free_time.max", 70, "host_free_time.min", 50, "num_host_free", 2)
}

func TestStatsKeys(t *testing.T) {
	var keys []string
	for _, name := range []string{"allocations", "allocated_bytes", "active_requests", "active_bytes"} {
		for _, of := range []string{"current", "peak", "allocated", "freed"} {
			keys = append(keys, name+"."+of)
		}
	}
	for _, name := range []string{"host_alloc_time", "host_free_time"} {
		for _, of := range []string{"total", "max", "min", "count", "avg"} {
			keys = append(keys, name+"."+of)
		}
	}
	keys = append(keys, "num_host_alloc", "num_host_free")
	m := pinned.Stats{}.Map()
	for _, key := range keys {
		if _, ok := m[key]; !ok {
			t.Errorf("there is no %s", key)
		}
	}
	if len(m) != len(keys) {
		t.Errorf("%d keys, want %d: %v", len(m), len(keys), m)
	}
}

// Each bucket has separate counters, and their sums equal the totals. The keys include PyTorch's count of allocations.
func TestDefect15_BucketsHaveCounters(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	small, other, large := alloc(t, a, 100), alloc(t, a, 128), alloc(t, a, 5000)
	a.Free(other)
	other = alloc(t, a, 65)
	a.Free(large)
	buckets := a.BucketStats()
	seven, thirteen := buckets[7], buckets[13]
	for what, c := range map[string]struct{ got, want mem.Stat }{
		"blocks of up to 128 bytes":  {seven.Allocations, mem.Stat{Current: 2, Peak: 2, Allocated: 2}},
		"their bytes":                {seven.AllocatedBytes, mem.Stat{Current: 256, Peak: 256, Allocated: 256}},
		"of them live":               {seven.ActiveRequests, mem.Stat{Current: 2, Peak: 2, Allocated: 3, Freed: 1}},
		"allocated bytes":            {seven.ActiveBytes, mem.Stat{Current: 256, Peak: 256, Allocated: 384, Freed: 128}},
		"blocks of up to 8192 bytes": {thirteen.Allocations, mem.Stat{Current: 1, Peak: 1, Allocated: 1}},
		"of those live":              {thirteen.ActiveBytes, mem.Stat{Peak: 8192, Allocated: 8192, Freed: 8192}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", what, c.got, c.want)
		}
	}
	want(t, a, "bucket_allocation.7", 2, "bucket_allocation.13", 1)
	var sum mem.Stat
	for _, b := range buckets {
		sum.Current += b.ActiveBytes.Current
		sum.Allocated += b.ActiveBytes.Allocated
		sum.Freed += b.ActiveBytes.Freed
	}
	if all := a.Stats().ActiveBytes; sum.Current != all.Current || sum.Allocated != all.Allocated || sum.Freed != all.Freed {
		t.Errorf("the buckets add up to %+v, and all are %+v", sum, all)
	}
	a.ResetPeakStats()
	a.ResetAccumulatedStats()
	if b := a.BucketStats()[13]; b.ActiveBytes != (mem.Stat{}) || b.Allocations != (mem.Stat{Current: 1, Peak: 1}) {
		t.Errorf("after resets: %+v", b)
	}
	a.Free(small)
	a.Free(other)
	closeAll(t, a, d)
	if b := a.BucketStats()[7]; b.Allocations.Current != 0 || b.Allocations.Freed != 2 {
		t.Errorf("after Close: %+v", b)
	}
}
