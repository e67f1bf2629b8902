//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Long copies of ordinary memory: in pieces, by several goroutines (workers). One worker moves 7 to 13 GB/s on an
// NVIDIA H200's machine and twelve fill the link, but waking one takes as long as copying some hundred KiB: 4 MiB go at
// 13 GB/s with one worker, 15 with two and 17 with four, and 2 MiB no faster with two than with one. So there is a
// worker for each whole MiB. Copies at the same time share the workers: with more threads than processors, eight copies
// of 8 MiB would go at 18 GB/s together.
const (
	maxWorkers   = 12
	workerBytes  = 1 << 20   // bytes of a copy for each worker
	workerPieces = 2         // pieces for each worker, so that the device starts early and the workers end together
	pieceBytes   = 128 << 10 // the shortest piece: queueing it takes about as long as copying it
	singleBytes  = 512 << 10 // the longest CopyIn through one area, with one event for all pieces
	ahead        = 3         // queued pieces of a worker of CopyOut
)

// copyInLong copies piece by piece.
func (s *stream) copyInLong(call string, dst driver.Pointer, src []byte) error {
	g := s.d.staged()
	first, r := g.areas.take(s.handle)
	switch {
	case r != cu.Success:
		return s.d.fail(call, r, "wait for page-locked memory")
	case first == nil:
		if err := s.relock(call); err != nil {
			return err
		}
		return s.copyInPlace(call, dst, src)
	case len(src) <= singleBytes:
		return s.copyInOne(call, dst, src, first)
	}
	c := newLongCopy(s, call, len(src), func(c *longCopy, l *copier) error {
		for l.acquire(c, 1) {
			start, end, ok := c.next()
			if !ok {
				break
			}
			a, r := l.nextFree(c)
			if r != cu.Success {
				return s.d.fail(call, r, "wait for a piece of %d bytes", end-start)
			}
			a.start, a.end = start, end
			n := copy(a.memory, src[start:end])
			err := s.queuePiece(call, &g.areas, a, func() cu.Result {
				return g.areas.lib.MemcpyHtoDAsync(uint64(dst)+uint64(a.start), a.address(0), int64(n), s.handle)
			})
			if err != nil {
				return err
			}
			l.rotate()
		}
		return nil
	})
	c.start()
	return c.run(first)
}

// copyOutLong copies piece by piece. Each worker has some pieces queued while it copies another. The other workers are
// woken when the first piece has arrived, so they never wait for work before the copy.
func (s *stream) copyOutLong(call string, dst []byte, src driver.Pointer) error {
	g := s.d.staged()
	first, r := g.areas.take(s.handle)
	if first == nil {
		return s.copyOutUnstaged(call, dst, src, r)
	}
	c := newLongCopy(s, call, len(dst), func(c *longCopy, l *copier) error {
		for queued, left := 0, true; ; queued-- {
			for left && queued < ahead && l.acquire(c, queued+1) {
				a := l.areas[queued]
				if a.start, a.end, left = c.next(); !left {
					break
				}
				err := s.queuePiece(call, &g.areas, a, func() cu.Result {
					return g.areas.lib.MemcpyDtoHAsync(a.address(0), uint64(src)+uint64(a.start), int64(a.end-a.start),
						s.handle)
				})
				if err != nil {
					return err
				}
				queued++
			}
			if queued == 0 {
				return nil
			}
			a := l.areas[0]
			if r := g.areas.await(a); r != cu.Success {
				return s.d.fail(call, r, "wait for a piece of %d bytes", len(dst))
			}
			c.start()
			copy(dst[a.start:a.end], a.memory)
			l.rotate()
		}
	})
	return c.run(first)
}

// pieces hands out the parts of a copy to workers. It is safe for concurrent use.
type pieces struct {
	total, size int // bytes
	n           int
	started     atomic.Int64
}

// init splits a copy of total bytes for that many workers.
func (c *pieces) init(total, workers int) {
	n := workerPieces * workers
	size := min(max((total+n-1)/n, pieceBytes), areaBytes)
	c.total = total
	c.size = (size + 4095) &^ 4095
	c.n = (total + c.size - 1) / c.size
}

// next returns where the next piece starts and ends, and false if none is left.
func (c *pieces) next() (start, end int, ok bool) {
	i := int(c.started.Add(1)) - 1
	if i >= c.n {
		return 0, 0, false
	}
	start = i * c.size
	return start, min(start+c.size, c.total), true
}

// stop discards the remaining pieces.
func (c *pieces) stop() { c.started.Store(int64(c.n)) }

// A longCopy is a copy in pieces. The caller starts copying at once. Other workers, which are goroutines with a thread,
// join when they have woken, which takes as long as copying some hundred KiB. A worker that wakes after the copy is
// complete accesses nothing, because the device may be closed by then.
type longCopy struct {
	pieces
	s       *stream
	call    string
	workers int
	do      func(*longCopy, *copier) error // the work of one worker, until no piece is left or it has no area

	begun   bool         // the other workers were started; used by the caller only
	arrived sync.Once    // a worker waited for the work before the copy
	held    atomic.Int64 // number of areas in use
	working atomic.Int64 // number of other copying workers; plus over when the caller waits for them
	ended   chan struct{}
	failed  atomic.Pointer[error]
}

// over is added to longCopy.working when no more workers may begin.
const over = -1 << 32

func newLongCopy(s *stream, call string, total int, do func(*longCopy, *copier) error) *longCopy {
	c := &longCopy{s: s, call: call, do: do}
	g := s.d.staged()
	c.workers = max(1, min(g.workers/int(g.copies.Add(1)), total/workerBytes))
	c.init(total, c.workers)
	return c
}

// start wakes the other workers, once.
func (c *longCopy) start() {
	if c.begun || c.workers == 1 {
		return
	}
	c.begun, c.ended = true, make(chan struct{})
	for range c.workers - 1 {
		go c.join()
	}
}

// run runs the caller's worker, beginning with area first, and waits for the workers that have joined. It returns one
// of their errors.
func (c *longCopy) run(first *area) error {
	defer c.s.d.staged().copies.Add(-1)
	c.held.Add(1)
	c.copyPieces(first)
	if c.working.Add(over) != over {
		<-c.ended
	}
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// join runs another worker.
func (c *longCopy) join() {
	for {
		n := c.working.Load()
		if n < 0 {
			return
		}
		if c.working.CompareAndSwap(n, n+1) {
			break
		}
	}
	// The device stays open, because the caller has entered it and waits.
	if r := c.s.d.push(); r != cu.Success {
		c.fail(c.s.d.fail(c.call, r, "make the context of device %d current", c.s.d.info.Ordinal))
	} else {
		c.copyPieces()
		c.s.d.pop()
	}
	if c.working.Add(-1) == over {
		close(c.ended)
	}
}

// copyPieces copies until no piece is left, or no area.
func (c *longCopy) copyPieces(areas ...*area) {
	l := &copier{areas: areas}
	if err := c.do(c, l); err != nil {
		c.fail(err)
	}
	c.s.d.staged().areas.give(l.areas...)
}

// fail records the first error. No more pieces are begun.
func (c *longCopy) fail(err error) {
	c.stop()
	c.failed.CompareAndSwap(nil, &err)
}

// more returns an idle area, or nil if there is none or the copy already has its share.
func (c *longCopy) more() *area {
	if c.held.Add(1) <= areaShare {
		if a := c.s.d.staged().areas.more(); a != nil {
			return a
		}
	}
	c.held.Add(-1)
	return nil
}

// await waits until the device no longer uses a. It may have to wait for work that was queued before the copy. If that
// takes long, one worker waits in libcuda, which spins, and the others wait for that worker.
func (c *longCopy) await(a *area) cu.Result {
	p := &c.s.d.staged().areas
	r := p.ask(a, p.polls)
	if r != cu.NotReady {
		return r
	}
	c.arrived.Do(func() { r = p.await(a) })
	if r != cu.NotReady {
		return r
	}
	return p.await(a) // if a worker has waited, only pieces of this copy are left
}

// A copier holds the areas of one goroutine, the least recently used first.
type copier struct{ areas []*area }

// acquire acquires n areas, or returns false.
func (l *copier) acquire(c *longCopy, n int) bool {
	for len(l.areas) < n {
		a := c.more()
		if a == nil {
			return false
		}
		l.areas = append(l.areas, a)
	}
	return true
}

// nextFree returns an area that the device does not use, as the first area of the copier. It prefers the least recently
// used area if the device is done with it or soon will be, so that few areas are used and they stay in the processor's
// cache. Otherwise it takes another area, and waits only if there is none.
func (l *copier) nextFree(c *longCopy) (*area, cu.Result) {
	if r := c.s.d.staged().areas.ask(l.areas[0], 1); r != cu.NotReady {
		return l.areas[0], r
	}
	if a := c.more(); a != nil {
		l.areas = slices.Insert(l.areas, 0, a)
		return a, cu.Success
	}
	return l.areas[0], c.await(l.areas[0])
}

// rotate moves the first area, which has just been used, to the end.
func (l *copier) rotate() {
	a := l.areas[0]
	copy(l.areas, l.areas[1:])
	l.areas[len(l.areas)-1] = a
}
