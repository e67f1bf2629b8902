package driver

import "os"

// Sharing lets other processes of the same machine use memory of this device (CUDA calls it IPC). Memory stays
// allocated until every process has closed it, so either process may die first. Package mem/ipc builds on this
// interface: it counts references and transfers handles. It is safe for concurrent use.
//
// There are two ways, as in CUDA. A handle is a few bytes that any process of the same user may open as long as the
// exporter lives; it covers the whole allocation. A page's descriptor is an open file: only a process to which it was
// sent can use it.
type Sharing interface {
	// Export returns a handle of the whole allocation at p, which Alloc returned. It may stall the whole device. The
	// error matches ErrUnsupported where only pages can be shared.
	Export(p Pointer) ([]byte, error)

	// Import opens a handle from another process and returns the address of the allocation in this process, and its
	// size. The error matches ErrInvalid if the handle is not one of this driver's or its exporter is gone. If the
	// exporter has freed the block, Import may succeed or fail, as the device decides: CUDA's legacy handles open freed
	// memory as long as some process has it open. So a process must keep the blocks whose handles it has sent.
	Import(handle []byte) (Pointer, int64, error)

	// Forget closes memory that Import returned, after the work queued on this device is done.
	Forget(p Pointer) error

	// CreateShared is VirtualMemory.Create for a page that ExportPage can export.
	CreateShared(size int64) (Page, error)

	// ExportPage returns a descriptor of a page made by CreateShared, which the caller closes. Child processes do not
	// inherit it.
	ExportPage(Page) (*os.File, error)

	// ImportPage makes a page of a descriptor from another process, which the caller may close afterwards. The page is
	// mapped and dropped like one of this process. Size is the size of the page, which the exporter must send along.
	// The error matches ErrInvalid if the file is not one of this driver's pages or is shorter.
	ImportPage(f *os.File, size int64) (Page, error)

	// NewEvent makes an event that other processes can open. The error matches ErrUnsupported if the device cannot
	// share events.
	NewEvent() (SharedEvent, error)

	// OpenEvent opens a handle of an event that another process made. The error matches ErrInvalid if the handle is not
	// one of this driver's, or was made by this process. If the event's maker is gone, the host driver returns the same
	// error, and CUDA may not notice.
	OpenEvent(handle []byte) (SharedEvent, error)
}

// A PageFile is the descriptor of a page and its size in bytes, for ImportPage.
type PageFile struct {
	Size int64
	File *os.File
}

// A SharedEvent is a point on a stream that streams of other processes can wait for. A Mark is valid in its own process
// only. Every process that has it open may record it and wait for it. It is safe for concurrent use; of two concurrent
// Records either may be the last.
//
// Any process may die at any time. A point that was reached stays reached. Work that the device had not done is never
// done: its memory is as the process left it, and the event does not report that. On the host device such a record
// counts as reached from the moment of the death, so that waiting for it ends. NVIDIA does not document this case: on
// CUDA a stream may then wait for ever, and a process that must continue has to detect the death by other means
// (mem/ipc uses the end of a connection).
//
// An event is valid as long as its maker has it open. After that, other processes may only close it: CUDA leaves every
// other call undefined.
type SharedEvent interface {
	// Handle returns a handle for OpenEvent in other processes of the same user. Each call returns the same handle, and
	// an event that was opened returns the handle that it was opened with.
	Handle() ([]byte, error)

	// Record makes the event the point after all work queued on s so far. The error matches ErrCapturing if s captures.
	Record(s Stream) error

	// Wait makes work queued on s from now on start after the last Record, in any process, before this call. It does
	// not block the caller. If the event was never recorded, Wait has no effect. The error matches ErrCapturing if s
	// captures.
	Wait(s Stream) error

	// Reached reports whether the work before the last Record is done. It returns true if the event was never recorded.
	// It never blocks.
	Reached() (bool, error)

	// Close closes the event in this process. Its records, and the waits of its streams, stay. Closing twice, or after
	// the device, is not an error. All other calls then fail with ErrClosed.
	Close() error
}
