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
	last     *work   // queued, done or not; nil before the first
	held     bool
	gone     bool // destroyed, though work may be left
	capture  *capture
	seen     map[*stream]int // while capturing: how much of each stream's captured work comes before what follows
}

const streamNonBlocking = 1

// Work is something that a device does in the order of a stream, after other pieces.
type work struct {
	stream *stream
	after  []*work
	ready  func() bool // unless nil, what it also waits for: something of another process
	run    func() Result
	cost   int64 // ns
	done   bool
	stamp  int64 // the clock when it was done, ns
}

// enqueue puts work at the end of a stream, after what the legacy default stream implies: its work comes after that of
// all blocking streams of its context, and theirs after its.
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

// advance does one piece of a stream's work, or of what that waits for. It returns false if a held stream is in the way
// or nothing is left. Nothing holds a broken context up.
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

// do does the first work of a stream. In a context that is broken it only takes it off.
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

// force does work and all that comes before it, or returns false.
func (m *Machine) force(w *work) bool {
	for !w.done {
		if !m.advance(w.stream) {
			return false
		}
	}
	return true
}

// wait blocks until work is done, and returns what has become of its context.
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

// poll says whether work is done. If not, it does a piece in the pace Late, for the next time.
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
			m.mu.Unlock() // callers come in between any two pieces
			m.mu.Lock()
			continue
		}
		m.changed.Wait()
	}
}

// Hold stops the work of a stream, by its handle; 0 stands for the default streams of all devices. What waits for it
// blocks until Release.
func (m *Machine) Hold(handle uint64) { m.setHeld(handle, true) }

// Release lets a stream go on.
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

// Step does one piece of work of a stream, held or not, and returns false if it has none that could run.
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

// Streams returns the handles of the streams that exist, oldest first, but for the default ones.
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

// named finds streams for tests, which know what they name.
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
