package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// A fault is the cell where kernels leave the first index out of range. It lies in page-locked host memory, which the
// device reaches at the address that the host has for it: so asking costs a read of memory, and it does not matter who
// queued the work, or whether it was a graph that launched it again.
type fault struct {
	mu     sync.Mutex // of Failed and close: cell and memory
	memory []byte
	cell   *faultCell
}

// faultCell is struct Fault of kernels/fault.cuh. A kernel claims it, writes index and size, and then op.
type faultCell struct {
	claimed, op uint32
	index, size int64
}

// What faultCell.op means.
const (
	faultGather = 1 + iota
	faultIndexSelect
	faultScatterAdd
)

var faultOps = [...]string{faultGather: "gather", faultIndexSelect: "index_select", faultScatterAdd: "scatter_add"}

func newFault(p driver.Pinned) (*fault, error) {
	memory, err := p.AllocHost(int64(unsafe.Sizeof(faultCell{})))
	if err != nil {
		return nil, err
	}
	f := &fault{memory: memory, cell: (*faultCell)(unsafe.Pointer(unsafe.SliceData(memory)))}
	*f.cell = faultCell{}
	return f, nil
}

// pointer is the cell's address for a kernel.
func (f *fault) pointer() driver.Pointer { return driver.Pointer(uintptr(unsafe.Pointer(f.cell))) }

func (f *fault) close(p driver.Pinned) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cell == nil {
		return nil
	}
	err := p.FreeHost(f.memory)
	if err == nil {
		f.memory, f.cell = nil, nil
	}
	return err
}

// Failed makes no call of the device, so that it can be asked after every Sync.
func (b *Backend) Failed() error {
	b.fault.mu.Lock()
	defer b.fault.mu.Unlock()
	c := b.fault.cell
	if c == nil {
		return nil
	}
	op := atomic.LoadUint32(&c.op)
	if op == 0 {
		return nil
	}
	failed := &backend.IndexError{Op: fmt.Sprint("operation ", op), Index: c.index, Size: c.size}
	if int(op) < len(faultOps) {
		failed.Op = faultOps[op]
	}
	atomic.StoreUint32(&c.op, 0)
	atomic.StoreUint32(&c.claimed, 0)
	return failed
}
