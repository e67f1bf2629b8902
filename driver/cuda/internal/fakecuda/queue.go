//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// A stream is a queue of work.
type stream struct {
	ctx      *primary
	handle   uint64 // 0 for the legacy default stream
	flags    uint32
	priority int32
	queue    []*work // not done
	last     *work   // the last one queued, done or not; nil before the first
	held     bool
	gone     bool // destroyed; work may be left
	capture  *capture
	seen     map[*stream]int // while capturing: how much of each stream's captured work precedes this stream's next
}

const streamNonBlocking = 1

// A work is one piece of a stream's work. It runs in the stream's order, and after the pieces in after.
type work struct {
	stream *stream
	after  []*work
	ready  func() bool // unless nil, a condition of another process that it also waits for
	run    func() Result
	cost   int64 // ns
	done   bool
	stamp  int64 // the clock when it was done, ns
}

// enqueue puts work at the end of a stream. Work of the legacy default stream also comes after the work of all blocking
// streams of its context, and their work after its work.
func (m *Machine) enqueue(s *stream, cost int64, run func() Result, after ...*work) *work {
	return m.push(&work{stream: s, run: run, cost: cost, after: after})
}

// push puts a piece of work at the end of its stream.
func (m *Machine) push(w *work) *work {
	s := w.stream
	switch {
	case s == s.ctx.null:
		for _, other := range s.ctx.streams {
			if other != s && other.flags&streamNonBlocking == 0 && len(other.queue) > 0 {
				w.after = append(w.after, other.last)
			}
		}
	case s.flags&streamNonBlocking == 0 && len(s.ctx.null.queue) > 0:
		w.after = append(w.after, s.ctx.null.last)
	}
	s.queue = append(s.queue, w)
	s.last = w
	if m.opts.Pace == AtOnce {
		m.force(w)
	}
	m.changed.Broadcast()
	return w
}

// advance does one piece of a stream's work, or of the work that it waits for. It returns false if a held stream
// prevents that, or nothing is left. In a broken context, work waits for nothing.
func (m *Machine) advance(s *stream) bool {
	if len(s.queue) == 0 || (s.held && s.ctx.broken == Success) {
		return false
	}
	for _, w := range s.queue[0].after {
		if !w.done {
			return m.advance(w.stream)
		}
	}
	if ready := s.queue[0].ready; ready != nil && s.ctx.broken == Success && !ready() {
		return false
	}
	m.do(s.queue[0])
	return true
}

// do does the first piece of a stream's work. In a broken context, it only removes it from the queue.
func (m *Machine) do(w *work) {
	s := w.stream
	s.queue = s.queue[1:]
	if p := s.ctx; p.broken == Success && w.run != nil {
		p.broken = w.run()
	}
	m.clock += w.cost
	w.done, w.stamp = true, m.clock
	w.run, w.after = nil, nil
	if s.gone && len(s.queue) == 0 {
		s.ctx.streams = slices.DeleteFunc(s.ctx.streams, func(x *stream) bool { return x == s })
	}
	m.changed.Broadcast()
}

// force does a piece of work and everything before it. It returns false if it cannot.
func (m *Machine) force(w *work) bool {
	for !w.done {
		if !m.advance(w.stream) {
			return false
		}
	}
	return true
}

// wait blocks until work is done, and returns the state of its context.
func (m *Machine) wait(w *work) Result {
	for w != nil && !w.done {
		if !m.force(w) {
			m.changed.Wait()
		}
		if m.closed {
			return Deinitialized
		}
	}
	if w == nil {
		return Success
	}
	return w.stream.ctx.broken
}

// drain waits for all work queued in a context so far.
func (m *Machine) drain(p *primary) Result {
	for _, s := range slices.Clone(p.streams) {
		if len(s.queue) > 0 {
			m.wait(s.last)
		}
	}
	if m.closed {
		return Deinitialized
	}
	return p.broken
}

// poll reports whether work is done. If not, at the pace Late, it then does one piece.
func (m *Machine) poll(w *work) Result {
	switch {
	case w == nil:
		return Success
	case w.stream.ctx.broken != Success:
		return w.stream.ctx.broken
	case w.done:
		return Success
	}
	if m.opts.Pace == Late {
		m.advance(w.stream)
	}
	return NotReady
}

// work is the goroutine of the pace Background.
func (m *Machine) work() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.closed {
		moved := false
		for _, d := range m.devices {
			for _, s := range slices.Clone(d.context.streams) {
				moved = m.advance(s) || moved
			}
		}
		if moved {
			m.mu.Unlock() // callers may take the lock between any two pieces
			m.mu.Lock()
			continue
		}
		m.changed.Wait()
	}
}

// Hold stops the work of the stream with a handle; 0 stands for the default streams of all devices. Calls that wait for
// the stream block until Release.
func (m *Machine) Hold(handle uint64) { m.setHeld(handle, true) }

// Release undoes Hold.
func (m *Machine) Release(handle uint64) { m.setHeld(handle, false) }

func (m *Machine) setHeld(handle uint64, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.named(handle) {
		s.held = held
		if m.opts.Pace == AtOnce && len(s.queue) > 0 {
			m.force(s.last)
		}
	}
	m.changed.Broadcast()
}

// Step does one piece of a stream's work, even if the stream is held. It returns false if no work can run.
func (m *Machine) Step(handle uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.named(handle)[0]
	if len(s.queue) == 0 || slices.ContainsFunc(s.queue[0].after, func(w *work) bool { return !w.done }) {
		return false
	}
	m.do(s.queue[0])
	return true
}

// Streams returns the handles of the existing streams except the default ones, oldest first.
func (m *Machine) Streams() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handlesOf(func(x any) bool { _, ok := x.(*stream); return ok })
}

// Queued returns how many pieces of work of a stream are not done; handle 0 stands for all default streams.
func (m *Machine) Queued(handle uint64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, s := range m.named(handle) {
		n += len(s.queue)
	}
	return n
}

// named returns the streams that a handle from a test stands for.
func (m *Machine) named(handle uint64) []*stream {
	if handle != 0 {
		s, ok := lookup[*stream](m, handle)
		if !ok {
			panic("fakecuda: no such stream")
		}
		return []*stream{s}
	}
	var null []*stream
	for _, d := range m.devices {
		if d.context.null != nil {
			null = append(null, d.context.null)
		}
	}
	if null == nil {
		panic("fakecuda: no context, so no default stream")
	}
	return null
}
