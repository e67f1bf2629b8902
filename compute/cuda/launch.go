package cuda

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
)

// A shape is how a kernel is launched: blocks of threads, and the dynamic shared memory of each.
type shape struct {
	grid, block [3]uint32
	shared      int64
}

// line is a grid of one axis.
func line(blocks, threads int) shape {
	return shape{grid: [3]uint32{uint32(blocks)}, block: [3]uint32{uint32(threads)}}
}

// A launching is the parameters of one launch, together in one allocation. P is a structure as a kernel declares it: of
// numbers and arrays of numbers, with the padding that C gives it.
type launching[P any] struct {
	params P
	args   [1]driver.Arg
}

// launch queues kernel i of a family, whose one parameter is params.
func launch[P any](b *Backend, q backend.Queue, f *family, i int, s shape, params P) error {
	function, err := b.function(f, i)
	if err != nil {
		return err
	}
	l := &launching[P]{params: params}
	l.args[0] = driver.StructArg(unsafe.Slice((*byte)(unsafe.Pointer(&l.params)), unsafe.Sizeof(params)))
	return b.kernels.Launch(q.Stream, driver.Kernel{
		Name: function.Name(), Code: function, Grid: s.grid, Block: s.block, Shared: s.shared, Args: l.args[:],
	})
}

// at is the address of an operand's first element: that with all indices 0.
func at(a backend.Array) driver.Pointer {
	return a.Ptr + driver.Pointer(a.Offset*a.DType.Size())
}

// scratch takes size bytes for work on q, and gives them back: call free when the work that uses them is queued.
func scratch(q backend.Queue, size int64) (p driver.Pointer, free func(), err error) {
	block, err := q.Scratch.Alloc(q.Stream, size)
	if err != nil {
		return 0, nil, err
	}
	return block.Ptr, func() { q.Scratch.Free(block) }, nil
}

func ceilDiv(n, d int) int { return (n + d - 1) / d }
