package engine

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// For any number in an engine's configuration, the engine opens and works, or an error names the valid values.
func TestDefect02_NumbersOfTheEngine(t *testing.T) {
	try := func(what string, c Config) {
		t.Helper()
		before := testkit.Allocated()
		e, err := Open(t.Context(), c)
		if err == nil {
			err = e.EachDevice(t.Context(), func(_ context.Context, s *Session) error {
				stream := s.Place().Stream()
				for _, size := range []int64{1, 1 << 55, math.MaxInt64} {
					if b, err := e.Allocator(0).Alloc(stream, size); err == nil {
						e.Allocator(0).Free(b)
					}
					_ = s.ReserveCache(size) // many allocators cannot, and none has room for the second
				}
				return nil
			})
			err = errors.Join(err, e.Close(t.Context()))
		} else if says := err.Error(); strings.Contains(says, "want") || errors.Is(err, mem.ErrNoMemory) || errors.Is(err, driver.ErrNoMemory) ||
			strings.Contains(says, "granularity") {
			err = nil
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := testkit.Allocated() - before; n > 256<<20 {
			t.Errorf("%s: %d bytes allocated", what, n)
		}
	}
	for _, n := range []int64{math.MinInt64, -1, 1, 2<<20 - 1, 1 << 55, math.MaxInt64} {
		for _, allocator := range []string{"caching", "arena", "bfc", "direct", "paged"} {
			try(allocator+" under a memory limit", Config{Devices: []DeviceConfig{{Spec: "sim:total=64MiB", MemoryLimit: n, Allocator: allocator}}})
		}
		sim := []DeviceConfig{{Spec: "sim:total=64MiB"}}
		try("MaxEvents", Config{Devices: sim, MaxEvents: int(n), EventLevel: 1})
		try("EventLevel", Config{Devices: sim, EventLevel: int(n)})
	}
	for _, device := range []string{
		"total=1", "total=64MiB,granularity=1", "total=64MiB,granularity=512", "total=64MiB,granularity=1TiB", "total=32768TiB",
		"total=32768TiB,granularity=1TiB", "total=64MiB,alignment=1", "total=64MiB,alignment=1TiB", "total=64MiB,base=4611686018427387904",
	} {
		for _, allocator := range []string{
			"caching", "caching:expandable_segments:True", "arena", "arena:page=1TiB", "bfc", "bfc:virtual=on", "direct", "paged",
		} {
			try(allocator+" on sim:"+device, Config{Devices: []DeviceConfig{{Spec: "sim:" + device, Allocator: allocator}}})
		}
	}
	for _, form := range []string{
		"arena:size=N", "arena:round=N", "arena:limit=N", "arena:page=N", "arena:bounce=N", "bfc:limit=N", "bfc:initial=N",
		"bfc:fragmentation=N", "direct:limit=N", "paged:limit=N", "paged:page=N", "paged:keep=N", "paged:spare=N", "paged:addresses=N",
		"caching:limit:N", "caching:max_split_size_mb:N", "caching:garbage_collection_threshold:N",
	} {
		for _, n := range testkit.Numbers() {
			allocator := strings.Replace(form, "N", n, 1)
			try(allocator, Config{Devices: []DeviceConfig{{Spec: "sim:total=64MiB", Allocator: allocator}}})
		}
	}
}
