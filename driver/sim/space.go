package sim

// A space assigns addresses, first fit: the lowest hole that has room. Its holes are disjoint and no two of them touch.
// If all sizes and the start of the range are multiples of an alignment, so are the addresses.
type space struct {
	holes index[struct{}]
}

// take returns the lowest size addresses that are free.
func (s *space) take(size uint64) (start uint64, ok bool) {
	for b, largest := range s.holes.sizes {
		if largest < size {
			continue
		}
		for i := range *s.holes.blocks[b] {
			hole := &(*s.holes.blocks[b])[i]
			if hole.size < size {
				continue
			}
			start = hole.start
			if p := (pos{b, i}); hole.size == size {
				s.holes.remove(p)
			} else {
				s.holes.resize(p, start+size, hole.size-size)
			}
			return start, true
		}
		s.holes.measure(b) // the recorded largest size was only a bound
	}
	return 0, false
}

// give adds addresses: new ones, or those that take returned.
func (s *space) give(start, size uint64) {
	end := start + size
	left := s.holes.floor(start)
	joinsLeft := s.holes.valid(left) && s.holes.at(left).end() == start
	right := s.holes.first()
	if s.holes.valid(left) {
		right = s.holes.next(left)
	}
	joinsRight := s.holes.valid(right) && s.holes.at(right).start == end
	switch {
	case joinsLeft && joinsRight:
		from, to := s.holes.at(left).start, s.holes.at(right).end()
		s.holes.remove(right)
		s.holes.resize(left, from, to-from)
	case joinsLeft:
		from := s.holes.at(left).start
		s.holes.resize(left, from, end-from)
	case joinsRight:
		s.holes.resize(right, start, s.holes.at(right).end()-start)
	default:
		s.holes.insert(start, size, struct{}{})
	}
}
