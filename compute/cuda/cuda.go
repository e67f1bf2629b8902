// Package cuda computes on NVIDIA GPUs: it is the backend.Backend over a driver.Device that runs compiled code. Its
// kernels are CUDA C (kernels/*.cu), compiled to PTX that is part of the program, so that neither a compiler nor a
// toolkit is needed where it runs; the graphics driver makes machine code of it. Matrix products of floats are cuBLAS's
// where that library is found, and our own where it is not.
//
// # Design
//
// A method works in three steps, none of which waits for the device. It plans: axes are put in the order of dst's
// strides, those that follow each other in memory become one (index.go), and work is cut where 32-bit indices would not
// do. It picks a kernel: by operation and type, and by whether 16 bytes can be moved at a time (elementwise.go). It
// launches: one structure of parameters, laid out as the kernel's source says it.
//
// A module of kernels is one source compiled for one type of elements: unary_f32. It is loaded when its first kernel is
// launched, since making machine code takes a fraction of a second; the graphics driver keeps that on disk. Kernels
// have small numbers (module.go), and finding one that was launched before is reading an array.
//
// What kernels find wrong they write to a cell of page-locked host memory, which Failed reads (failure.go).
//
// State of a Backend: the modules and kernels loaded so far, which only grow until Close, the cell, and the handle of
// cuBLAS. Locks: Backend.mu guards loading, and blas.mu cuBLAS's state; both are leaves but for calls of the device. A
// launch of a loaded kernel takes neither.
//
// Not done here: deciding shapes and types, which package compute has done; memory other than scratch; and nothing
// waits.
package cuda

import (
	"errors"
	"sync"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

//go:generate ./kernels/build.sh

// Options says how a Backend computes. The zero value is a good one.
type Options struct {
	// Libraries are names or paths of cuBLAS to try before the usual ones: that of a Python environment, say, which is
	// site-packages/nvidia/cublas/lib/libcublas.so.12 or site-packages/nvidia/cu13/lib/libcublas.so.13. Before the
	// first that opens, the libcublasLt beside it is opened, as the loader does not look there.
	Libraries []string

	// NoLibrary keeps to the kernels of this package.
	NoLibrary bool

	// TF32 lets matrix products of Float32 round their operands to 10 bits of fraction, which is several times faster.
	TF32 bool
}

// A Backend computes on one device. Safe for concurrent use.
type Backend struct {
	dev             driver.Device
	kernels         driver.Kernels
	multiprocessors int
	fault           *fault
	blas            blas

	mu      sync.Mutex // modules, and writing to loaded
	modules map[string]driver.Module
	loaded  []loaded // by number of kernel
}

var _ backend.Backend = (*Backend)(nil)

// New returns a Backend of dev, a device that runs compiled code and has page-locked host memory: a GPU that
// driver/cuda opened. The error matches driver.ErrUnsupported if it is another. The device must outlive it.
func New(dev driver.Device, o Options) (*Backend, error) {
	const call = "compute/cuda.New"
	k := dev.Kernels()
	if k == nil || dev.Pinned() == nil || dev.Info().Compute == 0 {
		return nil, &driver.Error{
			Call: call, Code: driver.ErrUnsupported,
			Detail: dev.Info().Name + " runs no compiled code",
		}
	}
	if c := dev.Info().Compute; c < oldest {
		return nil, unsupported(call, "%s has compute capability %d.%d, the kernels need 7.0", dev.Info().Name, c/10,
			c%10)
	}
	f, err := newFault(dev.Pinned())
	if err != nil {
		return nil, err
	}
	return &Backend{
		dev: dev, kernels: k, multiprocessors: max(1, dev.Info().Multiprocessors), fault: f,
		blas: blas{options: o}, modules: map[string]driver.Module{}, loaded: make([]loaded, kernelCount),
	}, nil
}

const oldest = 70 // the compute capability that kernels/build.sh compiles for, times ten

// Name returns "cuda".
func (b *Backend) Name() string { return "cuda" }

// Close unloads the kernels and gives back the cell, after the device's queued work. Nothing may be called afterwards
// but Close.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.blas.close(b), b.fault.close(b.dev.Pinned())}
	for name, m := range b.modules {
		errs = append(errs, m.Close())
		delete(b.modules, name)
	}
	return errors.Join(errs...)
}
