package host

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// grainBytes is the least work that is worth a goroutine, as memory that is read and written.
const grainBytes = 32 << 10

// each calls f for ranges [lo, hi) of at least grain (but for the last) that cut [0, n), on as many processors as the
// backend has, and returns when all are done. Little work is done at once, by the caller. A panic in f comes out of each.
func (b *Backend) each(n, grain int, f func(lo, hi int)) {
	const partsEach = 4 // so that processors that others use too do not keep the rest waiting
	parts := min(b.procs*partsEach, n/max(grain, 1))
	if parts <= 1 || b.procs == 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	length := (n + parts - 1) / parts
	if length >= 256 {
		length = (length + 63) &^ 63 // parts share no cache line of a result
	}
	var (
		next     atomic.Int64
		wait     sync.WaitGroup
		panicked atomic.Pointer[any]
	)
	work := func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // as the goroutines of the host's streams do
		defer func() {
			if v := recover(); v != nil {
				panicked.CompareAndSwap(nil, &v)
				next.Store(int64(n))
			}
		}()
		for {
			hi := int(next.Add(int64(length)))
			lo := hi - length
			if lo >= n {
				return
			}
			f(lo, min(hi, n))
		}
	}
	for range min(b.procs, parts) - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
	if v := panicked.Load(); v != nil {
		panic(*v)
	}
}

// spread calls task(i) for all 0 <= i < n, on as many processors as the backend has, and returns when all are done.
func (b *Backend) spread(n int, task func(i int)) {
	b.each(n, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			task(i)
		}
	})
}
