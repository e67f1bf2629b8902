package paged_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Goroutines, on separate streams and on a shared one, allocate, fill, pass on and free blocks, while other goroutines
// read statistics and empty the cache.
func TestConcurrent(t *testing.T) {
	for _, cfg := range []paged.Config{{}, {Limit: 40 * granule}, {Limit: 40 * granule, NoAliases: true}, {Keep: 2 * granule}} {
		r := newRig(t, 64, sim.Options{Unchecked: true}, cfg, nil)
		type parcel struct {
			mem.Block
			s driver.Stream
		}
		handed := make(chan parcel, 64)
		var workers, lookers sync.WaitGroup
		var served atomic.Int64
		for id := range 6 {
			s := r.s
			if id%2 == 0 {
				s = r.stream()
			}
			workers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(id), 8))
				var own []parcel
				for range 600 {
					b, err := r.a.Alloc(s, 1+rng.Int64N(4*granule)>>rng.IntN(12))
					switch {
					case err == nil:
						served.Add(1)
						if err := s.Fill(b.Ptr, byte(id), b.Size); err != nil {
							t.Error(err)
						}
						own = append(own, parcel{b, s})
					case !errors.Is(err, mem.ErrNoMemory):
						t.Error(err)
					}
					for len(own) > 3 || err != nil && len(own) > 0 {
						i := rng.IntN(len(own))
						select {
						case handed <- own[i]: // another goroutine frees it
						default:
							r.a.Free(own[i].Block)
						}
						own[i] = own[len(own)-1]
						own = own[:len(own)-1]
					}
					select {
					case p := <-handed:
						if rng.IntN(2) == 0 {
							r.a.Free(p.Block)
						} else {
							r.a.Free(p.Block, p.s, s)
						}
					default:
					}
				}
				for _, p := range own {
					r.a.Free(p.Block)
				}
			})
		}
		stop := make(chan struct{})
		for what := range 2 {
			lookers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if what == 0 {
						switch n % 4 {
						case 0:
							if err := r.a.EmptyCache(); err != nil {
								t.Error(err)
							}
						case 1:
							r.a.Observe(func(mem.Event) {})
						case 2:
							r.a.Observe(nil)
						case 3:
							if err := r.a.SetLimit(int64(24+n%40) * granule); err != nil {
								t.Error(err)
							}
						}
					} else if err := r.a.Check(); err != nil {
						t.Error(err)
					} else {
						if s := r.a.Stats(); s.AllocatedBytes.All.Current < 0 || s.AllocatedBytes.All.Current > s.ReservedBytes.All.Current {
							t.Errorf("%+v", s.AllocatedBytes.All)
						}
						r.a.Snapshot()
						r.a.PageStats()
					}
					runtime.Gosched()
				}
			})
		}
		workers.Wait()
		close(stop)
		lookers.Wait()
		close(handed)
		for p := range handed {
			r.a.Free(p.Block)
		}
		if served.Load() < 1000 {
			t.Errorf("%+v: %d requests served of 3600", cfg, served.Load())
		}
		if s := r.a.Stats(); s.Allocation.All.Current != 0 || s.AllocatedBytes.All.Current != 0 || s.RequestedBytes.All.Current != 0 {
			t.Errorf("all is freed; live %+v, %+v, %+v", s.Allocation.All, s.AllocatedBytes.All, s.RequestedBytes.All)
		}
	}
}

// Memory that goroutines freed, on any processor, is available to a request for the whole limit.
func TestFreedElsewhere(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const most = 8 * 3 // granules that eight blocks touch which are less than two granules long
	r := newRig(t, 64, sim.Options{Unchecked: true}, paged.Config{Limit: most * granule}, nil)
	for range 30 {
		var workers sync.WaitGroup
		for id := range int64(8) {
			workers.Go(func() {
				for n := range int64(50) {
					b, err := r.a.Alloc(r.s, 1+(id+n)%8*granule/4)
					if err != nil {
						t.Error(err)
						return
					}
					runtime.Gosched()
					r.a.Free(b)
				}
			})
		}
		workers.Wait()
		r.free(r.granules(most))
	}
}

// A freed block counts as free even while a request that took it from a processor cache waits for the lock: in the
// statistics, and for a request that needs the whole limit.
func TestFreedWhileOthersWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	next := func() {} // what the next call of Map does first
	r := newRig(t, 64, sim.Options{Unchecked: true}, paged.Config{Limit: 10 * granule}, func(d driver.Device) driver.Device {
		return intercept.Wrap(d, func(c intercept.Call, call func() error) error {
			if c.Kind == intercept.Map {
				next()
			}
			return call()
		})
	})
	runtime.GOMAXPROCS(1) // so that others go on only while a call lets them
	var others sync.WaitGroup
	duringMap := func(do func()) { // in the next call of Map
		next = func() {
			next = func() {}
			others.Go(do)
			for range 100 {
				runtime.Gosched()
			}
		}
	}
	s := r.stream()
	duringMap(func() { r.free(r.alloc(s, 512)) }) // so that processors have processor caches of their own
	r.free(r.granules(2))
	others.Wait()
	for range 4 {
		r.must(r.a.EmptyCache())
		var live []mem.Block
		for range 8 {
			live = append(live, r.granules(1))
		}
		duringMap(func() {
			r.free(live...)
			r.free(r.alloc(s, granule))
		})
		last := r.granules(2)
		if n := r.a.Stats().Allocation.All.Current; n > 2 {
			t.Errorf("%d live blocks: all but one or two were freed", n)
		}
		r.free(last)
		if all, err := r.a.Alloc(r.s, 9*granule); err != nil {
			t.Errorf("9 of 10 granules are free: %v", err)
		} else {
			r.free(all)
		}
		others.Wait()
	}
}
