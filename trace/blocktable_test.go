package trace

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// The table of blocks behaves like a map under any insertions and deletions: addresses close together, far apart, or
// with equal low bits.
func TestLoanTable(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for _, step := range []driver.Pointer{1, 512, 2 << 20, 1 << 40} {
		var table blockTable
		want := map[driver.Pointer]knownBlock{}
		for i := range 20_000 {
			p := (1 + driver.Pointer(r.IntN(900))) * step
			if i > 10_000 {
				p = (1 + driver.Pointer(r.IntN(60))) * step
			}
			switch r.IntN(3) {
			case 0:
				l := knownBlock{ptr: p, size: int64(i), stack: StackID(i)}
				table.put(l)
				want[p] = l
			case 1:
				got, ok := table.take(p)
				if l, known := want[p]; got != l || ok != known {
					t.Fatalf("seed %d, step %d, op %d: took %+v, %v; want %+v, %v", seed, step, i, got, ok, l, known)
				}
				delete(want, p)
			default:
				got, ok := table.get(p)
				if l, known := want[p]; got != l || ok != known {
					t.Fatalf("seed %d, step %d, op %d: %+v, %v; want %+v, %v", seed, step, i, got, ok, l, known)
				}
			}
			if table.n != len(want) {
				t.Fatalf("seed %d, step %d, op %d: %d blocks, want %d", seed, step, i, table.n, len(want))
			}
		}
		if len(table.slots) > 2048 {
			t.Errorf("step %d: %d slots for at most 900 blocks", step, len(table.slots))
		}
		table.put(knownBlock{size: 3}) // address 0 is ignored
		if _, ok := table.get(0); ok || table.n != len(want) {
			t.Error("there is a knownBlock at address 0")
		}
	}
}

func TestSegmentList(t *testing.T) {
	var l segmentList
	l.add(0x4000, 0x1000, 4)
	l.add(0x1000, 0x1000, 1)
	l.add(0x2000, 0x2000, 2)
	for p, want := range map[driver.Pointer]StackID{0x1000: 1, 0x2000: 2, 0x3000: 0, 0x4000: 4, 0x5000: 0} {
		if got := l.get(p); got != want {
			t.Errorf("at %#x: %d, want %d", uint64(p), got, want)
		}
	}
	if got := l.drop(0x1800, 0x1000); got != 1 { // the end of one piece and the beginning of the next
		t.Errorf("what was dropped at 0x1800 had stack %d", got)
	}
	l.add(0x4400, 0x400, 5) // within a piece
	want := segmentList{{0x1000, 0x800, 1}, {0x2800, 0x1800, 2}, {0x4000, 0x400, 4}, {0x4400, 0x400, 5}, {0x4800, 0x800, 4}}
	if !slices.Equal(l, want) {
		t.Errorf("%+v, want %+v", l, want)
	}
	if got := l.drop(0x2000, 0x3000); got != 0 || !slices.Equal(l, want[:1]) { // nothing lies at 0x2000
		t.Errorf("%+v, stack %d", l, got)
	}
}

// Each stack has one number, however many stacks there are.
func TestCallerTable(t *testing.T) {
	var table callerTable
	stacks := map[StackID][]uintptr{}
	for round := range 2 {
		for i := range 5000 {
			pcs := []uintptr{uintptr(i % 7), uintptr(i), 3}[:1+i%3]
			if i%3 == 0 {
				pcs[0] = uintptr(i)
			}
			id := table.of(pcs)
			if known, ok := stacks[id]; ok && !slices.Equal(known, pcs) || !ok && round > 0 || !slices.Equal(table.at(id), pcs) {
				t.Fatalf("round %d: stack %d is %v, and was %v", round, id, pcs, known)
			}
			stacks[id] = slices.Clone(pcs)
		}
	}
	if len(stacks) != len(table.stacks) || len(stacks) < 3000 {
		t.Errorf("%d stacks, %d in the table", len(stacks), len(table.stacks))
	}
	if table.of(nil) != 0 {
		t.Error("no stack has a number")
	}
}

// Frames of allocators are told from others by their package.
func TestIsAllocators(t *testing.T) {
	const module = "github.com/ashlar-go/ashlar/"
	for name, want := range map[string]bool{
		module + "trace.(*Recorder).Observe":            true,
		module + "trace.(*Recorder).Observe-fm":         true,
		module + "mem.AllocWith":                        true,
		module + "mem/layer.(*blockTable[...]).add":     true,
		module + "mem/caching.(*Allocator).Alloc.func1": true,
		module + "mem/arena/internal/region.(*R).Map":   true,
		module + "trace_test.TestX":                     false,
		module + "mem/caching_test.TestX":               false,
		module + "snapshot.(*Reporter).Alloc":           true,
		module + "engine.(*sessionAllocator).Alloc":     true,
		module + "engine.(*caches).AllocWith":           true,
		module + "tensor.reclaimingAllocator.AllocWith": true,
		"github.com/ashlar-go/ashlar/engine.Open":       false,
		"github.com/ashlar-go/ashlarmem/mem.F":          false,
		module + "snapshot.Of":                          false,
		module + "memory.Alloc":                         false,
		module + "tensor.New":                           false,
		module + "engine.(*Session).Reserve":            false,
		"example.com/github.com/ashlar-go/ashlar/mem.F": false,
		"main.main":      false,
		"runtime.goexit": false,
		"":               false,
	} {
		if got := isAllocators(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
