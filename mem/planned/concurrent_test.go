package planned_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// No byte of the region is allocated twice, even if goroutines share a stream, free each other's blocks early or late,
// with or without other streams, and depart from the plan.
func TestConcurrentOverlaps(t *testing.T) {
	seed := testkit.FreshSeed()
	for i := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		made := plan(t, training(steps(3+3*(i%2), 1, 2+int64(i))), planned.Options{Room: 10 * (i % 3)})
		dev := drivertest.OpenSim(t, 1<<30)
		a := open(t, dev, made)
		first, err := a.Alloc(dev.DefaultStream(), 100_000) // the first weight lies somewhere in the region
		testkit.Must(t, err)
		a.Free(first)
		region := a.Snapshot()[0]
		for _, s := range a.Snapshot() {
			if s.TotalSize == made.Size() {
				region = s
			}
		}
		other := drivertest.NewStream(t, dev)
		taken := make([]atomic.Int32, made.Size()/512)
		var asked atomic.Int64
		asked.Store(100_000)
		claim := func(b mem.Block, by int32, size int64) {
			if b.Ptr < region.Ptr || b.Ptr >= region.Ptr+driver.Pointer(region.TotalSize) {
				return
			}
			asked.Add(size)
			at := int(b.Ptr-region.Ptr) / 512
			for j := at; j < at+int(b.Size)/512; j++ {
				if !taken[j].CompareAndSwap(1-by, by) {
					t.Errorf("seed %#x, round %d: %+v is allocated twice, or not at all", seed, i, b)
					return
				}
			}
		}
		late := make(chan mem.Block, 40)
		free := func(rng *rand.Rand, b mem.Block) {
			claim(b, 0, 0)
			if rng.IntN(100) == 0 {
				a.Free(b, other)
			} else {
				a.Free(b)
			}
		}
		var freers, followers sync.WaitGroup
		var done atomic.Bool
		for range 2 {
			mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
			freers.Go(func() {
				for b := range late {
					free(mine, b)
				}
			})
		}
		for who := range 3 {
			mine := rand.New(rand.NewPCG(rng.Uint64(), 1))
			followers.Go(func() {
				for range 3 {
					p := training(steps(20, 1, 2+int64(i)))
					blocks := make([]mem.Block, p.Blocks)
					for _, op := range p.Ops {
						b := blocks[op.Block]
						switch {
						case op.Kind == trace.OpAlloc && who > 0 && mine.IntN(3+60*who) > 0:
						case op.Kind == trace.OpAlloc:
							b, err := a.Alloc(dev.DefaultStream(), op.Size)
							if err != nil {
								t.Error(err)
							}
							claim(b, 1, op.Size)
							blocks[op.Block] = b
						case b == mem.Block{}:
						case mine.IntN(4) == 0:
							late <- b
						default:
							free(mine, b)
						}
						if op.Kind != trace.OpAlloc {
							blocks[op.Block] = mem.Block{}
						}
					}
					for _, b := range blocks {
						if b != (mem.Block{}) {
							free(mine, b)
						}
					}
				}
			})
		}
		freers.Go(func() {
			for !done.Load() {
				a.Stats()
				if err := a.Check(); err != nil {
					t.Errorf("seed %#x, round %d: %v", seed, i, err)
				}
			}
		})
		followers.Wait()
		done.Store(true)
		close(late)
		freers.Wait()
		c, s := a.Counts(), a.Stats()
		t.Logf("%+v", c)
		// Of the large pool all is the region's.
		if n := s.RequestedBytes.LargePool; c.Served == 0 || s.Allocation.All.Current != 0 || n.Allocated != asked.Load() || n.Freed != asked.Load() {
			t.Errorf("seed %#x, round %d: %+v, %+v, want %d bytes requested of the region", seed, i, c, n, asked.Load())
		}
		testkit.Must(t, a.Close())
	}
}

// turns is a program of two streams that allocate in turn: each block gets the memory of the other stream's last one.
func turns(rounds int) *trace.Program {
	s := &scribe{}
	for i := range rounds {
		b := s.alloc(int64(10_000 + 1000*(i%2)))
		s.Ops[len(s.Ops)-1].Stream = uint32(i % 2)
		s.free(b)
	}
	s.Streams = 2
	return &s.Program
}

// A stream that gets another one's memory waits for its work. One that gets its own does not.
func TestSharedMemoryIsWaitedFor(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	made := plan(t, turns(8), planned.Options{})
	if made.Size() != 11264 {
		t.Fatalf("a region of %d bytes, want that of the larger block", made.Size())
	}
	a := open(t, dev, made)
	streams := []driver.Stream{dev.DefaultStream(), drivertest.NewStream(t, dev)}
	for i := range 8 {
		before := dev.Calls()[sim.CallWaitFor].Count
		b, err := a.Alloc(streams[i%2], int64(10_000+1000*(i%2)))
		testkit.Must(t, err)
		if waits := dev.Calls()[sim.CallWaitFor].Count - before; (waits == 1) != (i > 0) {
			t.Errorf("request %d: %d waits", i, waits)
		}
		testkit.Must(t, streams[i%2].Fill(b.Ptr, byte(i), b.Size))
		a.Free(b)
	}
	if c := a.Counts(); c.Missed > 0 {
		t.Errorf("%+v", c)
	}
}

// Goroutines may drive streams that share memory, in any order: no block is written before the work on the one before.
func TestSharedConcurrently(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	a := open(t, dev, plan(t, turns(40), planned.Options{}))
	var group sync.WaitGroup
	for i, s := range []driver.Stream{dev.DefaultStream(), drivertest.NewStream(t, dev)} {
		group.Go(func() {
			for range 500 {
				b, err := a.Alloc(s, int64(10_000+1000*i))
				if err == nil {
					err = s.Fill(b.Ptr, 1, b.Size)
				}
				if err != nil {
					t.Error(err)
					return
				}
				a.Free(b)
			}
		})
	}
	group.Wait()
	testkit.Must(t, a.Check())
	if c := a.Counts(); c.Served == 0 || c.Served+c.Missed != 1000 {
		t.Errorf("%+v", c)
	}
}
