package layer_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	_ "github.com/ashlar-go/ashlar/mem/pinned"
)

// Any allocator's statistics go by TensorFlow's names: one that knows them, one that counts as PyTorch does, and one
// that counts nothing, under a SizeTracker.
func TestFrameworkStats(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	s := dev.DefaultStream()
	run := func(a mem.Allocator) map[string]int64 {
		t.Helper()
		var blocks []mem.Block
		for _, size := range []int64{1000, 4 << 20, 100} {
			b, err := a.Alloc(s, size)
			testkit.Must(t, err)
			blocks = append(blocks, b)
		}
		a.Free(blocks[1])
		got, ok := mem.FrameworkStatsOf(a)
		if !ok {
			t.Fatal("no layer counts")
		}
		for i, b := range blocks {
			if i != 1 {
				a.Free(b)
			}
		}
		return got.Map()
	}
	b, err := bfc.New(dev, bfc.Config{Limit: 64 << 20})
	testkit.Must(t, err)
	for name, c := range map[string]struct {
		a    mem.Allocator
		want map[string]int64
	}{
		"bfc": {layer.NewLimiter(b, 1<<40), map[string]int64{
			"num_allocs": 3, "bytes_in_use": 1280, "peak_bytes_in_use": 1280 + 4<<20, "largest_alloc_size": 4 << 20,
			"bytes_limit": 64 << 20, "bytes_reserved": 6 << 20, "peak_bytes_reserved": 6 << 20, "bytes_reservable_limit": 64 << 20,
			"largest_free_block_bytes": 4 << 20, "pool_bytes": 6 << 20, "peak_pool_bytes": 6 << 20,
		}},
		"caching": {layer.NewLimiter(layer.NewLimiter(newCaching(t, dev), 1<<40), 1<<39), map[string]int64{
			"num_allocs": 3, "bytes_in_use": 1536, "peak_bytes_in_use": 1536 + 4<<20, "largest_alloc_size": 4 << 20, "bytes_limit": 1 << 30,
			"bytes_reserved": 22 << 20, "peak_bytes_reserved": 22 << 20, "largest_free_block_bytes": 20 << 20, "pool_bytes": 22 << 20,
			"peak_pool_bytes": 22 << 20,
		}},
		"tracked caching": {layer.NewSizeTracker(layer.NewLimiter(newCaching(t, dev), 1<<39), layer.SizeTrackerOptions{}), map[string]int64{
			"num_allocs": 3, "bytes_in_use": 1536, "peak_bytes_in_use": 1536 + 4<<20, "largest_alloc_size": 4 << 20,
			"bytes_limit": 1 << 30, "bytes_reserved": 22 << 20, "peak_bytes_reserved": 22 << 20,
			"largest_free_block_bytes": 20 << 20, "pool_bytes": 22 << 20, "peak_pool_bytes": 22 << 20,
		}},
		"tracked pile": {layer.NewSizeTracker(fake.NewPile(512), layer.SizeTrackerOptions{}), map[string]int64{
			"num_allocs": 3, "bytes_in_use": 1536, "peak_bytes_in_use": 1536 + 4<<20, "largest_alloc_size": 4 << 20,
			"bytes_reserved": 0, "peak_bytes_reserved": 0, "largest_free_block_bytes": 0, "pool_bytes": 0, "peak_pool_bytes": 0,
		}},
	} {
		if got := run(c.a); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s:\n%v, want\n%v", name, got, c.want)
		}
	}
	if s, _ := mem.FrameworkStatsOf(layer.NewLimiter(b, 1<<20)); *s.BytesLimit != 1<<20 || *s.BytesReservableLimit != 64<<20 {
		t.Errorf("under a lower limit:\n%v", s)
	}
	if s, ok := mem.FrameworkStatsOf(fake.NewPile(1)); ok {
		t.Errorf("a pile counts %+v", s)
	}
	testkit.Must(t, b.Close())
}

// TestDefect19_FrameworkStatsOfEveryAllocator: each knows the largest block that it allocated, and how many bytes
// there can be live: by a limit, or else all that the device or the arena has.
func TestDefect19_FrameworkStatsOfEveryAllocator(t *testing.T) {
	const total, limit = 1 << 30, 64 << 20
	for spec, bytes := range map[string]int64{
		"caching": total, "caching:limit:64MiB": limit, "bfc": total, "bfc:limit=64MiB": limit, "direct": total,
		"direct:limit=64MiB": limit, "paged": total, "paged:limit=64MiB": limit, "arena:size=64MiB": limit, "pinned": 0,
	} {
		dev := drivertest.OpenSim(t, total)
		a, err := mem.Open(spec, dev)
		testkit.Must(t, err)
		s := dev.DefaultStream()
		large := mustAllocOn(t, a, s, 3<<20)
		small := mustAllocOn(t, a, s, 1000)
		got, ok := mem.FrameworkStatsOf(a)
		if !ok || got.LargestAllocSize < large.Size || got.LargestAllocSize > 4<<20 {
			t.Errorf("%s: the largest block has %d bytes, want %d", spec, got.LargestAllocSize, large.Size)
		}
		if n := got.Map()["bytes_limit"]; n != bytes {
			t.Errorf("%s: at most %d bytes allocated, want %d", spec, n, bytes)
		}
		a.Free(small)
		a.Free(large)
		testkit.Must(t, a.(io.Closer).Close())
	}
}

func TestFrameworkStatsAsText(t *testing.T) {
	limit := int64(1 << 34)
	s := mem.FrameworkStats{NumAllocs: 7, BytesInUse: 1536, BytesLimit: &limit}
	testkit.Contains(t, strings.Join(strings.Fields(s.String()), " "), "num_allocs: 7 bytes_in_use: 1536 peak_bytes_in_use: 0",
		"bytes_limit: 17179869184", "bytes_reservable_limit: none", "peak_pool_bytes: 0")
	if _, there := s.Map()["bytes_reservable_limit"]; there || s.Map()["bytes_limit"] != limit {
		t.Errorf("%v", s.Map())
	}
}
