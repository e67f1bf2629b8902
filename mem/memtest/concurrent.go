package memtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkConcurrent runs goroutines that allocate on their own and on shared streams, and free each other's blocks. The
// model's lock is taken only after Alloc and before Free, so calls of the allocator overlap (behaviours 85, 90).
func checkConcurrent(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	const workers = 4
	var mu sync.Mutex // guards the model
	handed := make(chan *block, 64)
	var failed sync.Once
	fail := func(err error) bool {
		if err != nil {
			failed.Do(func() { t.Errorf("%v", err) })
		}
		return err != nil
	}
	free := func(b *block) bool {
		mu.Lock()
		err := w.check(b, b.writer, "before its free")
		w.remove(b)
		mu.Unlock()
		w.a.Free(b.Block)
		cfg.count(1)
		return fail(err)
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					fail(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
				}
			}()
			rng := rand.New(rand.NewPCG(cfg.Seed, uint64(worker)))
			g := generator{rng: rng, cfg: cfg}
			var own []*block
			defer func() {
				for _, b := range own {
					free(b)
				}
			}()
			for i := range max(200, cfg.Ops/workers) {
				stream := worker % cfg.Streams
				if rng.IntN(3) == 0 {
					stream = rng.IntN(cfg.Streams)
				}
				mb, err := w.a.Alloc(w.streams[stream], g.size()/16+1)
				cfg.count(1)
				if errors.Is(err, mem.ErrNoMemory) {
					continue
				}
				if fail(err) {
					return
				}
				b := &block{Block: mb, number: worker<<32 | i, owner: stream, pattern: byte(rng.IntN(255) + 1)}
				mu.Lock()
				err = w.add(b)
				if err == nil {
					err = w.fill(b, stream)
				}
				mu.Unlock()
				if fail(err) {
					return
				}
				own = append(own, b)
				switch rng.IntN(8) {
				case 0:
					select {
					case handed <- own[0]:
						own = own[1:]
					default:
					}
				case 1:
					select {
					case b := <-handed:
						own = append(own, b)
					default:
					}
				case 2:
					// Not w.empty, which is for one goroutine.
					if c, ok := mem.Find[mem.Trimmer](w.a); ok && rng.IntN(16) == 0 && fail(c.EmptyCache()) {
						return
					}
				case 3:
					readReports(w.a)
				}
				for len(own) > rng.IntN(40) {
					if free(own[0]) {
						return
					}
					own = own[1:]
				}
			}
		})
	}
	wg.Wait()
	for len(handed) > 0 {
		free(<-handed)
	}
	if t.Failed() {
		return
	}
	testkit.Must(t, w.finish())
}

// readReports reads state that other goroutines may be changing.
func readReports(a mem.Allocator) {
	if s, ok := mem.Find[mem.Snapshotter](a); ok {
		s.Snapshot()
	}
	if s, ok := mem.Find[mem.StatsReporter](a); ok {
		s.Stats()
	}
}
