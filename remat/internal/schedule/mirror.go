package schedule

// A mirror predicts when a storage is read next. Programs that compute gradients read the results of their forward pass
// in the reverse order. So once a program reads results that are old, those that were used just before them are read
// next, and the oldest last.
type mirror struct {
	at   int64 // when the old storage that was read last had been used before
	turn int64 // when the program began to read old storages
	last int64 // when it read one last
}

const (
	oldShare  = 0.2 // of the time so far that a storage was not used, if it is old
	keepShare = 0.1 // of the time so far after which a mirror ends in which nothing old is read
	unread    = 2   // the distance of what the program does not read again, as a multiple of the time so far
)

// read notes that the program is going to read a storage.
func (m *mirror) read(now int64, s *storage) {
	if s.fixed || float64(now-s.used) < oldShare*float64(now) || s.used > m.turn && m.active(now) {
		return
	}
	if !m.active(now) {
		m.turn = now
	}
	m.at, m.last = s.used, now
}

func (m *mirror) active(now int64) bool {
	return m.last > 0 && float64(now-m.last) < keepShare*float64(now)
}

// distance returns the time until a storage is read next, as a guess: it is at least 1.
func (m *mirror) distance(now int64, s *storage) float64 {
	if s.wanted == 0 {
		return float64(max(now*unread, 1))
	}
	d := now - s.used
	if s.used < m.turn && m.active(now) {
		d = m.at - s.used
		if d < 0 {
			d = -d
		}
	}
	return float64(max(d, 1))
}
