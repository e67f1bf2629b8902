// Package driver says what a device must do for Ashlar to keep memory on it.
//
// It is the seam between allocators and hardware, and as small as it can be: memory, streams with marks, and two
// optional abilities (virtual memory, kernels). driver/sim, driver/host and, on NVIDIA hardware, driver/cuda stand
// behind it; driver/fault wraps any of them; driver/drivertest is the suite that all of them pass.
//
// Units: sizes are bytes (int64). A Pointer is an address in the device's own space and is never dereferenced by Go
// code that is not a driver. Bugs of the caller (a nil stream, a negative size, a stream of another device) panic with
// the prefix "driver"; everything that the world can do wrong is an *Error.
//
// An optional ability is a method that may return nil, not a type assertion: a wrapper that forgets one does not
// compile.
package driver

import "context"

// A Pointer is an address in a device's address space. The garbage collector does not see it. Zero is no address.
type Pointer uint64

// A StreamID names a stream within its device. Drivers number streams densely from 0, the default stream, in the order
// of creation, and may give the number of a closed stream to a new one.
type StreamID uint32

// A Mark is a point on a stream's timeline: after all work queued on Stream before it was taken. It is a value, so
// nothing leaks, and a vector-clock entry, so a simulator can prove or refute that two accesses are ordered. Ticks on
// one stream never decrease; the zero tick has always been reached.
type Mark struct {
	Stream StreamID
	Tick   uint64
}

// Info describes a device. It does not change while the device is open.
type Info struct {
	Driver      string // the name it is registered under: "sim", "host", "cuda"
	Name        string // the product: "NVIDIA H200", "simulated NVIDIA H200"
	Ordinal     int    // its number among the driver's devices
	TotalMemory int64  // bytes, as the device reports its total
	Alignment   int64  // bytes: every Pointer from Alloc is a multiple of it
	Granularity int64  // bytes: page sizes and mapped addresses are multiples of it; 0 without virtual memory
}

// A Device is one memory space and the engine that works on it. Safe for concurrent use.
type Device interface {
	Info() Info

	// Available returns the bytes that Alloc and Create could still hand out, and the total, as the device sees them.
	Available() (free, total int64, err error)

	// Alloc returns size fresh bytes with undefined contents. It may stall the whole device. Size must be positive.
	// The error matches ErrNoMemory if there is no room.
	Alloc(size int64) (Pointer, error)

	// Free gives back what Alloc returned. Like cudaFree it waits for all work queued on the device.
	Free(p Pointer) error

	// NewStream returns a new stream. The default stream (StreamID 0) exists from the start: see DefaultStream.
	NewStream(StreamOptions) (Stream, error)

	// DefaultStream returns the stream with ID 0. Closing it does nothing.
	DefaultStream() Stream

	// VirtualMemory is nil if addresses cannot be reserved apart from memory.
	VirtualMemory() VirtualMemory

	// Kernels is nil if the device runs none.
	Kernels() Kernels

	// Close waits for queued work, then gives back everything that the device still holds. Later calls fail with
	// ErrClosed. Closing twice is not an error.
	Close() error
}

// StreamOptions says what kind of stream NewStream makes. The zero value is an ordinary stream.
type StreamOptions struct {
	Priority int // lower runs first, 0 is the default; drivers clamp it to what they have
}

// A Stream is a queue of work that a device does in order. Work on different streams is unordered but for WaitFor and
// Sync. Safe for concurrent use, though the order of concurrent calls is anyone's.
//
// Memory named in a call must stay allocated, and a []byte unmodified (CopyIn) or untouched (CopyOut), until the work
// has been done. CopyIn and CopyOut return when the slice may be used again.
type Stream interface {
	ID() StreamID

	// Copy queues a copy of n bytes. The ranges must not overlap.
	Copy(dst, src Pointer, n int64) error
	// CopyIn copies src to the device, in stream order, and returns when src may be reused.
	CopyIn(dst Pointer, src []byte) error
	// CopyOut waits for the work queued so far and copies len(dst) bytes from the device.
	CopyOut(dst []byte, src Pointer) error
	// Fill queues the setting of n bytes to pattern.
	Fill(p Pointer, pattern byte, n int64) error

	// Mark returns the point after all work queued so far.
	Mark() (Mark, error)
	// Reached reports whether the work before m, a mark of this stream, is done. It never blocks.
	Reached(m Mark) (bool, error)
	// WaitFor makes work queued here from now on start after m, a mark of other. It does not block the caller.
	WaitFor(other Stream, m Mark) error
	// Sync blocks until the work queued so far is done, or ctx ends.
	Sync(ctx context.Context) error

	// Close waits for queued work and ends the stream. Its marks stay reached.
	Close() error
}

// VirtualMemory reserves addresses and gives them memory page by page. An address is None, Reserved or Mapped. Safe
// for concurrent use.
type VirtualMemory interface {
	// Reserve sets aside size bytes of addresses, a multiple of the granularity, with no memory behind them.
	Reserve(size int64) (Pointer, error)
	// Release gives back a whole reservation, of which nothing may be mapped.
	Release(p Pointer, size int64) error

	// Create makes a page of physical memory, of a size that is a multiple of the granularity, mapped nowhere. The
	// error matches ErrNoMemory if there is no room.
	Create(size int64) (Page, error)
	// Drop gives the page up. Its memory returns to the device once it is mapped nowhere.
	Drop(Page) error

	// Map puts pages at consecutive addresses from p, inside one reservation, and gives the device access to them. A
	// page may be mapped at several addresses. Either all are mapped or none.
	Map(p Pointer, pages ...Page) error
	// Unmap takes whole pages away from the addresses [p, p+size). It does not wait for queued work: synchronise first.
	Unmap(p Pointer, size int64) error
}

// A Page is physical memory behind virtual addresses: an owned handle from Create until Drop.
type Page struct {
	ID   uint64
	Size int64
}

// Kernels queues computation on streams.
type Kernels interface {
	// Launch queues k on s, a stream of this device, and returns without waiting for it.
	Launch(s Stream, k Kernel) error
}

// A Kernel is a piece of work that a device does in stream order, with its accesses declared: the simulator checks
// them, and the others may ignore them.
type Kernel struct {
	Name   string
	Reads  []Range
	Writes []Range

	// Func does the work on devices whose kernels are Go functions (host, sim). It may be nil. It runs with the
	// device's memory in hand and must not call the device or wait for its streams.
	Func func(Memory) error
}

// A Range is Size bytes from Ptr.
type Range struct {
	Ptr  Pointer
	Size int64
}

// Memory is what a Go kernel sees of the device's memory while it runs.
type Memory interface {
	// Load copies the bytes at p into dst, and Store copies src to p.
	Load(dst []byte, p Pointer) error
	Store(p Pointer, src []byte) error
}
