package sim

// occupiedMost is how many pieces Occupy leaves in a queue.
const occupiedMost = 1 << 14

// Occupy queues work of unknown length that touches no memory: it completes when a call waits for it (Sync, CopyOut,
// Close, Free of anything), or when Advance or Complete say so, and never by itself, whatever Options.Completion is. So
// the replay of a program without its work shows the worst case: work for which the program must wait is never done
// before. Tally.Stalls counts such waits.
//
// It is not a Call: it costs nothing and is not counted. Work that is queued right behind work of the same kind is one
// with it, so a queue grows by a piece for each mark or other work in between, and of more than 16,384 pieces the
// oldest complete. Usually it only reads a flag, without the device's lock. On a closed stream it does nothing.
func (s *Stream) Occupy() {
	if !s.timeline.occupied.Load() {
		s.occupy()
	}
}

func (s *Stream) occupy() {
	d, tl := s.d, s.timeline
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed || d.closed || tl.occupied.Load() {
		return
	}
	d.submit(tl, work{call: callOccupy})
	tl.occupied.Store(true)
	if tl.queued > occupiedMost {
		d.drain(tl, tl.queued-occupiedMost)
	}
}
