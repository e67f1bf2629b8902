package replay_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// Compare runs the same work on several allocators, here on simulated devices.
func ExampleCompare() {
	script, err := trace.ParseScript("alloc a 30MiB\nalloc b 20MiB\nfree a\nalloc c 40MiB\n")
	if err != nil {
		log.Fatal(err)
	}
	work, err := replay.ScriptWork(script)
	if err != nil {
		log.Fatal(err)
	}
	result, err := replay.Compare(work, replay.CompareOptions{Specs: []string{"caching", "paged"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range result.Rows {
		fmt.Printf("%s reserves %d MiB for %d MiB\n", row.Allocator, row.ReservedPeak>>20, row.RequestedPeak>>20)
	}
	// Output:
	// caching reserves 90 MiB for 60 MiB
	// paged reserves 60 MiB for 60 MiB
}

// SmallestLimit searches for the minimum memory that an allocator needs for some work.
func ExampleSmallestLimit() {
	script, err := trace.ParseScript("alloc a 30MiB\nalloc b 20MiB\nfree a\nalloc c 40MiB\n")
	if err != nil {
		log.Fatal(err)
	}
	work, err := replay.ScriptWork(script)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := replay.SmallestLimit(work, "caching", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(limit>>20, "MiB")
	// Output: 60 MiB
}
