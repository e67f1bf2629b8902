package backendtest

import (
	"fmt"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A scratchAllocator is the allocator that the backend under test gets: it knows what is allocated, and writes garbage
// over blocks as they come and go, in stream order.
type scratchAllocator struct {
	inner mem.Allocator

	mu      sync.Mutex
	live    map[driver.Pointer]scratchBlock
	pattern byte
	wrong   []string
}

type scratchBlock struct {
	stream driver.Stream
	size   int64
}

func (w *scratchAllocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	b, err := w.inner.Alloc(s, size)
	if err != nil || b.Ptr == 0 {
		return b, err
	}
	w.mu.Lock()
	w.live[b.Ptr] = scratchBlock{s, b.Size}
	w.pattern += 0x5b // odd, so that all bytes have their turn
	pattern := w.pattern
	w.mu.Unlock()
	return b, s.Fill(b.Ptr, pattern, b.Size)
}

func (w *scratchAllocator) Free(b mem.Block, used ...driver.Stream) {
	w.mu.Lock()
	l, ok := w.live[b.Ptr]
	delete(w.live, b.Ptr)
	if !ok && b.Ptr != 0 {
		w.wrong = append(w.wrong, fmt.Sprintf("scratch at %#x was freed, but is not allocated", uint64(b.Ptr)))
	}
	w.mu.Unlock()
	if ok {
		if err := l.stream.Fill(b.Ptr, 0xeb, l.size); err != nil {
			w.mu.Lock()
			w.wrong = append(w.wrong, fmt.Sprintf("filling scratch: %v", err))
			w.mu.Unlock()
		}
	}
	if ok || b.Ptr == 0 {
		w.inner.Free(b, used...)
	}
}

// problems returns what was wrong, once the backend's work on s is done, and forgets it.
func (w *scratchAllocator) problems(s driver.Stream) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := w.wrong
	w.wrong = nil
	for p, l := range w.live {
		if l.stream == s {
			wrong = append(wrong, fmt.Sprintf("%d bytes of scratch at %#x were not freed", l.size, uint64(p)))
			delete(w.live, p)
		}
	}
	return wrong
}
