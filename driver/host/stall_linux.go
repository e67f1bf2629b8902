package host

import "sync"

// stall stops every stream between two pieces of work, and returns when all have stopped; they continue when release is
// called. The caller holds d.exporting.
//
// A stop is queued on all streams at the same moment, with all their locks held. Work queued before it waits only for
// work queued earlier, so every stream reaches its stop. The stop takes no tick.
func (d *device) stall() (release func()) {
	var moving sync.WaitGroup
	gate := make(chan struct{})
	stop := work{call: "Sharing.Export", do: func() error {
		moving.Done()
		<-gate
		return nil
	}}
	d.mu.Lock()
	streams := d.streams
	for _, s := range streams {
		s.mu.Lock()
	}
	for _, s := range streams {
		if s.closed {
			continue // its goroutine has ended, or will without more work
		}
		moving.Add(1)
		s.queue = append(s.queue, stop)
		s.filled.Signal()
	}
	for _, s := range streams {
		s.mu.Unlock()
	}
	d.mu.Unlock()
	moving.Wait()
	return func() { close(gate) }
}
