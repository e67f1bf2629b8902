package paged_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Without a limit, the reserved memory exceeds the live peak by at most 2.5 %, for blocks of all sizes in random order:
// pages of several granules lie at the edges of the gaps between blocks.
func TestReservedIsTheLivePeak(t *testing.T) {
	for seed := range uint64(6) {
		r := simple(t, 1<<16, paged.Config{})
		rng := rand.New(rand.NewPCG(seed, 6))
		var live []mem.Block
		var now, peak int64
		for step := range 2000 {
			if n := len(live); n > 0 && (n == 64 || rng.IntN(64) < n) {
				i := rng.IntN(n)
				now -= live[i].Size
				r.free(live[i])
				live[i] = live[n-1]
				live = live[:n-1]
			}
			b := r.alloc(r.s, (16+rng.Int64N(112))*granule+rng.Int64N(granule))
			live = append(live, b)
			now += b.Size
			peak = max(peak, now)
			if step%100 == 0 {
				r.check()
			}
		}
		f := r.a.PageStats()
		if reserved := max(f.Reserved, r.a.Stats().ReservedBytes.All.Peak); float64(reserved) > 1.025*float64(peak) {
			t.Errorf("seed %d: %d bytes held, %.3f times the live peak of %d", seed, reserved, float64(reserved)/float64(peak), peak)
		}
		r.free(live...)
	}
}

// Under a limit, a request succeeds whenever that much memory is free, wherever it is: here directly after the last
// block, up to the last byte of the last page.
func TestTheLimitCanBeFilled(t *testing.T) {
	const limit = 24 // granules
	for seed := range uint64(20) {
		for _, cfg := range []paged.Config{{Limit: limit * granule}, {Limit: limit * granule, NoAliases: true}} {
			r := simple(t, 64, cfg)
			rng := rand.New(rand.NewPCG(seed, 7))
			for range 6 {
				var live []mem.Block
				for {
					b, err := r.a.Alloc(r.s, slabbed+rng.Int64N(3*granule))
					if err != nil {
						break
					}
					live = append(live, b)
				}
				last := live[0]
				rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
				for _, b := range live {
					if b.Ptr > last.Ptr {
						last = b
					}
				}
				kept := live[:0]
				for _, b := range live {
					if b == last || rng.IntN(2) == 0 {
						kept = append(kept, b)
					} else {
						r.free(b)
					}
				}
				room := limit*granule - r.used(kept)
				room += -int64(last.Ptr+driver.Pointer(last.Size)) & (granule - 1) // what is left of the granule in which last ends
				if room > 0 {
					b, err := r.a.Alloc(r.s, room)
					if err != nil {
						t.Fatalf("seed %d, %+v: %d bytes behind the last block: %v", seed, cfg, room, err)
					}
					r.fill(r.s, b, 1)
					if got := r.a.PageStats().Reserved; got > limit*granule {
						t.Fatalf("seed %d: %d bytes held", seed, got)
					}
					kept = append(kept, b)
				}
				r.check()
				r.free(kept...)
			}
		}
	}
}

// Under a limit, a request succeeds if a gap between blocks, or the room after them, needs no more unused granules than
// the limit leaves.
func TestWhatFitsIsFound(t *testing.T) {
	const limit = 24 // granules
	for seed := range uint64(40) {
		r := simple(t, 64, paged.Config{Limit: limit * granule})
		rng := rand.New(rand.NewPCG(seed, 9))
		first := r.alloc(r.s, slabbed) // at the start of the addresses
		base := first.Ptr
		r.free(first)
		var live []mem.Block
		tight := 0
		for step := range 400 {
			size := slabbed + rng.Int64N(8*granule)>>rng.IntN(3)
			if n := len(live); n > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(n)
				r.free(live[i])
				live[i] = live[n-1]
				live = live[:n-1]
				continue
			}
			units := (size + 511) / 512 * 512
			slices.SortFunc(live, func(x, y mem.Block) int { return cmp.Compare(x.Ptr, y.Ptr) })
			left, fits := limit*granule-r.used(live), false
			for at, i := base, 0; i <= len(live) && !fits; i++ {
				if i == len(live) || int64(live[i].Ptr-at) >= units {
					fits = r.used(append(live[:len(live):len(live)], mem.Block{Ptr: at, Size: units}))-r.used(live) <= left
				}
				if i < len(live) {
					at = live[i].Ptr + driver.Pointer(live[i].Size)
				}
			}
			b, err := r.a.Alloc(r.s, size)
			if (err == nil) != fits {
				t.Fatalf("seed %d, step %d: %d bytes, of which the model says %v that they fit: %v", seed, step, size, fits, err)
			}
			if err == nil {
				live = append(live, b)
			} else {
				tight++
			}
		}
		if tight == 0 {
			t.Errorf("seed %d: everything fitted", seed)
		}
		r.free(live...)
	}
}

const slabbed = 4<<10 + 1 // the first size that is in no slab

// used is the bytes of the granules that blocks touch.
func (r *rig) used(blocks []mem.Block) int64 {
	touched := map[driver.Pointer]bool{}
	for _, b := range blocks {
		for p := b.Ptr / granule; p <= (b.Ptr+driver.Pointer(b.Size)-1)/granule; p++ {
			touched[p] = true
		}
	}
	return int64(len(touched)) * granule
}

// Several free pieces, each too small for a request, together serve it.
func TestFragmentsAreMemory(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 64 * granule})
	var live []mem.Block
	for i := range 64 {
		live = append(live, r.granules(1))
		r.fill(r.s, live[i], byte(i))
	}
	for i := 0; i < 64; i += 2 {
		r.free(live[i])
	}
	big := r.granules(32)
	r.fill(r.s, big, 200)
	for i := 1; i < 64; i += 2 {
		r.holds(r.s, live[i], byte(i))
		r.free(live[i])
	}
	r.holds(r.s, big, 200)
	r.free(big)
	all := r.granules(64)
	r.free(all)
}

// Adjacent blocks share the page at their border, and small blocks share slabs.
func TestEdgesAreShared(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: 3 * granule})
	x, y := r.alloc(r.s, granule*3/2), r.alloc(r.s, granule*3/2)
	if f := r.a.PageStats(); f.Used != 3*granule || f.Reserved != 3*granule {
		t.Errorf("two blocks of one and a half granules: %+v", f)
	}
	r.fill(r.s, x, 1)
	r.fill(r.s, y, 2)
	r.free(x)
	x = r.alloc(r.s, granule) // its page alone is free: the other is y's as well
	r.holds(r.s, y, 2)
	if f := r.a.PageStats(); f.Used != 3*granule {
		t.Errorf("%+v", f)
	}
	r.free(x, y)
	var small []mem.Block
	for range 3 * granule / 512 {
		small = append(small, r.alloc(r.s, 512))
	}
	if _, err := r.a.Alloc(r.s, 1); err == nil {
		t.Error("one byte more than the limit")
	}
	r.free(small...)
	r.free(r.granules(3))
}

// A small request succeeds even if there is no room for a slab.
func TestSmallBlocksWithoutSlabs(t *testing.T) {
	r := simple(t, 64, paged.Config{Limit: granule})
	x := r.alloc(r.s, granule-8<<10)
	var small []mem.Block
	for range 2 {
		b := r.alloc(r.s, 4<<10)
		r.fill(r.s, b, 3)
		small = append(small, b)
	}
	if _, err := r.a.Alloc(r.s, 512); err == nil {
		t.Error("more than the limit")
	}
	r.check()
	r.free(append(small, x)...)
	r.free(r.granules(1))
}

// When blocks are freed, idle memory beyond the amount to keep returns to the driver.
func TestKeep(t *testing.T) {
	for _, test := range []struct{ keep, want int64 }{{paged.KeepAll, 16}, {paged.KeepNone, 0}, {4 * granule, 4}, {granule - 1, 0}} {
		r := simple(t, 64, paged.Config{Keep: test.keep})
		var live []mem.Block
		for range 16 {
			live = append(live, r.granules(1))
		}
		for _, b := range live {
			r.a.Free(b, r.s)
		}
		r.free(r.alloc(r.s, 512))
		r.a.Free(r.alloc(r.s, 1024), r.s)
		r.a.Free(r.alloc(r.s, 512), r.s)
		if got := r.a.PageStats().Reserved; got > test.want*granule && got > granule || test.keep == paged.KeepAll && got < 16*granule {
			t.Errorf("keep %d: %d bytes held, want %d granules", test.keep, got, test.want)
		}
		r.check()
	}
}

// A page may have any size.
func TestHugePages(t *testing.T) {
	for _, cfg := range []paged.Config{{Page: 1 << 40}, {Page: 1 << 33}} {
		r := simple(t, 1<<18, cfg)
		b, more := r.granules(1), r.granules(1<<16)
		r.free(b, more)
		r.check()
	}
}

// Idle memory of just the size that may be kept is kept.
func TestKeepsWhatItMay(t *testing.T) {
	r := simple(t, 64, paged.Config{Keep: 2 * granule})
	r.a.Observe(func(mem.Event) {}) // without processor caches
	for n := range int64(4) {
		var blocks []mem.Block
		for range n {
			blocks = append(blocks, r.alloc(r.s, granule))
		}
		r.free(blocks...)
		if got := r.a.PageStats(); got.Used != 0 || got.Reserved != min(n, 2)*granule {
			t.Errorf("after %d blocks of a granule: %+v", n, got)
		}
	}
	r.a.Observe(nil)
}

// Pages that moved have several addresses. One of them is left to each page where one is the rule: behind paused
// memory, and once peers use it. Live blocks keep their contents.
func TestMovedPagesAreLeftOneAddress(t *testing.T) {
	for name, do := range map[string]func(*rig) error{
		"AddPeer": func(r *rig) error { return r.a.AddPeer(r.dev) },
		"Pause":   func(r *rig) error { return errors.Join(r.a.Pause(paged.PauseOptions{}), r.a.Resume()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := simple(t, 64, paged.Config{Limit: 12 * granule})
			x, between, z := r.granules(4), r.granules(4), r.granules(4)
			r.free(x, z)
			r.free(r.granules(8)) // takes the memory of x and z to one place
			live := r.granules(3)
			r.free(between)
			r.fill(r.s, live, 7)
			if s := r.a.PageStats(); s.Mappings == s.Pages {
				t.Fatal("no page has two addresses: the test shows nothing")
			}
			r.must(do(r))
			r.check()
			r.holds(r.s, live, 7)
			if s := r.a.PageStats(); s.Mappings != s.Pages {
				t.Errorf("%d pages are mapped at %d addresses", s.Pages, s.Mappings)
			}
			r.free(live)
		})
	}
}
