package paged_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Free pages can serve any request, wherever they are: here the pages of every second block become one large block.
func Example() {
	dev := sim.New(sim.Options{Total: 64 << 20})
	defer dev.Close()
	a, err := paged.New(dev, paged.Config{Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	var blocks [16]mem.Block
	for i := range blocks {
		if blocks[i], err = a.Alloc(s, 2<<20); err != nil {
			log.Fatal(err)
		}
	}
	for i := 0; i < len(blocks); i += 2 {
		a.Free(blocks[i])
	}
	large, err := a.Alloc(s, 16<<20)
	if err != nil {
		log.Fatal(err)
	}
	f := a.PageStats()
	fmt.Printf("%d MiB in one block, of %d MiB reserved\n", large.Size>>20, f.Reserved>>20)
	// Output:
	// 16 MiB in one block, of 32 MiB reserved
}
