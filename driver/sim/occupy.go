package sim

// occupiedMost is the maximum number of pieces of Occupy in a queue.
const occupiedMost = 1 << 14

// Occupy queues work of unknown length that touches no memory. It never completes by itself, whatever
// Options.Completion is: only a call that waits for it (Sync, CopyOut, Close, any Free), Advance or Complete completes
// it. So the replay of a program without its work shows the worst case, in which work is never done before the program
// waits for it. Tally.Stalls counts such waits.
//
// It is not a Call: it costs nothing and is not counted. Work queued directly after work of the same kind is merged
// with it, so a queue grows by one piece for each mark or other work in between. If there are more than 16,384 pieces,
// the oldest ones complete. Usually it only reads a flag, without the device's lock. On a closed stream it does
// nothing.
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
