package snapshot_test

import (
	"bytes"
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Writes the content of a running allocator, and its history, as a file for https://pytorch.org/memory_viz.
func ExampleOf() {
	dev := sim.New(sim.Options{})
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := trace.NewRecorder(trace.RecorderOptions{Max: 100_000})
	recorder.Attach(a)
	if _, err := a.Alloc(dev.DefaultStream(), 3<<20); err != nil {
		fmt.Println(err)
		return
	}
	s, err := snapshot.Of(a, snapshot.Live{Recorder: recorder})
	if err != nil {
		fmt.Println(err)
		return
	}
	var file bytes.Buffer
	if err := s.WritePickle(&file); err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range s.Traces[0].Events {
		fmt.Println(e.Action, e.Size)
	}
	// Output:
	// segment_alloc 20971520
	// alloc 3145728
}
