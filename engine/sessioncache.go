package engine

import (
	"errors"
	"fmt"
	"log/slog"
)

// ReserveCache reserves size bytes of the current device's memory, rounded up, for allocations of this session inside
// UseCache, however much others allocate. Caches are a stack: UseCache uses the one reserved last, FreeCache frees it,
// and Close frees the others.
//
// A cache is a child of an arena, or one block of any other allocator. It places and compacts blocks as an arena does.
// Its blocks pass through DeviceConfig.Wrap. The error matches mem.ErrNoMemory. It panics if size is not positive.
func (s *Session) ReserveCache(size int64) error {
	if err := s.enter("ReserveCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	if size <= 0 {
		panic(fmt.Sprintf("engine: ReserveCache of %d bytes: want a positive size", size))
	}
	t := s.currentDevice()
	var k *cache
	err := t.device.allocator.whileOpen(func() (err error) {
		k, err = t.device.caches.reserve(s, t.stream, size)
		return err
	})
	if err != nil {
		return fmt.Errorf("engine: device %d: ReserveCache: %w", t.device.index, err)
	}
	t.setCaches(append(t.caches, k))
	s.logCache("ReserveCache", k)
	return nil
}

// UseCache calls f. Until f ends, the session allocates on the current device from the cache reserved last, on all its
// streams and in CopyTo. A request that does not fit into the cache fails. Tensors that f makes may outlive it: a cache
// is freed with its last block. Inside f, FreeCache of that cache fails. The error is f's, or says that no cache is
// reserved.
func (s *Session) UseCache(f func() error) error {
	if err := s.enter("UseCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.currentDevice()
	if len(t.caches) == 0 {
		return fmt.Errorf("engine: UseCache on device %d: no cache is reserved there", t.device.index)
	}
	using, events := t.cacheIndex, s.events.mark()
	defer func() { t.useCache(using); s.events.dropFrom(events) }()
	t.useCache(len(t.caches))
	s.logCache("UseCache", t.cache())
	return f()
}

func (s *Session) logCache(call string, k *cache) {
	s.log(DebugDevices, call, slog.Int64("device", s.current.Load()), slog.Int64("bytes", k.Size()))
}

// FreeCache frees the cache that was reserved last on the current device. It fails, and the cache stays, if the cache
// has live blocks or UseCache is using it. It also fails if there is no cache.
func (s *Session) FreeCache() error {
	if err := s.enter("FreeCache"); err != nil {
		return err
	}
	defer s.guard.leave()
	t := s.currentDevice()
	switch {
	case len(t.caches) == 0:
		return fmt.Errorf("engine: FreeCache on device %d: no cache is reserved there", t.device.index)
	case t.cacheIndex == len(t.caches):
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
