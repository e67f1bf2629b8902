package replay

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
)

// A scriptDevice is the device of a script's allocator. All its streams are script streams; abilities that take the
// device's own are left out.
type scriptDevice struct {
	driver.Device
	first *scriptStream
}

func (d scriptDevice) DefaultStream() driver.Stream { return d.first }

func (d scriptDevice) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	s, err := d.Device.NewStream(o)
	if err != nil {
		return nil, err
	}
	return newScriptStream(s), nil
}

func (scriptDevice) Graphs() driver.Graphs   { return nil }
func (scriptDevice) Kernels() driver.Kernels { return nil }

// A scriptStream is a device's stream whose marks a script controls. It has its own queue of work items, which are held
// until a sync, and of waits for other streams. Memory operations go directly to the device's stream.
//
// Invariant: done + len(queue) is the tick of the last queued item. All streams of a run are used by one goroutine.
type scriptStream struct {
	driver.Stream
	done  uint64
	queue []scriptWork
}

// scriptWork is held work, or a wait for the work that another stream has queued up to tick.
type scriptWork struct {
	other *scriptStream
	side  *deferredfree.Stream // of a pending free
	tick  uint64
}

func (w scriptWork) isWait() bool { return w.other != nil || w.side != nil }

// force completes what a wait waits for.
func (w scriptWork) force() {
	switch {
	case w.other != nil:
		w.other.force(w.tick)
	case w.side != nil:
		w.side.Complete(w.tick)
	}
}

// reached reports whether what a wait of s waits for is done.
func (w scriptWork) reached(s *scriptStream) bool {
	switch {
	case w.side != nil:
		return w.side.Done.Load() >= w.tick
	case w.other != s && w.other.done < w.tick:
		w.other.advance()
		return w.other.done >= w.tick
	}
	return true
}

func newScriptStream(s driver.Stream) *scriptStream { return &scriptStream{Stream: s} }

// hold queues work that stays undone until the stream is synced.
func (s *scriptStream) hold() { s.queue = append(s.queue, scriptWork{}) }

// follow queues a wait for the work that other has queued so far.
func (s *scriptStream) follow(other *scriptStream) {
	s.queue = append(s.queue, scriptWork{other: other, tick: other.done + uint64(len(other.queue))})
}

// advance removes completed waits from the front of the queue. It recurses to the stream of a wait that is not
// complete. The recursion ends because the awaited work was queued before the wait.
func (s *scriptStream) advance() {
	for len(s.queue) > 0 && s.queue[0].isWait() && s.queue[0].reached(s) {
		s.done++
		s.queue = s.queue[1:]
	}
}

// force completes all work up to tick, and before it the work that it waits for.
func (s *scriptStream) force(tick uint64) {
	for s.done < tick {
		w := s.queue[0]
		s.done++
		s.queue = s.queue[1:]
		w.force()
	}
}

// Mark implements driver.Stream.
func (s *scriptStream) Mark() (driver.Mark, error) {
	return driver.Mark{Stream: s.ID(), Tick: s.done + uint64(len(s.queue))}, nil
}

// Reached implements driver.Stream.
func (s *scriptStream) Reached(m driver.Mark) (bool, error) {
	s.advance()
	return m.Tick <= s.done, nil
}

// WaitFor implements driver.Stream.
func (s *scriptStream) WaitFor(other driver.Stream, m driver.Mark) error {
	if side, ok := other.(*deferredfree.Stream); ok {
		s.queue = append(s.queue, scriptWork{side: side, tick: m.Tick})
		return nil
	}
	o, ok := other.(*scriptStream)
	if !ok {
		return s.Stream.WaitFor(other, m)
	}
	s.queue = append(s.queue, scriptWork{other: o, tick: m.Tick})
	mark, err := o.Stream.Mark()
	if err != nil {
		return err
	}
	return s.Stream.WaitFor(o.Stream, mark)
}

// Sync implements driver.Stream: it completes held work at once, because the script continues only when the allocator
// returns.
func (s *scriptStream) Sync(ctx context.Context) error {
	s.force(s.done + uint64(len(s.queue)))
	return s.Stream.Sync(ctx)
}
