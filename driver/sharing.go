package driver

import "os"

// Sharing lets other processes of the same machine use memory of this device (CUDA calls it IPC). Memory stays
// allocated until every process has given it up, so either end may die first. Package mem/ipc counts and hands over;
// this is what it stands on. Safe for concurrent use.
//
// Two ways, as CUDA has them. A handle is a few bytes that any process of the same user may open for as long as the
// exporter lives, and it covers the whole of what Alloc returned. A page's descriptor is an open file: only a process
// that it was sent to can use it.
type Sharing interface {
	// Export returns a handle of the whole allocation at p, which Alloc returned. It may stall the whole device. The
	// error matches ErrUnsupported where only pages can be shared.
	Export(p Pointer) ([]byte, error)

	// Import opens a handle from another process and returns where the allocation lies here, and its size. The error
	// matches ErrInvalid if the handle is not one of this driver's or its exporter is gone. Of a block that its
	// exporter has freed it may: whether a handle outlives the block is the device's affair (CUDA's legacy handles open
	// freed memory for as long as some process keeps it), so who hands handles out must keep their blocks.
	Import(handle []byte) (Pointer, int64, error)

	// Forget closes what Import returned, after the work queued on this device is done.
	Forget(p Pointer) error

	// CreateShared is VirtualMemory.Create for a page that ExportPage may be asked for.
	CreateShared(size int64) (Page, error)

	// ExportPage returns a descriptor of a page made by CreateShared, which the caller closes. It is not inherited by
	// programs that this one starts.
	ExportPage(Page) (*os.File, error)

	// ImportPage makes a page of a descriptor from another process, which the caller may close afterwards. The page is
	// mapped and dropped like one of this process. Size is the page's, which the exporter must tell. The error matches
	// ErrInvalid if the file is not one of this driver's pages or is shorter.
	ImportPage(f *os.File, size int64) (Page, error)

	// NewEvent makes an event that other processes can open. The error matches ErrUnsupported if the device cannot
	// share events.
	NewEvent() (SharedEvent, error)

	// OpenEvent opens a handle of an event that another process made. The error matches ErrInvalid if the handle is not
	// one of this driver's or of this very process. If the event's maker is gone, the host refuses likewise, and CUDA
	// may not notice.
	OpenEvent(handle []byte) (SharedEvent, error)
}

// A PageFile is the descriptor of a page, and its size in bytes: what ImportPage takes.
type PageFile struct {
	Size int64
	File *os.File
}

// A SharedEvent is a point on a stream that streams of other processes can wait for: a Mark is of its own process only.
// Every process that has it open may record it and wait for it. Safe for concurrent use; of two Records at a
// time either may be the last.
//
// Any process may die at any time. What it had recorded, and the device had done, stays reached. What the device had
// not done never will be: the memory of that work is as the process left it, and the event does not tell. On the host
// device such a record counts as reached from the moment of the death, so that waiting for it ends. NVIDIA says nothing
// of it: on CUDA a stream may then wait for ever, and who must go on notices by other means (mem/ipc: the end of a
// connection).
//
// An event lives for as long as its maker has it open. After that the others only close it: CUDA leaves all else
// undefined.
type SharedEvent interface {
	// Handle returns what OpenEvent takes in other processes of the same user. It is the same each time, and an event
	// that was opened has the handle that it was opened with.
	Handle() ([]byte, error)

	// Record makes the event the point after all work queued on s so far. The error matches ErrCapturing if s captures.
	Record(s Stream) error

	// Wait makes work queued on s from now on start after what was last recorded, in any process, when Wait is called.
	// It does not block the caller. Of an event never recorded it waits for nothing. The error matches ErrCapturing if
	// s captures.
	Wait(s Stream) error

	// Reached reports whether the work before what was last recorded is done: true if nothing was. It never blocks.
	Reached() (bool, error)

	// Close gives this process's hold up; what it recorded, and what its streams were told to wait for, stays. Closing
	// twice is not an error, nor is closing after the device. All other calls then fail with ErrClosed.
	Close() error
}
