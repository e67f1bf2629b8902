// Allocator uses a caching allocator on a simulated device until it runs out of memory, and prints the reason.
package main

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim" // or driver/host, driver/cuda: real memory
	"github.com/ashlar-go/ashlar/mem/caching"
)

func main() {
	dev, err := driver.Open("sim:total=1GiB")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	settings, _, err := caching.ParseConfig("expandable_segments:True,limit:600MiB") // as in PYTORCH_CUDA_ALLOC_CONF
	if err != nil {
		log.Fatal(err)
	}
	a, err := caching.New(dev, settings)
	if err != nil {
		log.Fatal(err)
	}
	stream := dev.DefaultStream()
	for _, size := range []int64{300 << 20, 200 << 20, 500 << 20, 700 << 20} {
		block, err := a.Alloc(stream, size)
		if err != nil {
			fmt.Println(err) // lists the free memory, what prevents its use, and the remedies
			break
		}
		fmt.Printf("%d MiB at %#x, %d MiB reserved\n", block.Size>>20, block.Ptr,
			a.Stats().ReservedBytes.All.Current>>20)
		a.Free(block) // immediately: by the stream's order queued work may still use the block
	}
}
