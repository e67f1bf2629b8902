package driver

// Visible is device memory that Go code can access: memory of the host. It is safe for concurrent use.
type Visible interface {
	// Bytes returns the size bytes at p, which must lie in one block, or in mapped pages of one reservation; the error
	// matches ErrInvalid if they do not. The slice is the memory itself, not a copy, and is valid until the memory is
	// freed or unmapped. It must not be read or written while queued work may write there, nor written while queued
	// work may read. The garbage collector neither frees nor moves the memory.
	Bytes(p Pointer, size int64) ([]byte, error)
}
