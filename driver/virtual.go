package driver

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
