//go:build !linux

package numa

// Bind fails with ErrSystem: see Linux's.
func Bind([]byte, int, bool) error { return ErrSystem }

// Where fails with ErrSystem: see Linux's.
func Where([]byte) ([]int, error) { return nil, ErrSystem }
