package paged_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// The first peer makes the allocator free its unused memory, also that of blocks freed just before: its pages may have
// been at several addresses.
func TestFirstPeerFreesUnusedMemory(t *testing.T) {
	r := simple(t, 8, paged.Config{})
	r.free(r.granules(2))
	r.must(r.a.AddPeer(r.dev))
	testkit.Equal(t, "reserved", r.a.PageStats().Reserved, 0)
}
