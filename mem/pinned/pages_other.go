//go:build !linux

package pinned

// canMap is false where the allocator cannot map pages for Register, and uses AllocHost.
const canMap = false

func mapPages(int64) ([]byte, error) { panic("pinned: no pages to map on this system") }
func unmapPages([]byte) error        { return nil }
