package caching_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// A dag is a random capture on four streams. Every block is written once, as a multiple of what in holds plus a
// constant, and read on any stream. The model knows of each stream which works come before its next.
type dag struct {
	*graphBench
	rng      *rand.Rand
	in, zero mem.Block
	known    [4]map[int]bool // by work; nil until the stream is drawn in
	works    int
	live     []*dagBlock
	freed    []*dagBlock // with other users
	reused   int
}

type dagBlock struct {
	mem.Block
	own     int // the stream that it is of
	times   byte
	plus    byte
	written int
	users   map[int][]int // works by stream
}

func (d *dag) after(i, work int) bool { return d.known[i][work] }

// join makes stream i wait for j.
func (d *dag) join(i, j int) {
	d.follow(d.s[i], d.s[j])
	if d.known[i] == nil {
		d.known[i] = map[int]bool{}
	}
	for work := range d.known[j] {
		d.known[i][work] = true
	}
}

// take returns a block of stream i. It must be none that a work may still use.
func (d *dag) take(i int) *dagBlock {
	d.t.Helper()
	block := &dagBlock{Block: d.alloc(d.s[i], d.size+d.rng.Int64N(4*d.size)), own: i, users: map[int][]int{}}
	end := func(b mem.Block) driver.Pointer { return b.Ptr + driver.Pointer(b.Size) }
	for _, old := range d.live {
		if block.Ptr < end(old.Block) && old.Ptr < end(block.Block) {
			d.t.Fatalf("%#x is allocated twice", block.Ptr)
		}
	}
	d.freed = slices.DeleteFunc(d.freed, func(old *dagBlock) bool {
		if block.Ptr >= end(old.Block) || old.Ptr >= end(block.Block) {
			return false
		}
		for j, works := range old.users {
			for _, work := range works {
				if !d.after(i, work) {
					d.t.Fatalf("%#x is allocated on stream %d, and what stream %d does with it does not come before", block.Ptr, i, j)
				}
			}
		}
		d.reused++
		return true
	})
	return block
}

// use notes a work of stream i on blocks.
func (d *dag) use(i int, blocks ...*dagBlock) {
	d.known[i][d.works] = true
	for _, b := range blocks {
		b.users[i] = append(b.users[i], d.works)
	}
	d.works++
}

func (d *dag) step() {
	d.t.Helper()
	i, j := d.rng.IntN(4), d.rng.IntN(4)
	switch k := d.rng.IntN(8); {
	case d.known[i] == nil || k < 2:
		if i != j && d.known[j] != nil {
			d.join(i, j)
		}
	case k < 4: // a block that depends on the input alone
		z := d.take(i)
		v := byte(d.rng.Uint32())
		d.sum(d.s[i], z.Block, d.in, d.zero, v)
		z.times, z.plus, z.written = 1, v, d.works
		d.use(i, z)
		d.live = append(d.live, z)
	case k < 6: // one that depends on others
		if len(d.live) == 0 {
			return
		}
		x, y := d.live[d.rng.IntN(len(d.live))], d.live[d.rng.IntN(len(d.live))]
		if !d.after(i, x.written) || !d.after(i, y.written) {
			return
		}
		z := d.take(i)
		d.sum(d.s[i], z.Block, x.Block, y.Block, 3)
		z.times, z.plus, z.written = x.times+y.times, x.plus+y.plus+3, d.works
		d.use(i, x, y, z)
		d.live = append(d.live, z)
	case len(d.live) > 4 || k == 6 && len(d.live) > 0:
		n := d.rng.IntN(len(d.live))
		block := d.live[n]
		d.live = slices.Delete(d.live, n, n+1)
		var used []driver.Stream
		for j, s := range d.s {
			if len(block.users[j]) > 0 && d.rng.IntN(10) > 0 || j != block.own && len(block.users[j]) > 0 {
				used = append(used, s)
			}
		}
		if len(block.users) > 1 {
			d.freed = append(d.freed, block)
		}
		d.Free(block.Block, used...)
	}
}

// Random captures: no block is allocated that a stream may still use, as the model and the simulator's race detector
// see it, and every launch gives the right contents for its input.
func TestRandomReuseInCaptures(t *testing.T) {
	seed := testkit.FreshSeed()
	t.Logf("seed %d", seed)
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		rng := rand.New(rand.NewPCG(seed, 0))
		zero := b.zeros(512)
		in := b.alloc(b.s[0], b.size)
		reused := 0
		for round := range 40 {
			d := &dag{graphBench: b, rng: rng, in: in, zero: zero}
			d.known[0] = map[int]bool{}
			id := mem.PoolID{1, 0}
			g := b.capture(id, b.s[0], func() {
				for range 250 {
					d.step()
				}
				for j := 1; j < 4; j++ {
					if d.known[j] != nil {
						d.join(0, j)
					}
				}
				for j := 1; j < 4; j++ { // so that all may use what is left
					if d.known[j] != nil {
						d.join(j, 0)
						d.join(0, j)
					}
				}
			})
			for _, v := range []byte{0, 1, byte(rng.Uint32()), 255} {
				b.ok(b.s[0].Fill(in.Ptr, v, b.size))
				b.ok(g.Launch(b.s[0]))
				for _, block := range d.live {
					b.holds(b.s[0], block.Block, block.times*v+block.plus)
				}
			}
			for _, block := range d.live {
				b.Free(block.Block)
			}
			b.ok(g.Close())
			b.ReleasePool(id)
			b.ok(b.Check())
			b.ok(b.EmptyCache())
			testkit.Equal(b.t, "active blocks", b.Stats().Active.All.Current, 2)
			reused += d.reused
			if b.t.Failed() {
				b.t.Fatalf("round %d", round)
			}
		}
		if reused < 100 {
			b.t.Errorf("%d blocks were used again by graph order: the test shows little", reused)
		}
		b.finish(nil, nil, zero, in)
	})
}
