// Package host is the backend.Backend of devices whose kernels are Go functions: the host itself, and the simulated
// device. It computes on several processors.
//
// # Design
//
// A method turns its operands into a plan and launches one kernel, whose Go function does the work when the stream gets
// there. What it may touch is declared, from the lowest to the highest byte of each operand.
//
//   - array (array.go): an operand, as memory that a kernel reads or writes. Where Go code can reach the memory the
//     kernel works in it; elsewhere it loads all of it, works on that, and stores it again.
//   - plan (plan.go): the axes that the operands of a kernel share, as few as possible, in an order that suits the method.
//     It gives every element a number, from 0 in the plan's order; work is ranges of these numbers.
//   - reader and writer (lane.go): give the elements of a range as contiguous memory of the type that is computed in: the
//     operand's own memory where it is so already, else a piece of the workspace, gathered and converted. So the loops
//     that compute (one for each operation and type) know contiguous memory only, and nothing of strides, of
//     broadcasting or of 16-bit floats.
//   - each (parallel.go): cuts the numbers into parts and does them on all processors.
//
// Elementwise methods (elementwise.go) are these four and a loop. Methods along some of the axes (reductions, softmax,
// scatters) order their plan by groups (groups.go), so that what belongs together is one range, or rows of one length.
//
// # Invariants
//
// Results do not depend on how many processors there are: sums are cut at places that the shape alone determines. Nothing
// is allocated in proportion to the operands, but for memory that must be loaded, lines being sorted, and one partial
// result for at least 256 elements of long reductions.
//
// There are no locks but those of errors that parts find; a Backend has no state but the first such error.
//
// It does not fuse operations, and does not choose types, shapes or places: package compute does.
package host

import (
	"runtime"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// Options are settings of a Backend. The zero value is good.
type Options struct {
	Procs  int  // how many processors compute at once; 0 is GOMAXPROCS
	NoBLAS bool // MatMul never calls OpenBLAS, which it otherwise does where that is installed
}

// A Backend computes with Go functions. Safe for concurrent use.
type Backend struct {
	kernels driver.Kernels
	procs   int
	noBLAS  bool
	failed  atomic.Pointer[backend.IndexError]
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend for a device that runs Go functions: driver/host's or driver/sim's. It panics if dev runs no
// kernels.
func New(dev driver.Device, o Options) *Backend {
	kernels := dev.Kernels()
	if kernels == nil {
		panic("compute/host: New: the device runs no kernels")
	}
	if o.Procs <= 0 {
		o.Procs = runtime.GOMAXPROCS(0)
	}
	return &Backend{kernels: kernels, procs: o.Procs, noBLAS: o.NoBLAS}
}

// Name returns "host".
func (b *Backend) Name() string { return "host" }

// Failed returns the first index out of range that work found since the last call, or nil.
func (b *Backend) Failed() error {
	if err := b.failed.Swap(nil); err != nil {
		return err
	}
	return nil
}

// Close does nothing: a Backend holds nothing of the device.
func (b *Backend) Close() error { return nil }
