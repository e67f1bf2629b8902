package host

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// grainBytes is the smallest amount of work for a goroutine, in bytes read and written.
const grainBytes = 32 << 10

// parallelRanges calls f for ranges [lo, hi) that divide [0, n), of at least grain except for the last, on all
// processors of the backend, and returns when all are done. A small amount of work is done by the caller. A panic in f
// becomes a panic of parallelRanges.
func (b *Backend) parallelRanges(n, grain int, f func(lo, hi int)) {
	const partsEach = 4 // so that a processor that is busy with other work does not delay the rest
	parts := min(b.procs*partsEach, n/max(grain, 1))
	if parts <= 1 || b.procs == 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	length := (n + parts - 1) / parts
	if length >= 256 {
		length = (length + 63) &^ 63 // so that parts do not share a cache line of a result
	}
	var (
		next     atomic.Int64
		wait     sync.WaitGroup
		panicked atomic.Pointer[any]
	)
	work := func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // as in the goroutines of the host's streams
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

// parallelTasks calls task(i) for all 0 <= i < n on all processors of the backend, and returns when all are done.
func (b *Backend) parallelTasks(n int, task func(i int)) {
	b.parallelRanges(n, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			task(i)
		}
	})
}
