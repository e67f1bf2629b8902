package driver

// Visible is device memory that Go code can reach by itself: the host's own. Safe for concurrent use.
type Visible interface {
	// Bytes returns the size bytes at p, which must lie in one block, or in mapped pages of one reservation; the error
	// matches ErrInvalid if they do not. The slice is the memory itself, not a copy: it is good until the memory is freed
	// or unmapped, it must not be touched while queued work may write there (or written while work may read), and the
	// garbage collector neither frees nor moves what it shows.
	Bytes(p Pointer, size int64) ([]byte, error)
}
