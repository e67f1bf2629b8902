// Oom records its allocations and writes a report when memory runs out, for ashlar explain: see docs/oom.md.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim" // or driver/cuda
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// observed returns an allocator that writes a report to a directory when a request finds no room.
func observed(a mem.Allocator, dir string) mem.Allocator {
	recorder := trace.NewRecorder(trace.RecorderOptions{
		Max:     1_000_000, // the newest entries, of 40 bytes each
		Context: trace.ContextAll,
		Clock:   func() int64 { return time.Now().UnixMicro() },
	})
	return snapshot.ReportOOM(recorder.Attach(a), snapshot.ReportOptions{
		Dir:  dir,
		Live: snapshot.Live{Recorder: recorder},
		Done: func(path string, err error) {
			if err != nil {
				log.Printf("no report of running out of memory: %v", err)
				return
			}
			log.Printf("out of memory: ashlar explain %s", path)
		},
	})
}

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	dev, err := driver.Open("sim:total=1GiB")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(serve(observed(a, dir), dev.DefaultStream()))
}

// serve keeps the results of all requests until there is no room.
func serve(a mem.Allocator, s driver.Stream) error {
	var results []mem.Block
	for {
		scratch, err := a.Alloc(s, 50<<20)
		if err != nil {
			return err
		}
		result, err := a.Alloc(s, 30<<20)
		if err != nil {
			return fmt.Errorf("after %d results: %w", len(results), err)
		}
		a.Free(scratch)
		results = append(results, result)
	}
}
