package memtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A pool is a plain caching allocator for the suite to be tested on: first fit in segments of one stream, split and
// merged, frees that wait, counters found by looking at everything. It can be built with one of many bugs.
type pool struct {
	dev driver.Device
	bug bug

	mu       sync.Mutex
	segments []*segment // ascending by address
	owned    map[driver.Pointer]*piece
	waiting  []*piece
	stats    mem.Stats
	calls    int
	refused  int64
}

type segment struct {
	ptr    driver.Pointer
	size   int64
	stream driver.StreamID
	large  bool
	pieces []*piece // ascending, without gaps
}

type piece struct {
	ptr   driver.Pointer
	size  int64
	asked int64
	state mem.BlockState
	seg   *segment
	waits []wait
}

// A wait is for work on a stream: up to a mark, or, as long as that could not be taken, all of it.
type wait struct {
	stream driver.Stream
	mark   driver.Mark
	marked bool
}

func newPool(dev driver.Device, b bug) *pool {
	return &pool{dev: dev, bug: b, owned: map[driver.Pointer]*piece{}}
}

func (p *pool) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size < 0 {
		panic(fmt.Sprintf("pool: Alloc of %d bytes", size))
	}
	if p.bug != dereferencesNil {
		check.Stream("pool: Alloc", s)
	}
	if size == 0 && p.bug != zeroTakesMemory {
		return mem.Block{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.count()
	p.calls++
	rounded := (max(1, size) + 511) &^ 511
	if rounded <= 0 {
		if p.bug != overflows {
			return mem.Block{}, fmt.Errorf("pool: %d bytes: %w", size, mem.ErrNoMemory)
		}
		rounded = 512
	}
	p.poll()
	p.count()
	large := rounded > 1<<20
	pc := p.find(s.ID(), rounded, large)
	if pc == nil {
		var err error
		if pc, err = p.grow(s.ID(), rounded, large); err != nil {
			if p.bug == panicsOnError {
				panic(err)
			}
			if errors.Is(err, driver.ErrNoMemory) && p.bug != rawErrors {
				err = fmt.Errorf("pool: %d bytes: %w (%w)", size, mem.ErrNoMemory, err)
			}
			if p.bug == countsRefused {
				p.refused++
			}
			return mem.Block{}, err
		}
	}
	p.split(pc, rounded)
	pc.state, pc.asked = mem.ActiveAllocated, size
	b := mem.Block{Ptr: pc.ptr, Size: pc.size}
	if p.bug == unaligned && large {
		b.Ptr += 16
	}
	if p.bug == shortBlocks && size%200_000 == 0 {
		b.Size = size - 1
	}
	p.owned[b.Ptr] = pc
	if p.stats.LargestAlloc = max(p.stats.LargestAlloc, b.Size); p.bug == forgetsLargest {
		p.stats.LargestAlloc = b.Size
	}
	return b, nil
}

// AllocWith counts no request that is refused, as Alloc does not, but for the bug.
func (p *pool) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	size, o = o.Rounded(size)
	b, err := p.Alloc(s, size)
	if err != nil && o.Tentative && p.bug == countsTentative {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stats.NumOOMs++
	}
	return b, err
}

// find returns a free piece of at least size bytes.
func (p *pool) find(stream driver.StreamID, size int64, large bool) *piece {
	for _, seg := range p.segments {
		if seg.large != large || seg.stream != stream && p.bug != crossesStreams {
			continue
		}
		for _, pc := range seg.pieces {
			if pc.state == mem.Inactive && pc.size >= size {
				return pc
			}
		}
	}
	return nil
}

// grow gets a segment, and gives the cache up for it if there is no room.
func (p *pool) grow(stream driver.StreamID, size int64, large bool) (*piece, error) {
	total := int64(2 << 20)
	if large {
		total = max(size, 4<<20)
	}
	ptr, err := p.dev.Alloc(total)
	if err != nil {
		if p.bug != keepsPending {
			if err := p.finish(); err != nil {
				return nil, err
			}
		}
		p.count()
		if pc := p.find(stream, size, large); pc != nil {
			return pc, nil
		}
		if err := p.trim(); err != nil {
			return nil, err
		}
		if ptr, err = p.dev.Alloc(total); err != nil {
			return nil, err
		}
	}
	seg := &segment{ptr: ptr, size: total, stream: stream, large: large}
	pc := &piece{ptr: ptr, size: total, seg: seg}
	seg.pieces = []*piece{pc}
	i, _ := slices.BinarySearchFunc(p.segments, ptr, func(s *segment, at driver.Pointer) int {
		return int(int64(s.ptr - at))
	})
	p.segments = slices.Insert(p.segments, i, seg)
	return pc, nil
}

// split cuts off the bytes beyond size.
func (p *pool) split(pc *piece, size int64) {
	if pc.size == size {
		return
	}
	rest := &piece{ptr: pc.ptr + driver.Pointer(size), size: pc.size - size, seg: pc.seg}
	if p.bug == overlaps && p.calls%20 == 0 && rest.size > 512 {
		rest.ptr -= 512
	}
	pc.size = size
	i := slices.Index(pc.seg.pieces, pc)
	pc.seg.pieces = slices.Insert(pc.seg.pieces, i+1, rest)
}

func (p *pool) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.count()
	pc := p.owned[b.Ptr]
	if pc == nil || pc.size != b.Size && p.bug != shortBlocks {
		if p.bug == takesForeign || p.bug == takesDoubleFree && b.Ptr != 4096 && b.Ptr%512 == 0 {
			return
		}
		panic(fmt.Sprintf("pool: Free of %d bytes at %#x, not a live block", b.Size, uint64(b.Ptr)))
	}
	if p.bug != freesForNil {
		check.Used("pool: Free", used)
	}
	delete(p.owned, b.Ptr)
	pc.state = mem.ActivePendingFree
	if p.bug == touchesAfterReturn && p.calls%10 == 0 {
		p.dev.DefaultStream().Fill(pc.ptr, 0xee, min(pc.size, 64))
	}
	check.Used("pool: Free", used)
	for i, s := range used {
		if s.ID() == pc.seg.stream || p.bug == ignoresUsed || p.bug == waitsForFirst && i > 0 ||
			p.bug == ignoresDefault && s.ID() == p.dev.DefaultStream().ID() {
			continue
		}
		pc.waits = append(pc.waits, wait{stream: s})
	}
	p.count()
	if p.bug == losesFree && len(p.owned) == 40 {
		return
	}
	if p.settle(pc) {
		p.release(pc)
	} else if len(pc.waits) > 0 {
		p.waiting = append(p.waiting, pc)
	}
}

// settle reports whether nothing uses a freed piece any more.
func (p *pool) settle(pc *piece) bool {
	if !p.mark(pc) {
		return false
	}
	for len(pc.waits) > 0 {
		if done, err := pc.waits[0].stream.Reached(pc.waits[0].mark); err != nil || !done {
			return false
		}
		pc.waits = pc.waits[1:]
	}
	return true
}

// mark takes the marks that a freed piece has to wait for. It reports whether that is done.
func (p *pool) mark(pc *piece) bool {
	for i := range pc.waits {
		w := &pc.waits[i]
		if w.marked {
			continue
		}
		m, err := w.stream.Mark()
		if err != nil {
			switch p.bug {
			case panicsOnError:
				panic(err)
			case losesPending:
				pc.waits = nil
			case dropsFailedMark:
				pc.waits = nil
				return true
			}
			return false
		}
		w.mark, w.marked = m, true
	}
	return true
}

// poll finishes frees that need no longer wait.
func (p *pool) poll() {
	p.waiting = slices.DeleteFunc(p.waiting, func(pc *piece) bool {
		if !p.settle(pc) {
			return false
		}
		p.release(pc)
		return true
	})
}

// finish waits for all frees.
func (p *pool) finish() error {
	for _, pc := range p.waiting {
		if !p.mark(pc) {
			return &driver.Error{Call: "Stream.Mark", Code: driver.ErrLost}
		}
		for _, w := range pc.waits {
			if err := w.stream.Sync(context.Background()); err != nil {
				return err
			}
		}
	}
	p.poll()
	return nil
}

// release makes a piece free and merges it with free neighbours.
func (p *pool) release(pc *piece) {
	pc.state, pc.asked = mem.Inactive, 0
	if p.bug == neverMerges {
		return
	}
	seg := pc.seg
	i := slices.Index(seg.pieces, pc)
	if i+1 < len(seg.pieces) && seg.pieces[i+1].state == mem.Inactive {
		pc.size += seg.pieces[i+1].size
		seg.pieces = slices.Delete(seg.pieces, i+1, i+2)
	}
	if i > 0 && seg.pieces[i-1].state == mem.Inactive {
		seg.pieces[i-1].size += pc.size
		seg.pieces = slices.Delete(seg.pieces, i, i+1)
	}
}

func (p *pool) EmptyCache() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.count()
	if err := p.finish(); err != nil {
		return err
	}
	return p.trim()
}

// trim gives free segments back.
func (p *pool) trim() error {
	var failed error
	n := 0
	p.segments = slices.DeleteFunc(p.segments, func(seg *segment) bool {
		if len(seg.pieces) > 1 || seg.pieces[0].state != mem.Inactive {
			return false
		}
		if n++; n == 3 && p.bug == leaksSegment {
			return true
		}
		if err := p.dev.Free(seg.ptr); err != nil {
			failed = err
			return p.bug == losesOnError
		}
		return true
	})
	return failed
}

// Close gives back the remaining memory.
func (p *pool) Close() error { return p.EmptyCache() }
