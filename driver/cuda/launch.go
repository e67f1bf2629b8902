//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// kernels is the driver.Kernels of a device.
type kernels struct{ d *device }

func (d *device) Kernels() driver.Kernels { return kernels{d} }

// Visible is nil: the host cannot address the device's memory.
func (d *device) Visible() driver.Visible { return nil }

// The greatest grid of every device since compute capability 3.0, and block of every device since 2.0 (CUDA Programming
// Guide, "Technical Specifications per Compute Capability").
var (
	greatestGrid  = [3]uint32{math.MaxInt32, 65535, 65535}
	greatestBlock = [3]uint32{1024, 1024, 64}
)

// Launch calls cuLaunchKernel. It first checks for the causes of "invalid argument" and names them. A kernel without
// code and function has no effect but counts as work. A Kernel.Call to another library runs with the context current
// and the stream's lock held. It may make another context current, as cudaSetDevice does, but it must not change the
// depth of the thread's stack of contexts.
func (k kernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	const call = "Kernels.Launch"
	o := k.d.ownStream(call, s)
	if err := o.begin(call); err != nil {
		return err
	}
	defer o.end()
	if kernel.Code == nil {
		if kernel.Call != nil {
			o.queued() // even if it failed: it may have queued work before
			return kernel.Call(uintptr(o.handle))
		}
		if kernel.Func == nil {
			o.queued()
			return nil
		}
		detail := fmt.Sprintf("kernel %q is a Go function; this device runs compiled code", kernel.Name)
		return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: detail}
	}
	f, ok := kernel.Code.(*function)
	if !ok || f == nil || f.m.d != k.d {
		return invalidError(call, "kernel %q: its code is not of a module of this device", kernel.Name)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if f.m.closed {
		return closedError(call, "the module of "+f.name)
	}
	grid, block := atLeastOne(kernel.Grid), atLeastOne(kernel.Block)
	if wrong := unfit(f.limits, grid, block, kernel.Shared, kernel.Args); wrong != "" {
		return invalidError(call, "kernel %q: %s", f.name, wrong)
	}
	if err := f.allowShared(call, kernel.Shared); err != nil {
		return err
	}
	a := laidOut.Get().(*arguments)
	r := k.d.lib.LaunchKernel(f.handle, grid, block, uint32(kernel.Shared), o.handle, a.place(kernel.Args))
	laidOut.Put(a)
	if r != cu.Success {
		return k.d.fail(call, r, "kernel %q, %v blocks of %v threads with %d bytes of shared memory",
			f.name, grid, block, kernel.Shared)
	}
	o.queued()
	return nil
}

// unfit returns why a function with these limits cannot be launched with these parameters, or "" if it can.
func unfit(l driver.Limits, grid, block [3]uint32, shared int64, args []driver.Arg) string {
	for i, axis := range "xyz" {
		if grid[i] > greatestGrid[i] {
			return fmt.Sprintf("a grid of %d blocks along %c, at most %d", grid[i], axis, greatestGrid[i])
		}
		if block[i] > greatestBlock[i] {
			return fmt.Sprintf("a block of %d threads along %c, at most %d", block[i], axis, greatestBlock[i])
		}
	}
	if n := int(block[0]) * int(block[1]) * int(block[2]); n > l.Threads {
		return fmt.Sprintf("a block of %d threads, at most %d", n, l.Threads)
	}
	if shared < 0 || shared > l.DynamicShared {
		return fmt.Sprintf("%d bytes of dynamic shared memory, at most %d", shared, l.DynamicShared)
	}
	if l.Params == nil {
		return ""
	}
	if len(args) != len(l.Params) {
		return fmt.Sprintf("%d arguments, it has %d parameters", len(args), len(l.Params))
	}
	for i, want := range l.Params {
		if got := args[i].Size(); got != want {
			return fmt.Sprintf("argument %d of %d bytes, the parameter has %d", i, got, want)
		}
	}
	return ""
}

// allowShared enables so many bytes of dynamic shared memory for the function. libcuda requires this beyond 48 KiB less
// the function's static memory.
func (f *function) allowShared(call string, shared int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if shared <= f.shared {
		return nil
	}
	d := f.m.d
	if r := d.lib.FuncSetAttribute(f.handle, cu.FuncMaxDynamicShared, int(shared)); r != cu.Success {
		return d.fail(call, r, "kernel %q: allow %d bytes of dynamic shared memory", f.name, shared)
	}
	f.shared = shared
	return nil
}

// arguments holds the parameters of one launch in libcuda's form: an array of their addresses. It is on the heap, so it
// does not move, and libcuda has read it when the launch returns.
type arguments struct {
	addresses []unsafe.Pointer
	words     []uint64 // aligned for any parameter but vectors of 16 bytes, which libcuda copies bytewise
}

var laidOut = sync.Pool{New: func() any { return new(arguments) }}

// place copies args and returns the array's address, nil if there are none.
func (a *arguments) place(args []driver.Arg) unsafe.Pointer {
	if len(args) == 0 {
		return nil
	}
	n := 1 // an extra word, so that a final empty structure has an address
	for i := range args {
		n += (args[i].Size() + 7) / 8
	}
	a.words = slices.Grow(a.words[:0], n)[:n]
	a.addresses = a.addresses[:0]
	at := 0
	for i := range args {
		// An empty structure of C++ is a byte that is not read, so any address is valid.
		place := unsafe.Pointer(unsafe.SliceData(a.words[at:]))
		b := args[i].Bytes()
		copy(unsafe.Slice((*byte)(place), len(b)), b)
		a.addresses = append(a.addresses, place)
		at += (len(b) + 7) / 8
	}
	return unsafe.Pointer(unsafe.SliceData(a.addresses))
}

func atLeastOne(dim [3]uint32) [3]uint32 {
	for i := range dim {
		dim[i] = max(dim[i], 1)
	}
	return dim
}
