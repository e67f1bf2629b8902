package arena_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

// A range of addresses costs nothing before there is memory behind it, nor does a request that has no room.
func TestDefect02_AddressesTakeNoMemory(t *testing.T) {
	const size = 1 << 46
	dev := sim.New(sim.Options{Total: 64 << 20, Granularity: 512, Unchecked: true})
	before := testkit.Allocated()
	a := newArena(t, dev, arena.Config{Size: size, Page: 4096})
	b, err := a.Alloc(dev.DefaultStream(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Alloc(dev.DefaultStream(), size/2); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a request of %d bytes: %v", int64(size/2), err)
	}
	a.Free(b)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if n := testkit.Allocated() - before; n > 64<<20 {
		t.Errorf("%d bytes of Go's memory were allocated", n)
	}
}
