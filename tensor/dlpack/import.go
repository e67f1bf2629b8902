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

// Import returns a tensor that looks at the memory of the DLManagedTensorVersioned at address, which it takes over, whether
// it succeeds or fails: see the package's opening. The memory must be p's device's: of the host for a place there (page-
// locked memory too), of the GPU with p's ordinal for one on a GPU. What is flagged read-only is copied. The caller (or p's
// scope) owns the tensor. The errors match ErrVersion, ErrDevice, ErrType or ErrInvalid;
// or driver.ErrUnsupported if there is a C deleter and this program cannot call C: that one stays uncalled.
func Import(p *tensor.Place, address uintptr) (*tensor.Tensor, error) {
	if address == 0 {
		return nil, fmt.Errorf("dlpack: import of NULL: %w", ErrInvalid)
	}
	m := (*Managed)(at(address))
	if m.Version.Major != Major { // then nothing else may be looked at, but for the deleter, which must be called
		v := m.Version
		remove(m.Deleter, address)
		return nil, fmt.Errorf("dlpack: import of version %d.%d, known are 1.x: %w", v.Major, v.Minor, ErrVersion)
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

// at returns the memory at an address. It is another library's, or Go's and pinned, so it stays where it is; the detour is
// because checkptr takes arithmetic that ends in Go's memory, which exports of this process lie in, to have begun there.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// take makes a tensor of what dl describes, and calls the deleter when that is over.
func take(p *tensor.Place, dl *Tensor, flags Flags, function, address uintptr) (*tensor.Tensor, error) {
	end := func() { remove(function, address) }
	if function != 0 && !canCall {
		return nil, fmt.Errorf("dlpack: import: this program was built without dlopen and cannot call a deleter: %w", driver.ErrUnsupported)
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
	defer s.Release() // the tensor holds it beside
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

// A view is a DLTensor that was checked: elements in memory that begins with the lowest of them.
type view struct {
	dtype   dtype.DType
	shape   []int
	strides []int // nil: row by row
	offset  int   // of the first element, in elements
	base    uintptr
	size    int64
}

// storage returns the memory.
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

// describe checks a structure and returns what it says.
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
		return nil, fmt.Errorf("memory of device type %d, id %d, for a place on %v: %w", dl.Device.Type, dl.Device.ID, p, ErrDevice)
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
		return nil, wrong("%d axes, from 0 to %d are possible", n, backend.MaxRank)
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
			return nil, wrong("the shape %v has more elements than memory can hold, at axis %d", v.shape, i)
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
			const most = math.MaxInt64 / (16 * (backend.MaxRank + 1)) // so that the sums are numbers, in bytes too
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
		return nil, wrong("the shape %v without memory", v.shape)
	case dl.ByteOffset > math.MaxInt64 || first < dl.Data || v.base > first || v.base+uintptr(v.size) < v.base:
		return nil, wrong("%d bytes at %#x+%d leave the addresses", v.size, dl.Data, dl.ByteOffset)
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
