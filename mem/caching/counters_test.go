package caching_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// What the counters count, under PyTorch's names: a request that needed the cache given back is a retry, which also waits for
// all streams; what fails is an out-of-memory error, and a rejection too where the limit may not be passed for a moment.
func TestCountersOfDriverCallsAndFailures(t *testing.T) {
	b := newBench(t, 100*mib, "max_split_size_mb:32")
	b.Free(b.alloc(60 * mib))
	kept := b.alloc(24 * mib)
	b.Free(b.alloc(70 * mib)) // 60 MiB given back are not enough for it to be tried again before everything is
	if _, err := b.Alloc(b.stream(), 90*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("90 MiB beside 24 of 100: %v", err)
	}
	s := b.Stats()
	testkit.Equal(t, "the split limit", s.MaxSplitSize, 32*mib)
	testkit.Equal(t, "requests that failed", s.NumOOMs, 1)
	testkit.Equal(t, "retries", s.NumAllocRetries, 2) // one helped
	testkit.Equal(t, "waits for all streams", s.NumSyncAllStreams, 2)
	testkit.Equal(t, "segments from the driver", s.NumDeviceAlloc, 3)
	testkit.Equal(t, "segments given back", s.NumDeviceFree, 2)
	testkit.Equal(t, "oversize segments ever", s.OversizeSegments.Allocated, 2)
	testkit.Equal(t, "rejections", s.NumOOMRejections, 0)
	b.Free(kept)
	b.ResetAccumulatedStats()
	if _, err := b.ParseConfigure("throw_on_cudamalloc_oom:True,limit:100MiB"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alloc(b.stream(), 90*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatalf("90 MiB beside 24 cached: %v", err)
	}
	testkit.Equal(t, "rejections at once", b.Stats().NumOOMRejections, 1)
	testkit.Equal(t, "retries of them", b.Stats().NumAllocRetries, 0)
}
