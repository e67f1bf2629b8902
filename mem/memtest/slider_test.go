package memtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// A slider is the plainest allocator that moves blocks: one segment of all the memory there is, first fit, and a place
// aside through which blocks are moved that would land on themselves. A request, or a move, waits for all
// work on all memory that was given back before. It can be built with one of several bugs.
type slider struct {
	dev driver.Device
	bug moveBug

	mu    sync.Mutex
	base  driver.Pointer
	size  int64
	aside driver.Pointer // as long as the largest block that is moved
	live  []*liveBlock   // ascending
	gone  []*liveBlock   // what liftsFreed still asks
	tags  uint64

	marks  []past          // work on memory that was given back, the last of each stream
	toMark []driver.Stream // that have such work, and could not be marked yet
}

type liveBlock struct {
	mem.Block
	asked  int64
	stream driver.Stream
	holder mem.Holder
}

type past struct {
	stream driver.Stream
	mark   driver.Mark
}

type moveBug string

const (
	sound          moveBug = ""
	forgetsUsed    moveBug = "a move does not wait for the streams that the holder names"
	forgetsOwner   moveBug = "a move does not wait for the block's own stream"
	forgetsFreed   moveBug = "a move does not wait for work on the block that was freed where it goes"
	reusesTooSoon  moveBug = "where a block has left, the next one does not wait for the move"
	landsBeside    moveBug = "a block lands where its neighbour is said to begin"
	saysOldPlace   moveBug = "a block is moved, and its holder told that it was not"
	leavesBytes    moveBug = "a block is moved without its bytes"
	leavesTail     moveBug = "a block is moved without its last byte"
	liftsFreed     moveBug = "the holder of a freed block is asked"
	liftsTwice     moveBug = "a holder is asked again before it lands"
	landsTwice     moveBug = "a block lands twice"
	neverLands     moveBug = "a block that need not move does not land"
	overridesNo    moveBug = "a block is moved though its holder says no"
	takesUnmovable moveBug = "a block is moved without permission"
	leavesHole     moveBug = "the last block is not moved"
	waits          moveBug = "compaction waits for the stream"
	ignoresErrors  moveBug = "a copy that fails is taken for done"
	givesUp        moveBug = "one copy fails, and the bytes are lost"
	staysLifted    moveBug = "a block whose copy fails does not land"
	refusesLater   moveBug = "blocks beyond the tenth are not movable"
	resizes        moveBug = "a moved block is a byte shorter"
)

func (a *slider) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	check.Stream("slider: Alloc", s)
	if size < 0 {
		panic(fmt.Sprintf("slider: Alloc of %d bytes", size))
	}
	if size == 0 {
		return mem.Block{}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.open(); err != nil {
		return mem.Block{}, err
	}
	if err := a.catchUp(s, true); err != nil {
		return mem.Block{}, err
	}
	i, at, ok := a.fit(size)
	if !ok {
		if err := a.compact(s); err != nil {
			return mem.Block{}, err
		}
		if i, at, ok = a.fit(size); !ok {
			return mem.Block{}, fmt.Errorf("slider: %d bytes: %w", size, mem.ErrNoMemory)
		}
	}
	a.tags++
	b := &liveBlock{Block: mem.Block{Ptr: at, Size: roundUp(size), Tag: a.tags}, asked: size, stream: s}
	a.live = slices.Insert(a.live, i, b)
	return b.Block, nil
}

func roundUp(size int64) int64 { return (size + 255) &^ 255 }

func (b *liveBlock) end() driver.Pointer { return b.Ptr + driver.Pointer(b.Size) }

// open gets all the memory there is. The place aside is half of it.
func (a *slider) open() error {
	if a.base != 0 {
		return nil
	}
	free, _, err := a.dev.Available()
	if err != nil {
		return err
	}
	free &^= 0xffff
	base, err := a.dev.Alloc(free)
	if err != nil {
		return fmt.Errorf("slider: the segment: %w (%w)", mem.ErrNoMemory, err)
	}
	a.base, a.size = base, free/2
	a.aside = base + driver.Pointer(a.size)
	return nil
}

// fit finds the first hole.
func (a *slider) fit(size int64) (i int, at driver.Pointer, ok bool) {
	if size > a.size {
		return 0, 0, false
	}
	at = a.base
	for i, b := range a.live {
		if int64(b.Ptr-at) >= roundUp(size) {
			return i, at, true
		}
		at = b.end()
	}
	return len(a.live), at, int64(a.base-at)+a.size >= roundUp(size)
}

// catchUp makes s wait for work on memory that was given back.
func (a *slider) catchUp(s driver.Stream, allocates bool) error {
	for len(a.toMark) > 0 {
		m, err := a.toMark[0].Mark()
		if err != nil {
			return err
		}
		stream := a.toMark[0]
		a.marks = slices.DeleteFunc(a.marks, func(p past) bool { return p.stream == stream })
		a.marks = append(a.marks, past{stream, m})
		a.toMark = a.toMark[1:]
	}
	for _, p := range a.marks {
		if p.stream == s || !allocates && a.bug == forgetsFreed {
			continue
		}
		if err := s.WaitFor(p.stream, p.mark); err != nil {
			return err
		}
	}
	return nil
}

func (a *slider) index(b mem.Block) int {
	i, ok := slices.BinarySearchFunc(a.live, b.Ptr, func(l *liveBlock, at driver.Pointer) int { return cmp.Compare(l.Ptr, at) })
	if !ok || a.live[i].Block != b {
		panic(fmt.Sprintf("slider: %+v is not live", b))
	}
	return i
}

func (a *slider) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(b)
	check.Used("slider: Free", used)
	l := a.live[i]
	a.live = slices.Delete(a.live, i, i+1)
	if a.bug == liftsFreed && l.holder != nil {
		a.gone = append(a.gone, l)
	}
	a.toMark = append(append(a.toMark, l.stream), used...)
}

func (a *slider) Movable(b mem.Block, h mem.Holder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(b)
	if a.bug == refusesLater && i > 9 {
		return false
	}
	a.live[i].holder = h
	return true
}

func (a *slider) Compact(s driver.Stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.compact(s)
}

func (a *slider) compact(s driver.Stream) error {
	if err := a.catchUp(s, false); err != nil {
		return err
	}
	for _, l := range a.gone {
		if _, ok := l.holder.BeginMove(); ok {
			l.holder.EndMove(l.Block, nil)
		}
	}
	at := a.base
	for i, b := range a.live {
		if a.bug == leavesHole && i == len(a.live)-1 {
			break
		}
		if err := a.slide(s, b, at); err != nil {
			return err
		}
		at = b.end()
	}
	return nil
}

// slide moves one block down, if it is not there already and may be moved.
func (a *slider) slide(s driver.Stream, b *liveBlock, to driver.Pointer) (err error) {
	var used []driver.Stream
	ok := a.bug == takesUnmovable
	if b.holder != nil {
		used, ok = b.holder.BeginMove()
	}
	if !ok && (a.bug != overridesNo || b.holder == nil) {
		return nil
	}
	moved := false
	defer func() {
		switch {
		case b.holder == nil || !moved && (err != nil && a.bug == staysLifted || err == nil && a.bug == neverLands):
			return
		case a.bug == liftsTwice:
			b.holder.BeginMove()
		}
		switch {
		case !moved || a.bug == saysOldPlace:
			b.holder.EndMove(b.Block, nil)
		default:
			told := b.Block
			if a.bug == resizes {
				told.Size--
			}
			if a.bug == landsBeside {
				told.Ptr = b.end()
			}
			b.holder.EndMove(told, s)
		}
		if a.bug == landsTwice {
			b.holder.EndMove(b.Block, nil)
		}
	}()
	if b.Ptr == to {
		return nil
	}
	if a.bug != forgetsOwner {
		used = append(used, b.stream)
	}
	for _, u := range used {
		if u == s || a.bug == forgetsUsed && u != b.stream {
			continue
		}
		m, err := u.Mark()
		if err == nil {
			err = s.WaitFor(u, m)
		}
		if err != nil {
			return err
		}
	}
	if err := a.copy(s, b, to); err != nil && a.bug == givesUp {
		return fmt.Errorf("slider: %w: %w", mem.ErrContentsLost, err)
	} else if err != nil && a.bug != ignoresErrors {
		return err
	}
	if a.bug == waits {
		if err := s.Sync(context.Background()); err != nil {
			return err
		}
	}
	b.Ptr, moved = to, true
	if a.bug != reusesTooSoon {
		a.toMark = append(a.toMark, s)
	}
	return nil
}

// copy moves the bytes, in one step or two. The last one alone changes anything that matters.
func (a *slider) copy(s driver.Stream, b *liveBlock, to driver.Pointer) error {
	from, n := b.Ptr, b.Size
	switch {
	case a.bug == leavesBytes:
		return nil
	case a.bug == leavesTail:
		n--
	}
	if int64(from-to) < n {
		if err := s.Copy(a.aside, from, n); err != nil {
			return err
		}
		from = a.aside
	}
	return s.Copy(to, from, n)
}

func (a *slider) EmptyCache() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.base == 0 || len(a.live) > 0 {
		return nil
	}
	if err := a.dev.Free(a.base); err != nil {
		return err
	}
	a.base, a.marks, a.toMark = 0, nil, nil
	return nil
}

func (a *slider) Close() error { return a.EmptyCache() }

func (a *slider) Snapshot() []mem.SegmentInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.base == 0 {
		return nil
	}
	seg := mem.SegmentInfo{Ptr: a.base, TotalSize: a.size, Large: true}
	at := a.base
	hole := func(to driver.Pointer) {
		if to > at {
			seg.Blocks = append(seg.Blocks, mem.BlockInfo{Ptr: at, Size: int64(to - at)})
		}
	}
	for _, b := range a.live {
		hole(b.Ptr)
		at = b.end()
		seg.Blocks = append(seg.Blocks, mem.BlockInfo{Ptr: b.Ptr, Size: b.Size, RequestedSize: b.asked, State: mem.ActiveAllocated})
		seg.AllocatedSize += b.Size
		seg.ActiveSize += b.Size
		seg.RequestedSize += b.asked
	}
	hole(a.base + driver.Pointer(a.size))
	return []mem.SegmentInfo{seg}
}

var _ interface {
	mem.Compactor
	mem.Snapshotter
	mem.Trimmer
} = (*slider)(nil)
