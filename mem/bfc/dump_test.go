package bfc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

// TestDump: live, free, stamped, refused and wasted memory, in two segments.
func TestDump(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 6 * mib, Name: "GPU_0_bfc", Counter: &bfc.Counter{}})
	var out strings.Builder
	dump := func(title string) {
		t.Helper()
		out.WriteString("== " + title + "\n")
		if err := b.WriteDump(&out); err != nil {
			t.Fatal(err)
		}
	}
	dump("nothing")
	var free []mem.Block
	for _, size := range []int64{100, 256, 300_000, 300_000, 700_000, 1000} {
		block := b.alloc(size)
		if size%256 != 0 && size > 1000 {
			free = append(free, block)
		}
	}
	b.alloc(3 * mib) // its segment has 4 MiB: the rest is too little to be cut off
	b.Free(free[0])
	b.Free(free[1])
	if _, err := b.Alloc(b.s, 900_000); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatal(err)
	}
	dump("two freed, stamped and forced together; a request refused")
	b.SetSafeFrontier(3)
	b.alloc(200)
	dump("the frontier has passed them")
	golden.File(t, "testdata/dump.txt", out.String())
}

// The map has 100 characters; requested bytes take precedence in it.
func TestMap(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 25600, NoGrowth: true})
	if m := b.Map(); m != "" {
		t.Errorf("no segments: %q", m)
	}
	blocks := []mem.Block{b.alloc(25 * 256), b.alloc(256 + 1), b.alloc(30 * 256)}
	b.Free(blocks[0])
	b.alloc(13 * 256) // of 25, which is not cut: less than twice as large
	want := strings.Repeat("*", 13) + strings.Repeat("x", 12) + "**" + strings.Repeat("*", 30) + strings.Repeat("_", 43)
	if m := b.Map(); m != want {
		t.Errorf("\n%s\n%s is wanted", m, want)
	}
}

func TestMetadata(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 4096, NoGrowth: true})
	var out strings.Builder
	b.ObserveMetadata(func(line string) { out.WriteString(line + "\n") })
	first := b.alloc(1000)
	second, err := b.Request(t.Context(), b.s, 512, bfc.Options{
		Note: bfc.Note{Op: "MatMul", Step: 7, Region: "output", DataType: 1, Shape: "[16,8]"},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Free(first)
	b.ObserveMetadata(nil)
	b.Free(second)
	golden.File(t, "testdata/metadata.txt", out.String())
}

// Fragmentation is the part of the free memory outside the largest free block.
func TestFragmentation(t *testing.T) {
	b := newBench(t, bfc.Config{Limit: 1024, NoGrowth: true})
	check := func(want float64, largest int64) {
		t.Helper()
		if f, free := b.Fragmentation(), b.FrameworkStats().LargestFreeBlockBytes; f != want || free != largest {
			t.Errorf("fragmentation %v, largest free %d: want %v, %d", f, free, want, largest)
		}
	}
	check(0, 0)
	first, _, third := b.alloc(256), b.alloc(256), b.alloc(256)
	check(0, 256)
	b.Free(first)
	check(0.5, 256)
	b.Free(third)
	check(1.0/3, 512)
	b.alloc(512)
	b.alloc(256)
	check(0, 0)
}
