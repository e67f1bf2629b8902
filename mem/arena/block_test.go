package arena

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// A record serves one block after another, and the last one freed is reused first, so a loop uses a single record:
// after four billion blocks the arena still accepts the record's blocks.
func TestGenerationsStartAgain(t *testing.T) {
	dev := drivertest.OpenSim(t, 16<<20)
	a, err := New(dev, Config{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := dev.DefaultStream()
	alloc := func() uint64 {
		b, err := a.Alloc(s, 512)
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
		return b.Tag
	}
	alloc()
	a.blocks[0].generation = math.MaxUint32 - 1
	for range 3 {
		if alloc() == 0 {
			t.Error("a block has the tag of none")
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
}
