package layer

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// join adds the usage of a frame above to u, as though it had been counted in u.
func join(u *mem.Usage, above mem.Usage) {
	joinStat(&u.Bytes, above.Bytes)
	joinStat(&u.Blocks, above.Blocks)
	u.Largest = max(u.Largest, above.Largest)
}

func joinStat(s *mem.Stat, above mem.Stat) {
	s.Peak = max(s.Peak, s.Current+above.Peak)
	s.Current += above.Current
	s.Allocated += above.Allocated
	s.Freed += above.Freed
}

// A Counter counts the blocks that are allocated through it, in frames that nest. See NewCounter.
type Counter struct {
	Pass

	mu     sync.Mutex
	frames []mem.Usage // the last one is current
}

// NewCounter returns an allocator that counts the live blocks of a that were allocated through it. Push begins a frame,
// in which all counts start from zero; Pop ends it and adds it to the frame below. So the peak of one part of a program
// is measured within a longer whole. A frame in which blocks of the frames below are freed has negative current values.
// It is RMM's statistics_resource_adaptor. Frames do not belong to goroutines: concurrent calls of other goroutines
// count too. A call takes one short lock.
func NewCounter(a mem.Allocator) *Counter {
	return &Counter{Pass: Pass{a}, frames: make([]mem.Usage, 1, 8)}
}

// Alloc implements mem.Allocator. A failed request is not counted.
func (m *Counter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return m.counted(m.Below.Alloc(s, size))
}

// AllocWith implements mem.OptionsAllocator.
func (m *Counter) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	return m.counted(mem.AllocWith(m.Below, s, size, o))
}

func (m *Counter) counted(b mem.Block, err error) (mem.Block, error) {
	if err == nil && b.Ptr != 0 {
		m.mu.Lock()
		m.frames[len(m.frames)-1].Alloc(b.Size)
		m.mu.Unlock()
	}
	return b, err
}

// Free implements mem.Allocator. A block counts until the allocator below has taken it back.
func (m *Counter) Free(b mem.Block, used ...driver.Stream) {
	m.Below.Free(b, used...)
	if b.Ptr != 0 {
		m.mu.Lock()
		m.frames[len(m.frames)-1].Free(b.Size)
		m.mu.Unlock()
	}
}

// Usage returns the blocks counted in the current frame, by Block.Size.
func (m *Counter) Usage() mem.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frames[len(m.frames)-1]
}

// Overall returns the usage of all frames together, from the beginning.
func (m *Counter) Overall() mem.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.frames[0]
	if n := len(m.frames); n > 1 { // innermost first: a frame's peak adds to the current values below it
		above := m.frames[n-1]
		for i := n - 2; i >= 0; i-- {
			all = m.frames[i]
			join(&all, above)
			above = all
		}
	}
	return all
}

// Push begins a frame, and returns the usage so far of the frame that it interrupts.
func (m *Counter) Push() mem.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.frames[len(m.frames)-1]
	m.frames = append(m.frames, mem.Usage{})
	return was
}

// Pop ends the frame that was pushed last, adds it to the one below, and returns it. A Pop without its Push panics.
func (m *Counter) Pop() mem.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.frames) - 1
	if n == 0 {
		panic("layer: Counter: Pop without a Push")
	}
	was := m.frames[n]
	m.frames = m.frames[:n]
	join(&m.frames[n-1], was)
	return was
}
