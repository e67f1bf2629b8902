package planned

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// A request advances the position first and then stores its bytes: counted waits for them, and marks them.
func TestCountedWaitsForTheBytes(t *testing.T) {
	l := &streamAllocator{requested: make([]atomic.Int64, 1)}
	begun, counted := make(chan struct{}), make(chan int64, 1)
	go func() {
		close(begun)
		counted <- l.counted(0)
	}()
	<-begun
	for range 100 {
		runtime.Gosched()
	}
	select {
	case n := <-counted:
		t.Fatalf("%d bytes are counted before any were stored", n)
	default:
	}
	l.requested[0].Store(700)
	if n := <-counted; n != 700 || l.requested[0].Load() != -700 {
		t.Errorf("%d bytes are counted, and %d remain; want 700 and -700", n, l.requested[0].Load())
	}
}
