package engine

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Peers can use the memory that a device's allocator maps page by page.
func TestDefect12_ExpandableMemoryOfAnEngineIsItsPeers(t *testing.T) {
	settings := "caching:expandable_segments:True"
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{
		{Spec: "host:total=256MiB", Allocator: settings}, {Spec: "host:total=256MiB,ordinal=1", Allocator: settings},
	}})
	testkit.Must(t, err)
	reader, owner := e.Place(0).Device(), e.Place(1).Device()
	block, err := e.Place(1).Allocator().Alloc(owner.DefaultStream(), 30<<20)
	testkit.Must(t, err)
	testkit.Must(t, owner.DefaultStream().Fill(block.Ptr, 7, block.Size))
	testkit.Must(t, owner.DefaultStream().Sync(t.Context()))
	var got [1]byte
	testkit.Must(t, reader.DefaultStream().CopyOut(got[:], block.Ptr+25<<20))
	if got[0] != 7 {
		t.Errorf("device 0 sees %d in the memory of device 1, want 7", got[0])
	}
	e.Place(1).Allocator().Free(block)
	testkit.Must(t, e.Close(t.Context()))
}
