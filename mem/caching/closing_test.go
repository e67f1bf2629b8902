package caching_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// Close, while others allocate and free, either refuses or is the end: nothing is allocated by an allocator that was
// closed at the same time, whose segments would never be released.
func TestCloseWhileOthersAllocate(t *testing.T) {
	const rounds, pairs = 500, 2000
	dev := drivertest.OpenSim(t, 1<<30)
	var streams [3]driver.Stream
	for i := range streams {
		var err error
		if streams[i], err = dev.NewStream(driver.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		a, err := caching.New(dev, caching.Default())
		if err != nil {
			t.Fatal(err)
		}
		var workers, begun sync.WaitGroup
		begun.Add(len(streams))
		for _, s := range streams {
			workers.Go(func() {
				for i := range pairs {
					b, err := a.Alloc(s, 512)
					if i == 0 {
						begun.Done()
					}
					if errors.Is(err, caching.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					a.Free(b)
				}
			})
		}
		begun.Wait()
		for a.Close() != nil { // a block was live
		}
		workers.Wait()
		if free, total, err := dev.Available(); err != nil || free != total {
			t.Fatalf("round %d: after Close %d of %d bytes are free, %v", round, free, total, err)
		}
	}
}
