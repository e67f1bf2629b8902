package dropin

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// exports are the live blocks that have handles for other processes. Their pages stay where they are until Free, as
// those of all live blocks; a process that has opened them keeps them longer.
type exports struct {
	any atomic.Int64 // number of such blocks; while it is 0, Free takes no lock

	mu     sync.Mutex
	blocks map[driver.Pointer]struct{}
}

func (x *exports) add(at driver.Pointer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.blocks == nil {
		x.blocks = map[driver.Pointer]struct{}{}
	}
	x.blocks[at] = struct{}{}
	x.any.Store(int64(len(x.blocks)))
}

// remove forgets a block, and reports whether it had a handle.
func (x *exports) remove(at driver.Pointer) bool {
	if x.any.Load() == 0 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.blocks[at]
	delete(x.blocks, at)
	x.any.Store(int64(len(x.blocks)))
	return ok
}

// end closes the descriptors of a block that is about to be freed.
func (x *exports) end(p *Process, at driver.Pointer) {
	if !x.remove(at) {
		return
	}
	l, g, err := p.holding(at)
	if err != nil || l.Ptr != at {
		return
	}
	if a, err := g.paged(""); err == nil {
		a.EndExport(l.Ptr, l.Size)
	}
}

// restored closes the descriptors of blocks that a Restore freed.
func (x *exports) restored(a *paged.Allocator, freed []mem.Block) {
	for _, b := range freed {
		if x.remove(b.Ptr) {
			a.EndExport(b.Ptr, b.Size)
		}
	}
}

// Share returns a handle by which other processes of this user can open the memory of the live block that contains an
// address, and the offset of the address in what they open. They see the whole pages behind the block, so also its
// neighbours. The handle opens the memory until the block is freed or this process ends; a process that has it open
// keeps its contents after that, but after a free others use it too. With torch, PyTorch 2.11 without Ashlar can open
// the handle if all pages behind the block are of one size. The same block has the same handle each time.
func (p *Process) Share(at driver.Pointer, torch bool) (handle []byte, offset int64, err error) {
	l, g, err := p.holding(at)
	if err != nil {
		return nil, 0, err
	}
	a, err := g.paged("sharing memory with other processes")
	if err != nil {
		return nil, 0, err
	}
	p.exports.add(l.Ptr)
	h, err := raw.IPCHandle(at)
	if err != nil {
		return nil, 0, invalidIfPaused(err)
	}
	_, pages, err := a.ExportPages(l.Ptr, l.Size)
	if err != nil {
		return nil, 0, invalidIfPaused(err)
	}
	handle, err = newHandle(h.Memory, pages, torch)
	return handle, h.Offset, err
}
