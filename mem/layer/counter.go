package layer

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Count follows one quantity since its frame was pushed.
type Count struct {
	Current int64 // allocated less freed in the frame; may be negative
	Peak    int64 // highest value of Current; never negative
	Total   int64 // allocated in all
}

func (c *Count) add(n int64) {
	c.Current += n
	c.Peak = max(c.Peak, c.Current)
	c.Total += max(n, 0)
}

// join adds what a frame above counted, as though it had been counted here.
func (c *Count) join(above Count) {
	c.Peak = max(c.Peak, c.Current+above.Peak)
	c.Current += above.Current
	c.Total += above.Total
}

// Counts are the figures of a Counter: the sizes of blocks (Block.Size, not the requested size), and the number of
// blocks.
type Counts struct {
	Bytes, Blocks Count
}

func (c *Counts) join(above Counts) {
	c.Bytes.join(above.Bytes)
	c.Blocks.join(above.Blocks)
}

// A Counter counts the blocks that are allocated through it, in frames that nest. See NewCounter.
type Counter struct {
	Pass

	mu     sync.Mutex
	frames []Counts // the last is the one that counts
}

// NewCounter returns an allocator that counts the live blocks of a that were allocated through it. Push begins a frame,
// in which all counts start from zero; Pop ends it and adds it to the frame below. So the peak of one part of a program
// is measured within a longer whole. It is RMM's statistics_resource_adaptor. Frames do not belong to goroutines:
// concurrent calls of other goroutines count too. A call takes one short lock.
func NewCounter(a mem.Allocator) *Counter {
	return &Counter{Pass: Pass{a}, frames: make([]Counts, 1, 8)}
}

// Alloc implements mem.Allocator. A failed request is not counted.
func (m *Counter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return m.lent(m.Below.Alloc(s, size))
}

// AllocWith implements mem.OptionsAllocator.
func (m *Counter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return m.lent(mem.AllocWith(m.Below, s, size, o))
}

func (m *Counter) lent(b mem.Block, err error) (mem.Block, error) {
	if err == nil && b.Ptr != 0 {
		m.add(b.Size, 1)
	}
	return b, err
}

func (m *Counter) add(bytes, blocks int64) {
	m.mu.Lock()
	top := &m.frames[len(m.frames)-1]
	top.Bytes.add(bytes)
	top.Blocks.add(blocks)
	m.mu.Unlock()
}

// Free implements mem.Allocator. A block counts until the allocator below has taken it back.
func (m *Counter) Free(b mem.Block, used ...driver.Stream) {
	m.Below.Free(b, used...)
	if b.Ptr != 0 {
		m.add(-b.Size, -1)
	}
}

// Counts returns the counts of the current frame.
func (m *Counter) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frames[len(m.frames)-1]
}

// Overall returns the counts of all frames together, from the beginning.
func (m *Counter) Overall() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.frames[0]
	if n := len(m.frames); n > 1 { // the innermost first: a frame's peak lies on what was current below it
		above := m.frames[n-1]
		for i := n - 2; i >= 0; i-- {
			all = m.frames[i]
			all.join(above)
			above = all
		}
	}
	return all
}

// Push begins a frame, and returns the counts so far of the frame that it interrupts.
func (m *Counter) Push() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.frames[len(m.frames)-1]
	m.frames = append(m.frames, Counts{})
	return was
}

// Pop ends the frame that was pushed last, adds it to the one below, and returns it. A Pop without its Push panics.
func (m *Counter) Pop() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.frames) - 1
	if n == 0 {
		panic("layer: Counter: Pop without a Push")
	}
	was := m.frames[n]
	m.frames = m.frames[:n]
	m.frames[n-1].join(was)
	return was
}
