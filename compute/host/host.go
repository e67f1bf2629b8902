// Package host is the backend.Backend of devices whose kernels are Go functions: the host itself and the simulated
// device. It computes on several processors, with AVX2 on amd64 and, for large matrix products, OpenBLAS if it is
// installed.
//
// Results do not depend on the number of processors: sums are divided at places that only the shape determines. A
// Backend is safe for concurrent use.
package host

// # Design
//
// A method turns its operands into a plan and launches one kernel, whose Go function runs when the stream reaches it.
// The kernel declares the memory that it uses, from the lowest to the highest byte of each operand.
//
//   - array (array.go): an operand as memory. If Go code can access the memory the kernel works in it; otherwise it loads
//     all of it, works on the copy, and stores it again.
//   - plan (plan.go): the axes that the operands of a kernel share, as few as possible, in a suitable order. It numbers the
//     elements from 0 in its order; work is ranges of these numbers.
//   - reader and writer (block.go): return the elements of a range as contiguous memory of the type of the computation:
//     the operand's own memory if it is such, otherwise a piece of a workspace, gathered and converted. The loops that
//     compute, one for each operation and type, therefore see only contiguous memory and no strides, broadcasting or
//     16-bit floats.
//   - parallelRanges (parallel.go): divides the numbers into parts and runs them on all processors.
//
// Elementwise methods (elementwise.go) combine these with a loop. Methods along some of the axes (reductions, softmax,
// scatters) order their plan by groups (groups.go), so that elements of one result are one range, or rows of one
// length.
//
// Memory is allocated in proportion to the operands only for operands that must be loaded, lines being sorted, and one
// partial result for at least 256 elements of long reductions. A Backend's only state is the first error in queued
// work.

import (
	"cmp"
	"runtime"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// Options are settings of a Backend. The zero value suits most uses.
type Options struct {
	Procs  int  // the number of processors to use; 0 is GOMAXPROCS
	NoBLAS bool // MatMul does not use OpenBLAS even if it is installed
}

// A Backend computes with Go functions. Safe for concurrent use.
type Backend struct {
	kernels driver.Kernels
	procs   int
	noBLAS  bool
	failed  atomic.Pointer[backend.IndexError]
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend for a device that runs Go functions, of driver/host or driver/sim. It panics if dev runs no
// kernels.
func New(dev driver.Device, o Options) *Backend {
	kernels := dev.Kernels()
	if kernels == nil {
		panic("compute/host: New: the device runs no kernels")
	}
	o.Procs = cmp.Or(max(o.Procs, 0), runtime.GOMAXPROCS(0))
	return &Backend{kernels: kernels, procs: o.Procs, noBLAS: o.NoBLAS}
}

// Name returns "host".
func (b *Backend) Name() string { return "host" }

// Failed returns the first index out of range in finished work since the last call, or nil.
func (b *Backend) Failed() error {
	if err := b.failed.Swap(nil); err != nil {
		return err
	}
	return nil
}

// Close does nothing: a Backend has no resources on the device.
func (b *Backend) Close() error { return nil }
