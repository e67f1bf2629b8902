package tensor

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
)

// Overlaps reports whether the two may share bytes: whether the ranges of addresses that they touch overlap. Tensors
// overlap in one storage, and in several that were made over the same memory: of slices of one array (View), of addresses
// inside one block (FromPointer). On two devices they can overlap if both have driver.Info.UnifiedAddressing.
func (t *Tensor) Overlaps(other *Tensor) bool {
	a, b := t.extent(), other.extent()
	switch {
	case t.storage == other.storage:
		return a.Overlaps(b)
	case !t.place.state.sharesAddresses(other.place.state) || !t.addresses(a).Overlaps(other.addresses(b)):
		return false
	}
	// Where blocks move, one may have been moved to where the other was a moment ago.
	t.Pin()
	defer t.Unpin()
	other.Pin()
	defer other.Unpin()
	return t.addresses(a).Overlaps(other.addresses(b))
}

// SameElements reports whether the two have the same type and shape, and each element of one is the memory of the same
// element of the other: whether they are one tensor in everything but ownership.
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
	return t.place.state.sharesAddresses(other.place.state) && t.addresses(t.extent()) == other.addresses(other.extent())
}

// extent returns the range of what t touches, counted from the first byte of its storage.
func (t *Tensor) extent() driver.Range {
	lowest, highest, _ := span(t.offset, t.shape, t.strides)
	size := int64(t.dtype.Size())
	return driver.Range{Ptr: driver.Pointer(int64(lowest) * size), Size: int64(highest-lowest+1) * size}
}

// placed returns the addresses, as they are now, of a range counted from the first byte of t's storage.
func (t *Tensor) addresses(r driver.Range) driver.Range {
	ptr, bytes := t.storage.state.address()
	if ptr == 0 { // Go's own memory, whose addresses a device of the host has, too
		ptr = driver.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
	}
	r.Ptr += ptr
	return r
}

// shares reports whether equal addresses of the two are the same memory.
func (h *deviceState) sharesAddresses(other *deviceState) bool {
	return h == other || h.device == other.device ||
		h.device.Info().UnifiedAddressing && other.device.Info().UnifiedAddressing
}
