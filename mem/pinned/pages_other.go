//go:build !linux

package pinned

// canMap is false where pages for Register are not mapped: AllocHost serves instead.
const canMap = false

func mapPages(int64) ([]byte, error) { panic("pinned: no pages to map on this system") }
func unmapPages([]byte) error        { return nil }
