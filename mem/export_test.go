package mem

import (
	"slices"
	"testing"
)

// RegisterInTest lets a test register allocators: they are taken back when it ends.
func RegisterInTest(t testing.TB) {
	registryMu.Lock()
	defer registryMu.Unlock()
	before := slices.Clone(registry)
	t.Cleanup(func() {
		registryMu.Lock()
		defer registryMu.Unlock()
		registry = before
	})
}
