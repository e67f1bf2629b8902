// Package fake has an allocator and streams that are only numbers, for tests.
package fake

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A Stream is a stream of which only the number matters.
type Stream struct {
	driver.Stream
	Number driver.StreamID
}

// ID implements driver.Stream.
func (s Stream) ID() driver.StreamID { return s.Number }

// S0 and S1 are two streams.
var S0, S1 driver.Stream = Stream{Number: 0}, Stream{Number: 1}

// A Pile is an allocator without memory. It rounds sizes up to a multiple, and reuses the last freed address first.
type Pile struct {
	mu     sync.Mutex
	round  int64
	Next   driver.Pointer
	free   map[int64][]driver.Pointer
	Live   map[driver.Pointer]int64
	Used   [][]driver.Stream // of each Free
	Fail   error             // of the next Alloc
	OnFree func(mem.Block)   // called once the address can be allocated again
	Trims  int
}

// NewPile returns a Pile that rounds sizes up to multiples of round bytes.
func NewPile(round int64) *Pile {
	return &Pile{round: round, Next: 0x1000, free: map[int64][]driver.Pointer{}, Live: map[driver.Pointer]int64{}}
}

// Alloc implements mem.Allocator.
func (p *Pile) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size < 0 {
		panic("pile: negative size")
	}
	if size == 0 {
		return mem.Block{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Fail; err != nil {
		p.Fail = nil
		return mem.Block{}, err
	}
	size = (size + p.round - 1) / p.round * p.round
	ptr := p.Next
	if same := p.free[size]; len(same) > 0 {
		ptr = same[len(same)-1]
		p.free[size] = same[:len(same)-1]
	} else {
		p.Next += driver.Pointer(size)
	}
	p.Live[ptr] = size
	return mem.Block{Ptr: ptr, Size: size}, nil
}

// Free implements mem.Allocator. It panics if the block is not live.
func (p *Pile) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	p.mu.Lock()
	if p.Live[b.Ptr] != b.Size {
		p.mu.Unlock()
		panic(fmt.Sprintf("pile: Free of %#x, not live", uint64(b.Ptr)))
	}
	delete(p.Live, b.Ptr)
	p.free[b.Size] = append(p.free[b.Size], b.Ptr)
	p.Used = append(p.Used, used)
	hook := p.OnFree
	p.mu.Unlock()
	if hook != nil {
		hook(b)
	}
}

// EmptyCache implements mem.Trimmer.
func (p *Pile) EmptyCache() error {
	p.Trims++
	clear(p.free)
	return nil
}

// MustAlloc allocates on S0, and ends the test if that fails.
func MustAlloc(t testing.TB, a mem.Allocator, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(S0, size)
	if err != nil {
		t.Fatalf("Alloc of %d: %v", size, err)
	}
	return b
}
