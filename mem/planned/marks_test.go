package planned

import "fmt"

// CheckMarks checks that the slots that end later and are not live count as free, so that requests there need no mutex.
// A free at the same time as a jump may leave an older mark: then one request takes the mutex.
func (a *Allocator) CheckMarks() error {
	for i := range a.streams {
		l := &a.streams[i]
		l.lock()
		err := l.wrongMark()
		l.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *streamAllocator) wrongMark() error {
	for k := range l.allPlanLive(l.pos) {
		m := l.slots[k].freed.Load()
		if m&1 == 0 && !l.live(int(k)) && m < l.freedMark(int(k)) {
			return fmt.Errorf("slot %d is not live, and its mark is of generation %d: want %d", k, m>>1,
				l.freedMark(int(k))>>1)
		}
	}
	return nil
}
