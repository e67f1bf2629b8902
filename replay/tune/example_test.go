package tune_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
	"github.com/ashlar-go/ashlar/trace"
)

// Search finds the setting of PyTorch's allocator that needs the least memory for some work.
func ExampleSearch() {
	script, err := trace.ParseScript("alloc a 100MiB\nfree a\nalloc b 30MiB\nalloc c 80MiB\n")
	if err != nil {
		log.Fatal(err)
	}
	work, err := replay.ScriptWork(script)
	if err != nil {
		log.Fatal(err)
	}
	result, err := tune.Search([]*replay.Work{work}, tune.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("PyTorch's defaults need %d MiB\n", result.Recorded.Needs[0].Bytes>>20)
	fmt.Printf("%s needs %d MiB\n", result.Best.Settings, result.Best.Needs[0].Bytes>>20)
	// Output:
	// PyTorch's defaults need 180 MiB
	// max_split_size_mb:64 needs 110 MiB
}
