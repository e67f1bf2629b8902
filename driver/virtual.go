package driver

// VirtualMemory reserves addresses and maps memory to them page by page. An address is unreserved, reserved or mapped.
// It is safe for concurrent use.
type VirtualMemory interface {
	// Reserve reserves size bytes of addresses, a multiple of the granularity, without memory.
	Reserve(size int64) (Pointer, error)
	// Release releases a whole reservation, in which no page may be mapped.
	Release(p Pointer, size int64) error

	// Create makes a page of physical memory, of a size that is a multiple of the granularity, mapped nowhere. The
	// error matches ErrNoMemory if there is no room.
	Create(size int64) (Page, error)
	// Drop releases the page. Its memory returns to the device once it is mapped nowhere.
	Drop(Page) error

	// Map puts pages at consecutive addresses from p, inside one reservation, and gives the device access to them. A
	// page may be mapped at several addresses. Either all are mapped or none.
	Map(p Pointer, pages ...Page) error
	// Unmap unmaps the whole pages at the addresses [p, p+size). It does not wait for queued work: synchronise first.
	Unmap(p Pointer, size int64) error
}

// A Page is physical memory behind virtual addresses: an owned handle from Create until Drop.
type Page struct {
	ID   uint64
	Size int64
}
