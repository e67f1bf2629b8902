package arena

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena/internal/region"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// Reasons why no blocks are moved, for errors.Is.
var (
	ErrPinned = errors.New("arena: blocks are pinned")           // a Hold of Pin is not released
	ErrOff    = errors.New("arena: moving blocks is turned off") // Config.NoCompact
)

// refusal reports whether err means that no blocks may be moved now, and not that the device failed.
func refusal(err error) bool {
	return errors.Is(err, ErrPinned) || errors.Is(err, ErrOff) || errors.Is(err, driver.ErrCapturing)
}

// MoveStats count the moves since New.
type MoveStats struct {
	Compactions int64 // compactions that moved blocks
	Blocks      int64
	Bytes       int64 // bytes of moved blocks, rounded
	Refused     int64 // calls of BeginMove that returned false
}

// Moves returns the counts of moves so far.
func (a *Arena) Moves() MoveStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moves
}

// Movable implements mem.Mover. It returns false if compaction is off, and for a frozen block. It panics if b is not a
// live block of this arena, or h is nil.
func (a *Arena) Movable(b mem.Block, h mem.Holder) bool {
	if h == nil {
		panic("arena: Movable with a nil holder")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &a.blocks[a.find("Movable", b)]
	if a.cfg.NoCompact || r.state == frozen {
		return false
	}
	r.holder = h
	return true
}

// Compact implements mem.Compactor: each block whose holder agrees slides down, in address order, to the end of the
// block below it. If no block was in the way, the free memory is then one hole. Holders are asked only for blocks that
// can move. With pages of 128 MiB and more, some pages are mapped elsewhere instead of copied, for which Compact waits
// for s (internal/region); otherwise it does not wait. The error matches ErrPinned, ErrOff or, if s or a stream that
// uses a block to be moved captures, driver.ErrCapturing; then nothing was moved. It may also be an error of the
// driver; then some blocks may have been moved. A move that fails is undone. If that fails, too, the error and that of
// each later move match mem.ErrContentsLost. Memory can still be allocated and freed, unless large pages were left
// without an address: then what adds or frees pages returns that error, too.
func (a *Arena) Compact(s driver.Stream) error {
	check.Stream("arena: Compact", s)
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.compact(s, 0)
	a.verify()
	return err
}

// compact is Compact, except that it moves nothing if that would not make a hole of need bytes.
func (a *Arena) compact(s driver.Stream, need int64) (moved bool, err error) {
	switch {
	case a.closed:
		return false, closedError("Compact")
	case a.cfg.NoCompact:
		return false, ErrOff
	case a.pins > 0:
		return false, ErrPinned
	}
	hope := a.plan(func(r *block) bool { return r.holder != nil })
	if len(hope.slides) == 0 || hope.largest < need {
		return false, nil
	}
	if err := a.streams.NotCapturing(s); err != nil {
		return false, fmt.Errorf("arena: move blocks: %w", err)
	}
	p, done, touched := hope, 0, 0
	defer func() { a.endMoves(s, hope.slides, p.slides[:touched]) }() // even if a holder panics
	users, refused := a.beginMoves(hope.slides)
	if refused {
		p = a.plan(func(r *block) bool { return r.moving })
	}
	if len(p.slides) > 0 && p.largest >= need {
		done, touched, err = a.slide(s, p.slides, users)
	}
	return done > 0, err
}

// beginMoves calls BeginMove of the blocks' holders, and returns the streams that use the blocks that may move.
func (a *Arena) beginMoves(slides []slide) (users reuse.Set, refused bool) {
	for _, sl := range slides {
		r := &a.blocks[sl.block]
		used, ok := r.holder.BeginMove()
		r.refused = !ok
		if !ok {
			a.moves.Refused++
			refused = true
			continue
		}
		r.moving = true
		users = a.streams.Union(users, a.streams.Union(r.origin, r.mover))
		for _, u := range used {
			users = a.streams.Union(users, a.streams.Register(u))
		}
	}
	return users, refused
}

// slide moves blocks on s. It returns how many it moved, and how many it moved or, before the device failed, may have
// copied in part.
func (a *Arena) slide(s driver.Stream, slides []slide, users reuse.Set) (done, touched int, err error) {
	moves, blocks := a.movesOf(slides)
	written := a.writtenGaps(moves)
	if err := a.streams.Wait(s, reuse.InUse(users)); err != nil {
		return 0, 0, err
	}
	for _, g := range written {
		if err := a.streams.Wait(s, g.deps); err != nil {
			return 0, 0, err
		}
	}
	n, err := a.region.move(s, moves)
	for _, b := range blocks[:n] {
		done += b
	}
	a.applyMoves(s, slides[:done], moves[:n], written)
	if err != nil {
		self := a.streams.Register(s)
		for _, sl := range slides[done:] {
			a.blocks[sl.block].mover = self // which has waited for all that used the block
		}
		return done, len(slides), fmt.Errorf("arena: %w", err)
	}
	return done, done, nil
}

// applyMoves updates blocks and holes after the bytes were moved. The holes now depend on s alone, which has waited
// for all that used them.
func (a *Arena) applyMoves(s driver.Stream, slides []slide, moves []region.Move, written []gap) {
	self := a.streams.Register(s)
	own := a.streams.Freed(self)
	for _, g := range written {
		a.holes.TakeAt(g.At, g.Size)
		a.holes.Give(g.At, g.Size, own)
	}
	for _, m := range moves {
		a.holes.Give(int64(m.From-a.region.base), m.Size, own)
		a.moves.Bytes += m.Size
	}
	for _, m := range moves {
		a.holes.TakeAt(int64(m.To-a.region.base), m.Size)
	}
	for _, sl := range slides {
		r := &a.blocks[sl.block]
		r.at, r.mover = sl.to, self
	}
	a.moves.Blocks += int64(len(slides))
	if len(slides) > 0 {
		a.moves.Compactions++
	}
	a.countHoles()
}

// endMoves calls EndMove of all holders that agreed. The blocks in touched, a part of slides in the same order, were
// moved by s, or may have been copied in part.
func (a *Arena) endMoves(s driver.Stream, slides, touched []slide) {
	for _, sl := range slides {
		r := &a.blocks[sl.block]
		if !r.moving {
			continue
		}
		r.moving = false
		var by driver.Stream
		if len(touched) > 0 && touched[0].block == sl.block {
			by, touched = s, touched[1:]
		}
		r.holder.EndMove(a.handle(sl.block), by)
	}
}
