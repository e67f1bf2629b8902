package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Contents says how much of each block Run writes and checks.
type Contents uint8

const (
	NoContents      Contents = iota
	SampledContents          // of blocks over 4 MiB, 64 KiB at the start, at the end and at every 4 MiB
	WholeContents            // every byte
)

const (
	pieceSize  = 256 << 10 // bytes copied at a time: they stay in a core's cache
	sampleSize = 64 << 10
	sampleStep = 4 << 20 // bytes from sample to sample
)

// A ContentsError is a block whose contents changed while it was on loan, or while another stream still used it.
type ContentsError struct {
	Op     int // in whose run it was seen: the block's free, or the completion of that
	Block  mem.Block
	Offset int64 // bytes from the start of the block
	Want   byte
	Got    byte
}

func (e *ContentsError) Error() string {
	return fmt.Sprintf("replay: op %d: block at %#x of %d bytes: byte %d is %#02x, %#02x was written: its memory was given to another block",
		e.Op, e.Block.Ptr, e.Block.Size, e.Offset, e.Got, e.Want)
}

// contents is a mem.Wrapper that fills every block with a pattern of its own and checks it at the end of the loan. It
// measures the calls to the allocator below, since its own work takes much longer.
type contents struct {
	below    mem.Allocator
	mode     Contents
	now      func() time.Time
	elapsed  time.Duration
	blocks   map[driver.Pointer]written // on loan
	pending  map[sideMark]written       // freed, but with other users
	last     uint64                     // number of the block filled last
	want     []byte                     // a piece of pattern
	got      []byte
	mismatch *ContentsError // the first
	err      error          // the first other one
}

// written is what was put into a block, and the stream that did.
type written struct {
	number uint64
	stream driver.Stream
}

func newContents(a mem.Allocator, opts Options) *contents {
	return &contents{
		below: a, mode: opts.Contents, now: opts.Now,
		blocks: map[driver.Pointer]written{}, pending: map[sideMark]written{},
		want: make([]byte, pieceSize+8), got: make([]byte, pieceSize+8),
	}
}

// failure returns what went wrong so far, if anything, as seen in op i.
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
		c.err = fmt.Errorf("the allocator handed out two blocks at %#x", b.Ptr)
	}
	c.last++
	w := written{number: c.last, stream: s}
	c.blocks[b.Ptr] = w
	c.pattern(w.number, b.Size)
	for off, n := range c.pieces(b.Size) {
		if err := s.CopyIn(b.Ptr+driver.Pointer(off), c.want[:n]); err != nil && c.err == nil {
			c.err = err
		}
	}
	return b, nil
}

// Free implements mem.Allocator. It checks the block first. One with other users stays known, for completed.
func (c *contents) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	w := c.blocks[b.Ptr]
	c.check(b, w)
	delete(c.blocks, b.Ptr)
	if len(used) > 0 {
		side := used[0].(*sideStream)
		c.pending[sideMark{side: uint32(side.id - firstSideID), tick: side.queued.Load()}] = w
	}
	c.timed(func() { c.below.Free(b, used...) })
}

// completed checks a block whose free is about to complete, unless early says that the allocator waited for it already.
func (c *contents) completed(b mem.Block, at sideMark, early bool) {
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

// pattern fills as much of want as a block of size bytes needs with the pattern of block number n: words that no other
// number has.
func (c *contents) pattern(n uint64, size int64) {
	n *= 0x9e3779b97f4a7c15 // odd, so that numbers stay apart
	want := c.want[:min(int64(len(c.want)), size+7)]
	for off := 0; off+8 <= len(want) && off < 64; off += 8 {
		binary.LittleEndian.PutUint64(want[off:], n^n>>32)
	}
	for done := 64; done < len(want); done *= 2 {
		copy(want[done:], want[:done])
	}
}

// check compares a block with what was written to it.
func (c *contents) check(b mem.Block, w written) {
	if w.stream == nil || c.mismatch != nil || c.err != nil {
		return
	}
	c.pattern(w.number, b.Size)
	for off, n := range c.pieces(b.Size) {
		if err := w.stream.CopyOut(c.got[:n], b.Ptr+driver.Pointer(off)); err != nil {
			c.err = err
			return
		}
		if bytes.Equal(c.got[:n], c.want[:n]) {
			continue
		}
		for i := range n {
			if c.got[i] != c.want[i] {
				c.mismatch = &ContentsError{Block: b, Offset: off + int64(i), Want: c.want[i], Got: c.got[i]}
				return
			}
		}
	}
}

// pieces visits the parts of a block of size bytes that are written and checked: offset and length. Each starts at a
// whole word of the pattern, so that they agree where they overlap.
func (c *contents) pieces(size int64) func(yield func(int64, int) bool) {
	step, length := int64(pieceSize), int64(pieceSize)
	if c.mode == SampledContents && size > sampleStep {
		step, length = sampleStep, sampleSize
	}
	return func(yield func(int64, int) bool) {
		for off := int64(0); off < size; off += step {
			if !yield(off, int(min(length, size-off))) {
				return
			}
		}
		if step > length {
			off := (size - length) &^ 7
			yield(off, int(size-off))
		}
	}
}
