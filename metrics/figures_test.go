package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/metrics"
)

// The metrics have the values that the sources themselves report.
func TestFigures(t *testing.T) {
	w := newWorld(t)
	const main = `{device="sim:0",allocator="main",model="llama"`
	const host = `{device="sim:0",allocator="host"`
	const anna = `{device="sim:0",allocator="main",tenant="anna"} `
	st := w.caching.Stats()
	free, total, err := w.dev.Available()
	if err != nil {
		t.Fatal(err)
	}
	wants(t, pageOf(t, w),
		fmt.Sprintf(`ashlar_memory_allocated_bytes%s,pool="large"} %d`, main, 4<<20),
		fmt.Sprintf(`ashlar_memory_allocated_bytes%s,pool="small"} %d`, main, 2048), // the tenant's; what the magazines hold is not allocated
		fmt.Sprintf(`ashlar_memory_reserved_bytes%s,pool="large"} %d`, main, st.ReservedBytes.LargePool.Current),
		fmt.Sprintf(`ashlar_memory_reserved_segments%s,pool="small"} %d`, main, st.Segment.SmallPool.Current),
		fmt.Sprintf(`ashlar_memory_reserved_peak_bytes%s,pool="all"} %d`, main, st.ReservedBytes.All.Peak),
		fmt.Sprintf(`ashlar_memory_requested_bytes%s,pool="large"} %d`, main, 4<<20),
		fmt.Sprintf(`ashlar_memory_driver_calls_total%s,call="alloc"} %d`, main, st.NumDeviceAlloc),
		fmt.Sprintf(`ashlar_memory_split_limit_bytes%s} %d`, main, 128<<20),
		fmt.Sprintf(`ashlar_memory_limit_bytes%s} %d`, main, 512<<20), // the lower of two
		fmt.Sprintf(`ashlar_memory_held_blocks%s} %d`, main, 1),
		fmt.Sprintf(`ashlar_memory_held_bytes%s} %d`, main, 1024),
		fmt.Sprintf(`ashlar_memory_measured_bytes%s} %d`, main, 4<<20),
		fmt.Sprintf(`ashlar_memory_measured_peak_bytes%s} %d`, main, 4<<20+1024),
		fmt.Sprintf(`ashlar_memory_measured_added_bytes_total%s} %d`, main, 4<<20+2*1024),
		fmt.Sprintf(`ashlar_memory_measured_blocks%s} %d`, main, 1),
		fmt.Sprintf(`ashlar_memory_measured_peak_blocks%s} %d`, main, 2),
		fmt.Sprintf(`ashlar_memory_measured_added_blocks_total%s} %d`, main, 3),
		`ashlar_memory_ooms_total`+main+`} 0`,

		`ashlar_pinned_reserved_bytes`+host+`} 8192`,
		`ashlar_pinned_active_blocks`+host+`} 1`,

		`ashlar_quota_live_bytes`+anna+`2048`,
		`ashlar_quota_reserved_bytes`+anna+`1048576`,
		`ashlar_quota_limit_bytes`+anna+`8388608`,
		`ashlar_quota_peak_bytes`+anna+`2048`,
		`ashlar_quota_share_bytes`+anna+`8388608`,
		`ashlar_quota_claimed_bytes`+anna+`0`,
		`ashlar_quota_refused_total`+anna+`0`,
		`ashlar_quota_wipes_total`+anna+`0`,
		`ashlar_quota_wiped_bytes_total`+anna+`0`,
		fmt.Sprintf(`ashlar_device_free_bytes{device="sim:0"} %d`, free),
		fmt.Sprintf(`ashlar_device_total_bytes{device="sim:0"} %d`, total),
		`ashlar_scrape_success{device="sim:0"} 1`,
		`ashlar_scrape_success`+anna+`1`,
	)
}

// Every number of mem.Stats is exported, except for sums that can fall (see counters_test.go): by pool if it is kept by
// pool, under our name for the PyTorch statistic.
func TestEveryNumberOfStats(t *testing.T) {
	var st mem.Stats
	next := int64(100)
	number := func() int64 { next++; return next }
	stat := func() mem.Stat {
		return mem.Stat{Current: number(), Peak: number(), Allocated: number(), Freed: number()}
	}
	for _, a := range st.Arrays() {
		*a.Array = mem.StatArray{All: stat(), SmallPool: stat(), LargePool: stat()}
	}
	st.OversizeAllocations, st.OversizeSegments = stat(), stat()
	for _, n := range []*int64{
		&st.NumAllocRetries, &st.NumOOMs, &st.NumSyncAllStreams, &st.NumDeviceAlloc, &st.NumDeviceFree, &st.NumOOMRejections, &st.MaxSplitSize,
	} {
		*n = number()
	}
	var r metrics.Registry
	if _, err := r.AddStats(metrics.Labels{Device: "d", Allocator: "a"}, func() mem.Stats { return st }); err != nil {
		t.Fatal(err)
	}
	page, torch := pageOf(t, &r), st.Map()
	const labels = `{device="d",allocator="a"`
	told := 0
	wants := func(key, name, label string) {
		t.Helper()
		if _, ok := torch[key]; !ok {
			t.Errorf("PyTorch has no %s", key)
		}
		wants(t, page, fmt.Sprintf("ashlar_memory_%s%s%s} %d", name, labels, label, torch[key]))
		told++
	}
	quantity := func(key, what, unit, label string, sums bool) {
		t.Helper()
		wants(key+".current", what+"_"+unit, label)
		wants(key+".peak", what+"_peak_"+unit, label)
		if sums {
			wants(key+".allocated", what+"_added_"+unit+"_total", label)
			wants(key+".freed", what+"_removed_"+unit+"_total", label)
		}
	}
	for _, q := range []struct {
		key, what, unit string
		sums            bool
	}{
		{"allocation", "allocated", "blocks", true},
		{"segment", "reserved", "segments", true},
		{"active", "active", "blocks", true},
		{"inactive_split", "inactive_split", "blocks", false},
		{"allocated_bytes", "allocated", "bytes", true},
		{"reserved_bytes", "reserved", "bytes", true},
		{"active_bytes", "active", "bytes", true},
		{"inactive_split_bytes", "inactive_split", "bytes", false},
		{"requested_bytes", "requested", "bytes", false},
	} {
		for _, pool := range []string{"small", "large"} {
			quantity(q.key+"."+pool+"_pool", q.what, q.unit, `,pool="`+pool+`"`, q.sums)
		}
		wants(q.key+".all.peak", q.what+"_peak_"+q.unit, `,pool="all"`)
	}
	quantity("oversize_allocations", "oversize", "blocks", "", true)
	quantity("oversize_segments", "oversize", "segments", "", true)
	wants("num_alloc_retries", "retries_total", "")
	wants("num_ooms", "ooms_total", "")
	wants("num_oom_rejections", "oom_rejections_total", "")
	wants("num_sync_all_streams", "stream_syncs_total", "")
	wants("num_device_alloc", "driver_calls_total", `,call="alloc"`)
	wants("num_device_free", "driver_calls_total", `,call="free"`)
	wants("max_split_size", "split_limit_bytes", "")
	if n := strings.Count("\n"+page, "\nashlar_memory_"); n != told {
		t.Errorf("%d are told, %d are wanted", n, told)
	}
}

// So is every number of pinned.Stats except those of buckets; times are microseconds there, and seconds here.
func TestEveryNumberOfPinnedStats(t *testing.T) {
	st := pinned.Stats{
		BucketStats: pinned.BucketStats{
			Allocations: mem.Stat{Current: 1, Peak: 2, Allocated: 3, Freed: 4}, AllocatedBytes: mem.Stat{Current: 5, Peak: 6, Allocated: 7, Freed: 8},
			ActiveRequests: mem.Stat{Current: 9, Peak: 10, Allocated: 11, Freed: 12}, ActiveBytes: mem.Stat{Current: 13, Peak: 14, Allocated: 15, Freed: 16},
		},
		HostAllocTime: pinned.Duration{Total: 170_000, Max: 18_000, Min: 190, Count: 20},
		HostFreeTime:  pinned.Duration{Total: 210_000_001, Max: 22_000_000, Min: 1, Count: 24},
	}
	var r metrics.Registry
	if _, err := r.AddPinned(metrics.Labels{Device: "d", Allocator: "a"}, func() pinned.Stats { return st }); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, &r)
	const labels = `{device="d",allocator="a"`
	n := 0
	for _, what := range []string{"reserved_%sblocks%s", "reserved_%sbytes%s", "active_%sblocks%s", "active_%sbytes%s"} {
		for _, which := range [][2]string{{"", ""}, {"peak_", ""}, {"added_", "_total"}, {"removed_", "_total"}} {
			n++
			wants(t, page, fmt.Sprintf("ashlar_pinned_"+what+labels+"} %d", which[0], which[1], n))
		}
	}
	for line, value := range map[string]string{
		`calls_total%s,call="alloc"`: "20", `time_seconds_total%s,call="alloc"`: "0.17",
		`time_max_seconds%s,call="alloc"`: "0.018", `time_min_seconds%s,call="alloc"`: "0.00019",
		`calls_total%s,call="free"`: "24", `time_seconds_total%s,call="free"`: "210.000001",
		`time_max_seconds%s,call="free"`: "22", `time_min_seconds%s,call="free"`: "1e-06",
	} {
		n++
		wants(t, page, fmt.Sprintf("ashlar_pinned_driver_"+line+"} "+value, labels))
	}
	if told := strings.Count("\n"+page, "\nashlar_pinned_"); told != n {
		t.Errorf("%d are told, %d are wanted", told, n)
	}
}

// Before the first driver call there is no shortest one.
func TestPinnedWithoutCalls(t *testing.T) {
	var r metrics.Registry
	if _, err := r.AddPinned(metrics.Labels{Device: "d", Allocator: "host"}, func() pinned.Stats { return pinned.Stats{} }); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, &r)
	wants(t, page, `ashlar_pinned_driver_time_max_seconds{device="d",allocator="host",call="alloc"} 0`)
	if strings.Contains(page, "ashlar_pinned_driver_time_min_seconds") {
		t.Errorf("a shortest of none:\n%s", page)
	}
}

type plain struct{ mem.Allocator }

// An allocator without statistics of its own is exported with those of its layers, and refused if no layer has any.
func TestAllocatorWithoutStats(t *testing.T) {
	dev := open(t)
	a := plain{direct.New(dev, direct.Config{})}
	var r metrics.Registry
	l := metrics.Labels{Device: "sim:0", Allocator: "plain"}
	if _, err := r.Add(l, a); err == nil || !strings.Contains(err.Error(), "plain") {
		t.Errorf("nothing to tell: %v", err)
	}
	if _, err := r.Add(l, layer.NewLimiter(a, 0)); err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, &r)
	wants(t, page, `ashlar_memory_limit_bytes{device="sim:0",allocator="plain"} 0`) // of a Limiter a limit of 0 is one
	if strings.Contains(page, "allocated") {
		t.Errorf("statistics of no source:\n%s", page)
	}
}

// The limit of mem/bfc is exported as a limit, and so is a tenant's quota, which may be lower.
func TestLimitOfWhoeverHasOne(t *testing.T) {
	dev := open(t)
	a := must[*bfc.Allocator](t)(bfc.New(dev, bfc.Config{Limit: 64 << 20}))
	closing(t, a)
	tenant := must[*layer.Tenant](t)(layer.NewQuotas(a, 32<<20).Tenant("anna", 0, 8<<20))
	var r metrics.Registry
	for name, a := range map[string]mem.Allocator{"bfc": a, "anna": layer.NewZeroer(tenant)} {
		if _, err := r.Add(metrics.Labels{Device: "sim:0", Allocator: name}, a); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, pageOf(t, &r), fmt.Sprintf(`ashlar_memory_limit_bytes{device="sim:0",allocator="bfc"} %d`, 64<<20),
		fmt.Sprintf(`ashlar_memory_limit_bytes{device="sim:0",allocator="anna"} %d`, 8<<20))
}

// An arena's limit is exported as a limit; 0 means none, and it may change.
func TestLimitOfAnArena(t *testing.T) {
	a := must[*arena.Arena](t)(arena.New(open(t), arena.Config{Size: 64 << 20}))
	closing(t, a)
	var r metrics.Registry
	if _, err := r.Add(metrics.Labels{Device: "sim:0", Allocator: "arena"}, a); err != nil {
		t.Fatal(err)
	}
	if page := pageOf(t, &r); strings.Contains(page, "ashlar_memory_limit_bytes") {
		t.Error("a limit where there is none")
	}
	a.SetLimit(1 << 20)
	wants(t, pageOf(t, &r), `ashlar_memory_limit_bytes{device="sim:0",allocator="arena"} 1048576`)
}
