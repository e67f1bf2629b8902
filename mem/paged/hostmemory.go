package paged

import (
	"fmt"
	"math/bits"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A hostMemory is page-locked host memory of any size. It consists of blocks of one size, so that a pinned.Allocator
// that keeps them can use them again.
type hostMemory struct {
	from   *pinned.Allocator
	own    bool // from serves this memory alone
	blocks []mem.Block
	bytes  [][]byte
}

const (
	hostBlock   = 64 << 20
	hostThreads = 16 // most goroutines that touch the pages of a block before it is page-locked
)

// newHostMemory returns size bytes from an allocator, or from one of its own if that is nil. After an error, what it
// returns must be freed too.
func newHostMemory(dev driver.Device, from *pinned.Allocator, size int64) (h hostMemory, err error) {
	if size == 0 {
		return h, nil
	}
	if h.from = from; from == nil {
		threads := 1 << (bits.Len(uint(min(runtime.GOMAXPROCS(0), hostThreads))) - 1)
		h.from, err = pinned.New(dev, pinned.Config{
			HostRegister: true, RegisterThreads: threads, MaxRoundThreshold: -1,
		})
		if err != nil {
			return h, fmt.Errorf("page-locked memory: %w", err)
		}
		h.own = true
	}
	for rest := size; rest > 0; rest -= hostBlock {
		b, err := h.from.Alloc(min(rest, hostBlock))
		if err != nil {
			return h, fmt.Errorf("%s of page-locked memory: %w", bytesize.Format(size), err)
		}
		h.blocks = append(h.blocks, b)
		h.bytes = append(h.bytes, h.from.Bytes(b))
	}
	return h, nil
}

// parts visits the pieces of [offset, offset+size). It ends at the first error and returns it.
func (h *hostMemory) parts(offset, size int64, visit func(part []byte) error) error {
	for size > 0 {
		part := h.bytes[offset/hostBlock][offset%hostBlock:]
		part = part[:min(size, int64(len(part)))]
		if err := visit(part); err != nil {
			return err
		}
		offset, size = offset+int64(len(part)), size-int64(len(part))
	}
	return nil
}

// size returns the number of bytes.
func (h *hostMemory) size() (n int64) {
	for _, b := range h.bytes {
		n += int64(len(b))
	}
	return n
}

// free frees the memory, which no queued work uses. After an error it can be repeated.
func (h *hostMemory) free() error {
	for _, b := range h.blocks {
		h.from.Free(b)
	}
	h.blocks, h.bytes = nil, nil
	if !h.own {
		return nil
	}
	if err := h.from.Close(); err != nil {
		return fmt.Errorf("free page-locked memory: %w", err)
	}
	return nil
}
