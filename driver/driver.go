// Package driver defines the interface of devices: memory, streams with marks, and optional abilities (kernels, virtual
// memory, page-locked host memory, timing, graphs, peers, sharing between processes).
//
//	dev, err := driver.Open("host:total=1GiB") // import _ "github.com/ashlar-go/ashlar/driver/host"
//	defer dev.Close()
//	p, err := dev.Alloc(1 << 20)
//	err = dev.DefaultStream().Fill(p, 0, 1<<20)
//
// driver/cuda opens NVIDIA GPUs, driver/host the machine's memory, and driver/sim a simulated device. driver/intercept
// and driver/fault wrap any device, and driver/drivertest is the suite that all drivers pass.
//
// Sizes are bytes (int64). A Pointer is an address in a device's address space; only drivers dereference it. Bugs of
// the caller (a nil stream, a negative size, a stream of another device) panic with the prefix "driver"; all other
// failures are an *Error. An optional ability is a method that returns nil if the device lacks it.
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

	// UnifiedAddressing says that the device's addresses are those of the process: an address means the same memory in
	// Go code and on every device with UnifiedAddressing. Otherwise an address is valid on its own device only.
	UnifiedAddressing bool

	// The remaining fields have CUDA's meaning. A zero value is unknown, or has no meaning on this device.
	UUID            string // "GPU-5c1f…" or "MIG-…"
	PCI             string // address on the PCI bus: "0000:1b:00.0"
	Compute         int    // compute capability, ten times the major number plus the minor: 90
	Multiprocessors int
	L2              int64 // bytes of second-level cache
	SharedMemory    int64 // bytes that one block of threads may use at most, opted in
	MIG             bool  // a slice of a GPU: all figures are those of the slice
}

// ProcessMemory is what one process holds of a device's memory.
type ProcessMemory struct {
	PID   int   // the device's system's number; in a container the process itself may see another
	Self  bool  // it is this process
	Bytes int64 // includes memory of other libraries and of the system for the process; -1 if unknown
}

// A Device is one memory space and the engine that works on it. It is safe for concurrent use.
type Device interface {
	Info() Info

	// Available returns the bytes that Alloc and Create could still allocate, and the total, as the device reports
	// them.
	Available() (free, total int64, err error)

	// Processes lists the processes that use the device's memory, this one included, in the order of their IDs. The
	// error matches ErrUnsupported if the device does not know them. It is telemetry: the figures are a moment old, and
	// nothing may depend on them.
	Processes() ([]ProcessMemory, error)

	// Alloc returns size fresh bytes with undefined contents. It may stall the whole device. Size must be positive.
	// The error matches ErrNoMemory if there is no room.
	Alloc(size int64) (Pointer, error)

	// Free frees memory that Alloc returned. Like cudaFree it waits for all work queued on the device.
	Free(p Pointer) error

	// NewStream returns a new stream. The default stream (StreamID 0) exists from the start: see DefaultStream.
	NewStream(StreamOptions) (Stream, error)

	// DefaultStream returns the stream with ID 0. Closing it does nothing.
	DefaultStream() Stream

	// VirtualMemory is nil if addresses cannot be reserved without memory.
	VirtualMemory() VirtualMemory

	// Kernels is nil if the device runs none.
	Kernels() Kernels

	// Pinned is nil if the device cannot copy from page-locked host memory.
	Pinned() Pinned

	// Timing is nil if the device has no clock.
	Timing() Timing

	// Graphs is nil if work cannot be captured and launched again.
	Graphs() Graphs

	// Peers is nil if the device can access only its own memory.
	Peers() Peers

	// Sharing is nil if other processes cannot use the device's memory.
	Sharing() Sharing

	// Visible is nil unless Go code can access the device's memory.
	Visible() Visible

	// Close waits for queued work, then frees everything that the device still holds. Later calls fail with ErrClosed.
	// Closing twice is not an error.
	Close() error
}

// StreamOptions are the options of NewStream. The zero value makes an ordinary stream.
type StreamOptions struct {
	Priority int // lower runs first, 0 is the default; drivers clamp it to what they have

	// Foreign, if not zero, is the handle of a stream that other code made on this device (a CUstream, say). NewStream
	// then makes a Stream that queues to it and never destroys it; the caller must keep the foreign stream until after
	// Close. Drivers whose streams have no handles return ErrUnsupported.
	Foreign uintptr
}

// A Stream is a queue of work that a device does in order. Only WaitFor and Sync order work on different streams. It is
// safe for concurrent use; the order of concurrent calls is undefined.
//
// Memory named in a call must stay allocated, and a []byte unmodified (CopyIn) or untouched (CopyOut), until the work
// has been done. CopyIn and CopyOut return when the slice may be used again.
//
// A stream that is being closed accepts no work: once Close is called, calls that copy, fill, launch, stamp, record or
// begin a capture fail with ErrClosed. Mark, Reached, Sync, Graphs.Capturing and WaitFor work as before until all its
// work is done. Close also waits for the mark of such a WaitFor; a mark inside a capture is refused with ErrCapturing.
// So ErrClosed from one of these five means that the stream's work is done. From any other call it only means that
// Close was called. The same holds for all streams when their device is closed.
type Stream interface {
	ID() StreamID

	// Copy queues a copy of n bytes. If the two ranges of addresses overlap, it queues nothing, also while the stream
	// captures, and the error matches ErrInvalid: copy through other memory. The ranges must not be two addresses of
	// the same mapped page either; only driver/sim detects that.
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

	// Close waits for queued work and ends the stream. Its marks stay reached. See Stream for concurrent calls. Closing
	// twice is not an error.
	Close() error
}
