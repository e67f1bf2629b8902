package tensor

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
)

// Overlaps reports whether the two tensors may share bytes: whether the address ranges that they cover overlap. They
// may belong to one storage, or to several storages over the same memory: slices of one array (View), or addresses
// inside one block (FromPointer). Tensors of two devices can overlap if both devices have
// driver.Info.UnifiedAddressing.
func (t *Tensor) Overlaps(other *Tensor) bool {
	a, b := t.extent(), other.extent()
	switch {
	case t.storage == other.storage:
		return a.Overlaps(b)
	case !t.place.state.sharesAddresses(other.place.state) || !t.addresses(a).Overlaps(other.addresses(b)):
		return false
	}
	// An allocator may move one block to the former address of the other, so compare again while both are pinned.
	t.Pin()
	defer t.Unpin()
	other.Pin()
	defer other.Unpin()
	return t.addresses(a).Overlaps(other.addresses(b))
}

// SameElements reports whether the two tensors have the same type and shape and each element of one is at the address
// of the same element of the other. They then differ only in ownership.
func (t *Tensor) SameElements(other *Tensor) bool {
	if t.dtype != other.dtype || len(t.shape) != len(other.shape) {
		return false
	}
	for i, n := range t.shape {
		if n != other.shape[i] || n > 1 && t.strides[i] != other.strides[i] {
			return false
		}
	}
	if t.storage == other.storage {
		return t.offset == other.offset
	}
	t.Pin()
	defer t.Unpin()
	other.Pin()
	defer other.Unpin()
	return t.place.state.sharesAddresses(other.place.state) &&
		t.addresses(t.extent()) == other.addresses(other.extent())
}

// extent returns the range that t covers, relative to the first byte of its storage.
func (t *Tensor) extent() driver.Range {
	lowest, highest, _ := span(t.offset, t.shape, t.strides)
	size := int64(t.dtype.Size())
	return driver.Range{Ptr: driver.Pointer(int64(lowest) * size), Size: int64(highest-lowest+1) * size}
}

// addresses returns the current addresses of a range relative to the first byte of t's storage.
func (t *Tensor) addresses(r driver.Range) driver.Range {
	ptr, bytes := t.storage.state.address()
	if ptr == 0 { // Go's own memory: a device of the host uses the same addresses
		ptr = driver.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
	}
	r.Ptr += ptr
	return r
}

// sharesAddresses reports whether equal addresses of the two devices are the same memory.
func (h *deviceState) sharesAddresses(other *deviceState) bool {
	return h == other || h.device == other.device ||
		h.device.Info().UnifiedAddressing && other.device.Info().UnifiedAddressing
}
