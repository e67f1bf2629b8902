package ashlar

import (
	"errors"
	"fmt"
)

// ReserveCache takes size bytes of the current device's memory for this session alone, so that what UseCache calls finds
// them whatever others allocate meanwhile. Caches are a stack: UseCache uses the one that was reserved last, FreeCache gives
// that one back, and Close those that are left. A cache counts against the device's MemoryLimit as a whole. The error matches
// mem.ErrNoMemory, or driver.ErrUnsupported if the device's allocator cannot be divided; those of mem/arena can.
func (s *Session) ReserveCache(size int64) error {
	if err := s.enter("ReserveCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	if size <= 0 {
		panic(fmt.Sprintf("ashlar: ReserveCache of %d bytes: want some", size))
	}
	t := s.seat()
	c, err := t.device.reserve(size)
	if err != nil {
		return err
	}
	t.caches = append(t.caches, c)
	return nil
}

// UseCache calls f with the cache that was reserved last on the current device as the source of what the session allocates
// there, copies of CopyTo included, and changes back however f ends. A request that does not fit into the cache fails. What f
// made may live on, until FreeCache. Inside, FreeCache is refused for that cache. The error is f's, or says that no cache is reserved.
func (s *Session) UseCache(f func() error) error {
	if err := s.enter("UseCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	if len(t.caches) == 0 {
		return fmt.Errorf("ashlar: UseCache on device %d: no cache is reserved there", t.device.index)
	}
	using, events := t.using, s.events.mark()
	defer func() { t.use(using); s.events.dropFrom(events) }()
	t.use(len(t.caches))
	return f()
}

// use leads the session's requests to the nth cache, counted from 1; 0 is the device's allocator.
func (t *seat) use(n int) {
	t.using = n
	if n == 0 {
		t.device.lanes.lead(t.stream, nil, &t.usage)
		return
	}
	t.device.lanes.lead(t.stream, t.caches[n-1], &t.usage)
}

// FreeCache gives back the cache that was reserved last on the current device. The error says what is still on loan from it, and
// then it stays; or that there is none, or that UseCache uses it.
func (s *Session) FreeCache() error {
	if err := s.enter("FreeCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	switch {
	case len(t.caches) == 0:
		return fmt.Errorf("ashlar: FreeCache on device %d: no cache is reserved there", t.device.index)
	case t.using == len(t.caches):
		return errors.New("ashlar: FreeCache inside the UseCache that uses it")
	}
	last := len(t.caches) - 1
	if err := t.device.free(t.caches[last]); err != nil {
		return err
	}
	t.caches = t.caches[:last]
	return nil
}
