package dlpack

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// Import returns a tensor over the memory of the DLManagedTensorVersioned at address. It takes ownership of the
// structure, even if it fails: see the package documentation. The memory must be on p's device: in the host's memory
// (also page-locked) for a place on the host, or on the GPU with p's ordinal. Memory that is flagged read-only is
// copied. The caller or p's scope owns the tensor. The error matches ErrVersion, ErrDevice, ErrType or ErrInvalid, or
// driver.ErrUnsupported if the structure has a C deleter and this program cannot call C functions; the deleter is then
// not called.
func Import(p *tensor.Place, address uintptr) (*tensor.Tensor, error) {
	if address == 0 {
		return nil, fmt.Errorf("dlpack: import of NULL: %w", ErrInvalid)
	}
	m := (*Managed)(at(address))
	if m.Version.Major != Major { // then only the deleter may be used, and must be called
		v := m.Version
		remove(m.Deleter, address)
		return nil, fmt.Errorf("dlpack: import of version %d.%d, only 1.x is supported: %w", v.Major, v.Minor,
			ErrVersion)
	}
	return take(p, &m.Tensor, m.Flags, m.Deleter, address)
}

// ImportLegacy is Import of a DLManagedTensor.
func ImportLegacy(p *tensor.Place, address uintptr) (*tensor.Tensor, error) {
	if address == 0 {
		return nil, fmt.Errorf("dlpack: import of NULL: %w", ErrInvalid)
	}
	m := (*Legacy)(at(address))
	return take(p, &m.Tensor, 0, m.Deleter, address)
}

// at returns the memory at an address, which belongs to another library or is pinned Go memory, so it does not move. It
// converts indirectly because checkptr reports uintptr arithmetic whose result is in Go's memory, where exports of this
// process are.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// take makes a tensor from dl, and calls the deleter when the tensor's memory is no longer used.
func take(p *tensor.Place, dl *Tensor, flags Flags, function, address uintptr) (*tensor.Tensor, error) {
	end := func() { remove(function, address) }
	if function != 0 && !canCall {
		return nil, fmt.Errorf("dlpack: import: this program was built without dlopen and cannot call a deleter: %w",
			driver.ErrUnsupported)
	}
	v, err := describe(p, dl)
	if err != nil {
		end()
		return nil, fmt.Errorf("dlpack: import: %w", err)
	}
	home := p
	if flags&ReadOnly != 0 {
		home = p.Unscoped()
	}
	s, err := v.storage(home, func(used ...driver.Stream) {
		for _, stream := range used {
			_ = stream.Sync(context.Background()) // a stream that failed or was closed has no work left
		}
		end()
	})
	if err != nil {
		end()
		return nil, fmt.Errorf("dlpack: import: %w", err)
	}
	defer s.Release() // the tensor is an owner too
	t, err := tensor.FromStorage(home, s, v.dtype, v.offset, v.shape, v.strides)
	if err != nil {
		return nil, fmt.Errorf("dlpack: import: %w", err)
	}
	if flags&ReadOnly == 0 {
		return t, nil
	}
	defer t.Release()
	return t.Clone(p)
}

// A view is a checked DLTensor: its elements and the range of memory that they cover.
type view struct {
	dtype   dtype.DType
	shape   []int
	strides []int // nil: row-major
	offset  int   // of the first element, in elements
	base    uintptr
	size    int64
}

// storage returns a storage over the memory.
func (v *view) storage(p *tensor.Place, end tensor.Deleter) (*tensor.Storage, error) {
	if p.Device().Visible() != nil {
		var b []byte
		if v.size > 0 {
			b = unsafe.Slice((*byte)(at(v.base)), v.size)
		}
		return tensor.FromBytes(p, b, end)
	}
	return tensor.FromPointer(p, driver.Pointer(v.base), v.size, end)
}

// describe checks a structure and returns its contents.
func describe(p *tensor.Place, dl *Tensor) (*view, error) {
	info := p.Device().Info()
	fits := false
	switch dl.Device.Type {
	case CPU, CUDAHost:
		fits = p.Device().Visible() != nil
	case CUDA:
		fits = info.Driver == "cuda" && int(dl.Device.ID) == info.Ordinal
	}
	if !fits {
		return nil, fmt.Errorf("memory of device type %d, id %d, for a place on %v: %w", dl.Device.Type, dl.Device.ID,
			p, ErrDevice)
	}
	d, err := dl.DType.dtype()
	if err != nil {
		return nil, err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrInvalid)
	}
	n := int(dl.NDim)
	switch {
	case n < 0 || n > backend.MaxRank:
		return nil, wrong("%d axes, want 0 to %d", n, backend.MaxRank)
	case n > 0 && dl.Shape == 0:
		return nil, wrong("%d axes without a shape", n)
	}
	v := &view{dtype: d}
	elements := int64(1)
	for i, length := range numbers(dl.Shape, n) {
		if length < 0 || length > math.MaxInt {
			return nil, wrong("axis %d has a length of %d", i, length)
		}
		v.shape = append(v.shape, int(length))
		if length == 0 {
			elements = 0
		}
	}
	for i, length := range v.shape {
		if elements > 0 && int64(length) > math.MaxInt64/int64(d.Size())/elements {
			return nil, wrong("the shape %v overflows at axis %d", v.shape, i)
		}
		elements *= int64(length)
	}
	if elements == 0 {
		return v, nil
	}
	lowest, highest := int64(0), elements-1
	if dl.Strides != 0 && n > 0 {
		highest = 0
		for i, stride := range numbers(dl.Strides, n) {
			far := int64(v.shape[i] - 1)
			const most = math.MaxInt64 / (16 * (backend.MaxRank + 1)) // so that the sums do not overflow, even in bytes
			if far > 0 && (stride > most/far || stride < -most/far) {
				return nil, wrong("a stride of %d along axis %d of the shape %v", stride, i, v.shape)
			}
			v.strides = append(v.strides, int(stride))
			lowest += min(far*stride, 0)
			highest += max(far*stride, 0)
		}
	}
	item := int64(d.Size())
	v.offset = int(-lowest)
	v.size = (highest - lowest + 1) * item
	first := dl.Data + uintptr(dl.ByteOffset)
	v.base = first - uintptr(-lowest*item)
	switch {
	case dl.Data == 0:
		return nil, wrong("the shape %v with a NULL pointer", v.shape)
	case dl.ByteOffset > math.MaxInt64 || first < dl.Data || v.base > first || v.base+uintptr(v.size) < v.base:
		return nil, wrong("%d bytes at %#x+%d exceed the address space", v.size, dl.Data, dl.ByteOffset)
	case v.base%uintptr(min(item, 8)) != 0:
		return nil, wrong("%v at %#x, which is not aligned for it", d, first)
	}
	return v, nil
}

// numbers returns the n numbers at an address.
func numbers(address uintptr, n int) []int64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*int64)(at(address)), n)
}
