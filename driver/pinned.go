package driver

// Pinned is page-locked host memory. A device copies from and to it by itself, at the full speed of the link, while the
// host does other work. The slices lie outside Go's heap: the garbage collector neither moves nor frees them. It is
// safe for concurrent use.
type Pinned interface {
	// AllocHost returns size bytes of page-locked memory with undefined contents; size must be positive. It is slow
	// (cuMemHostAlloc takes 0.3 s for 1 GiB): mem/pinned keeps such memory for reuse. The error matches ErrNoMemory if
	// there is no room.
	AllocHost(size int64) ([]byte, error)

	// FreeHost frees a slice of AllocHost, which must be whole. Like Device.Free it waits for all work queued on the
	// device. The error matches ErrInvalid if b is not such a slice.
	FreeHost(b []byte) error

	// Register page-locks memory outside Go's heap that the caller owns, such as a mapped file, until Unregister is
	// called with the same slice.
	Register(b []byte) error
	Unregister(b []byte) error

	// IsPinned reports whether all of b is page-locked memory of this device. It queues no work and does not wait.
	IsPinned(b []byte) bool

	// CopyInAsync queues a copy of src, which must be page-locked, to the device, and returns at once: src must stay
	// allocated and unmodified until a mark taken afterwards on s is reached. CopyOutAsync copies from the device;
	// until then dst must not be read or written. The error matches ErrInvalid if the slice is not page-locked memory
	// of this device.
	CopyInAsync(s Stream, dst Pointer, src []byte) error
	CopyOutAsync(s Stream, dst []byte, src Pointer) error
}
