package arena

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// A record stands for one block after another, the one that was freed last first, so in a loop one record stands for
// all: after four billion of them its blocks are still blocks of the arena.
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
	a.blocks[0].gen = math.MaxUint32 - 1
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
