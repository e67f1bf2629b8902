package arena_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

func Example() {
	dev := sim.New(sim.Options{Total: 64 << 20})
	defer dev.Close()
	s := dev.DefaultStream()
	a, err := arena.New(dev, arena.Config{Size: 4 << 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	hole, _ := a.Alloc(s, 1024)
	tensor := &holder{}
	tensor.block, _ = a.Alloc(s, 2000)
	a.Movable(tensor.block, tensor)
	a.Free(hole)

	// 1024 bytes at the front and 1024 at the end: together they are enough.
	big, err := a.Alloc(s, 2000)
	fmt.Println(big.Size, err, a.Moves().Blocks)
	a.Free(big)
	a.Free(tensor.block)
	fmt.Println(a.Close())
	// Output:
	// moved
	// 2048 <nil> 1
	// <nil>
}

// A holder keeps a block's address.
type holder struct{ block mem.Block }

func (h *holder) BeginMove() ([]driver.Stream, bool) { return nil, true }

func (h *holder) EndMove(b mem.Block, s driver.Stream) {
	if s != nil {
		fmt.Println("moved")
	}
	h.block = b
}
