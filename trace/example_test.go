package trace_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/trace"
)

// Any allocator can be recorded, and recording turned off and on.
func ExampleRecorder_Attach() {
	dev := sim.New(sim.Options{})
	region, err := arena.New(dev, arena.Config{Size: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := trace.NewRecorder(trace.RecorderOptions{Max: 100_000, Context: trace.ContextAlloc})
	a := r.Attach(region)
	r.SetMetadata("step 1")
	b, err := a.Alloc(dev.DefaultStream(), 3<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	a.Free(b)
	r.Stop()
	t := r.Trace()
	for _, e := range t.Events {
		where := t.Stacks.Frames[t.Stacks.At(e.Stack)[0]]
		fmt.Println(e.Action, e.Size, t.Metadata[e.Metadata], where.Name)
	}
	// Output:
	// alloc 3145728 step 1 github.com/ashlar-go/ashlar/trace_test.ExampleRecorder_Attach
	// free_requested 3145728 step 1 github.com/ashlar-go/ashlar/trace_test.ExampleRecorder_Attach
	// free_completed 3145728 step 1 github.com/ashlar-go/ashlar/trace_test.ExampleRecorder_Attach
}

// A clock that is read at each event costs more than the event itself. One that the program sets a thousand times a second
// costs an atomic load, and its times are some milliseconds old at most, as long as its goroutine gets to run.
func ExampleRecorderOptions_clock() {
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case t := <-tick.C:
				now.Store(t.UnixMicro())
			case <-stop:
				return
			}
		}
	}()
	dev := sim.New(sim.Options{})
	r := trace.NewRecorder(trace.RecorderOptions{Clock: now.Load})
	a := r.Attach(direct.New(dev, direct.Config{}))
	b, err := a.Alloc(dev.DefaultStream(), 1<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	a.Free(b)
	for _, e := range r.Trace().Events {
		fmt.Println(e.Action, e.TimeUS > 0)
	}
	// Output:
	// segment_alloc true
	// alloc true
	// free_requested true
	// free_completed true
	// segment_free true
}
