package replay

import (
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
	"github.com/ashlar-go/ashlar/replay/internal/pattern"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// Contents is the part of each block that Run writes and checks.
type Contents uint8

const (
	NoContents      Contents = iota
	SampledContents          // of blocks over 4 MiB, 64 KiB at the start, at the end and at every 4 MiB
	WholeContents            // every byte
)

// contents is a mem.Wrapper that fills every block with its own pattern and checks it when the block is freed. It
// measures the time of calls of the allocator below, because its own work takes much longer.
type contents struct {
	below    mem.Allocator
	painter  pattern.Painter
	now      func() time.Time
	elapsed  time.Duration
	blocks   map[driver.Pointer]*written    // allocated
	pending  map[deferredfree.Mark]*written // freed, but still used by other streams
	last     uint64                         // number of the last block that was filled
	mismatch *verify.ContentsError          // the first mismatch
	err      error                          // the first other error
}

// A written is the pattern of a block, with the stream that wrote or last moved it. It is the holder of a block that
// may be moved.
type written struct {
	number uint64
	stream driver.Stream

	c      *contents
	at     driver.Pointer
	holder mem.Holder // the block's own holder
}

// BeginMove implements mem.Holder.
func (w *written) BeginMove() ([]driver.Stream, bool) { return w.holder.BeginMove() }

// EndMove implements mem.Holder. Another block may already be at the old address, or may not have left the new one yet.
func (w *written) EndMove(b mem.Block, s driver.Stream) {
	if s != nil {
		if w.c.blocks[w.at] == w {
			delete(w.c.blocks, w.at)
		}
		w.c.blocks[b.Ptr], w.at, w.stream = w, b.Ptr, s
	}
	w.holder.EndMove(b, s)
}

func newContents(a mem.Allocator, dev driver.Device, opts Options) (*contents, error) {
	p, err := pattern.New(dev, plainDevice(dev), opts.Contents == SampledContents)
	if err != nil {
		return nil, fmt.Errorf("replay: prepare to check contents: %w", err)
	}
	return &contents{
		below: a, painter: p, now: opts.Now,
		blocks: map[driver.Pointer]*written{}, pending: map[deferredfree.Mark]*written{},
	}, nil
}

// failure returns the first error so far, as found in op i.
func (c *contents) failure(i int) error {
	if c.err != nil {
		return fmt.Errorf("replay: op %d: check contents: %w", i, c.err)
	}
	if c.mismatch != nil {
		c.mismatch.Op = i
		return c.mismatch
	}
	return nil
}

// Unwrap implements mem.Wrapper.
func (c *contents) Unwrap() mem.Allocator { return c.below }

// Alloc implements mem.Allocator.
func (c *contents) Alloc(s driver.Stream, size int64) (b mem.Block, err error) {
	c.timed(func() { b, err = c.below.Alloc(s, size) })
	if err != nil || b == (mem.Block{}) {
		return b, err
	}
	if _, taken := c.blocks[b.Ptr]; taken && c.err == nil {
		c.err = fmt.Errorf("the allocator returned two blocks at %#x", b.Ptr)
	}
	c.last++
	w := &written{number: c.last, stream: s, c: c, at: b.Ptr}
	c.blocks[b.Ptr] = w
	if err := c.painter.Paint(s, driver.Range{Ptr: b.Ptr, Size: b.Size}, w.number); err != nil && c.err == nil {
		c.err = err
	}
	return b, nil
}

// Free implements mem.Allocator. It checks the block first. A block that other streams still use is kept for completed.
func (c *contents) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	w := c.blocks[b.Ptr]
	c.check(b, w)
	delete(c.blocks, b.Ptr)
	if len(used) > 0 {
		side := used[0].(*deferredfree.Stream)
		c.pending[deferredfree.Mark{Stream: side.Index(), Tick: side.Queued.Load()}] = w
	}
	c.timed(func() { c.below.Free(b, used...) })
}

// Movable implements mem.Mover. The block is live.
func (c *contents) Movable(b mem.Block, h mem.Holder) bool {
	w := c.blocks[b.Ptr]
	w.holder = h
	return mem.Movable(c.below, b, w)
}

// completed checks a block whose free is about to complete. If early is set, the allocator has waited for it already,
// and the block is not checked.
func (c *contents) completed(b mem.Block, at deferredfree.Mark, early bool) {
	if !early {
		c.check(b, c.pending[at])
	}
	delete(c.pending, at)
}

func (c *contents) timed(call func()) {
	if c.now == nil {
		call()
		return
	}
	start := c.now()
	call()
	c.elapsed += c.now().Sub(start)
}

// check compares a block with the pattern that was written to it.
func (c *contents) check(b mem.Block, w *written) {
	if w == nil || c.mismatch != nil || c.err != nil {
		return
	}
	diff, err := c.painter.Compare(w.stream, driver.Range{Ptr: b.Ptr, Size: b.Size}, w.number)
	if err != nil {
		c.err = err
		return
	}
	if diff != nil {
		c.mismatch = &verify.ContentsError{Block: b, Offset: diff.Offset, Want: diff.Want, Got: diff.Got}
	}
}
