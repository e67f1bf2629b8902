package engine

import (
	"errors"
	"fmt"
	"log/slog"
)

// ReserveCache takes size bytes of the current device's memory, rounded up, for this session alone, so that what
// UseCache calls finds them, however much others allocate. Caches are a stack: UseCache uses the one that was reserved
// last, FreeCache gives that one back, and Close those that are left.
//
// A cache is a child of an arena, or a block of any other allocator, as a whole on loan from it; within, it places
// blocks and compacts as an arena does. What it hands out passes through DeviceConfig.Wrap. The error matches
// mem.ErrNoMemory.
func (s *Session) ReserveCache(size int64) error {
	if err := s.enter("ReserveCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	if size <= 0 {
		panic(fmt.Sprintf("engine: ReserveCache of %d bytes: want some", size))
	}
	t := s.seat()
	var k *cache
	err := t.device.lanes.during(func() (err error) { k, err = t.device.caches.reserve(s, t.stream, size); return err })
	if err != nil {
		return fmt.Errorf("engine: device %d: ReserveCache: %w", t.device.index, err)
	}
	t.setCaches(append(t.caches, k))
	s.logCache("ReserveCache", k)
	return nil
}

// UseCache calls f with the cache that was reserved last on the current device as the source of what the session
// allocates there, on all its streams, copies of CopyTo included, and changes back however f ends. A request that does
// not fit into the cache fails. What f made may live on: a cache goes with its last block. Inside, FreeCache is refused
// for that cache. The error is f's, or says that no cache is reserved.
func (s *Session) UseCache(f func() error) error {
	if err := s.enter("UseCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	if len(t.caches) == 0 {
		return fmt.Errorf("engine: UseCache on device %d: no cache is reserved there", t.device.index)
	}
	using, events := t.using, s.events.mark()
	defer func() { t.use(using); s.events.dropFrom(events) }()
	t.use(len(t.caches))
	s.logCache("UseCache", t.cache())
	return f()
}

func (s *Session) logCache(call string, k *cache) {
	s.log(DebugDevices, call, slog.Int64("device", s.current.Load()), slog.Int64("bytes", k.Size()))
}

// FreeCache gives back the cache that was reserved last on the current device. The error says what is still on loan
// from it, and then it stays; or that there is none, or that UseCache uses it.
func (s *Session) FreeCache() error {
	if err := s.enter("FreeCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.seat()
	switch {
	case len(t.caches) == 0:
		return fmt.Errorf("engine: FreeCache on device %d: no cache is reserved there", t.device.index)
	case t.using == len(t.caches):
		return errors.New("engine: FreeCache inside the UseCache that uses it")
	}
	last := len(t.caches) - 1
	if err := t.device.caches.release(t.caches[last]); err != nil {
		return fmt.Errorf("engine: device %d: FreeCache: %w", t.device.index, err)
	}
	s.logCache("FreeCache", t.caches[last])
	t.setCaches(t.caches[:last])
	return nil
}
