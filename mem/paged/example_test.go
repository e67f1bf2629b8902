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

// While a model sleeps, its memory serves others. Its blocks keep their addresses and their contents.
func ExampleAllocator_Pause() {
	dev := sim.New(sim.Options{Total: 64 << 20})
	defer dev.Close()
	a, err := paged.New(dev, paged.Config{})
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	weights, err := a.Alloc(s, 32<<20)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Fill(weights.Ptr, 7, weights.Size); err != nil {
		log.Fatal(err)
	}
	if err := a.Pause(paged.PauseOptions{}); err != nil {
		log.Fatal(err)
	}
	free, _, _ := dev.Available()
	fmt.Printf("%d MiB are free while %d MiB are in host memory\n", free>>20, a.PageStats().Host>>20)
	if err := a.Resume(); err != nil {
		log.Fatal(err)
	}
	var got [1]byte
	if err := s.CopyOut(got[:], weights.Ptr+1000); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a byte of the weights:", got[0])
	// Output:
	// 64 MiB are free while 32 MiB are in host memory
	// a byte of the weights: 7
}
