package host

import "sync"

// stall stops every stream between two pieces of work, and returns when all stand still; they go on when release is
// called. The calling goroutine holds d.exporting.
//
// All queues are cut at one instant, with all their locks held. Work queued before the cut waits only for work queued
// before it, so that every stream gets as far as its cut. The stop takes no tick.
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
