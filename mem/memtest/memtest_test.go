package memtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func poolWith(b bug) func(testing.TB, driver.Device) mem.Allocator {
	return func(_ testing.TB, dev driver.Device) mem.Allocator { return newPool(dev, b) }
}

// A sound allocator passes, whatever the order in which the device does its work.
func TestPool(t *testing.T) {
	for name, opts := range map[string]sim.Options{
		"at once":   {Total: 1 << 30},
		"at random": {Total: 1 << 30, Completion: sim.AtRandom, Seed: 5},
		"on demand": {Total: 1 << 30, Completion: sim.OnDemand},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Config{Sim: opts, New: poolWith(none), Ops: 600, Seeds: 4})
		})
	}
}

// It passes on memory that is really there, with streams that really run at the same time.
func TestPoolOnHost(t *testing.T) {
	Run(t, Config{
		Device: On("host:total=256MiB"),
		New:    poolWith(none), MaxBlock: 3 << 20, Ops: 400, Seeds: 2, FaultOps: 20,
	})
}

// One that goes straight to the driver passes, without a cache, statistics or a snapshot to be looked at.
func TestStraight(t *testing.T) {
	Run(t, Config{
		Sim: sim.Options{Total: 1 << 30}, Ops: 600, Seeds: 4,
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			s := &straight{dev: dev, live: map[driver.Pointer]int64{}}
			t.Cleanup(func() {
				if err := s.retry(); err != nil {
					t.Error(err)
				}
			})
			return s
		},
	})
}

// Requests of random histories may fail when an allocator reaches a limit of its own, as when the device is full.
func TestAllocatorWithALimit(t *testing.T) {
	cfg := Config{Sim: sim.Options{Total: 1 << 30}, Seeds: 1, New: func(_ testing.TB, dev driver.Device) mem.Allocator {
		return layer.NewLimiter(newPool(dev, none), 64<<20)
	}}
	if found := try(t, func(t testing.TB) { checkRandom(t, cfg.complete()) }); found != "" {
		t.Error(found)
	}
}

// Adaptors leave an allocator sound.
func TestAdaptors(t *testing.T) {
	var trackers []*layer.LeakTracker
	Run(t, Config{
		Sim: sim.Options{Total: 1 << 30, Completion: sim.AtRandom, Seed: 9}, Ops: 300, Seeds: 2, FaultOps: 20,
		New: func(_ testing.TB, dev driver.Device) mem.Allocator {
			tr := layer.NewLeakTracker(layer.NewLimiter(newPool(dev, none), 1<<40), layer.LeakTrackerOptions{Freed: 4})
			trackers = append(trackers, tr)
			return tr
		},
	})
	for _, tr := range trackers {
		if l := tr.Leaks(); l.Count != 0 {
			t.Errorf("left: %v", l)
		}
		if l, ok := mem.Find[*layer.Limiter](tr); !ok || l.Live() != 0 {
			t.Errorf("the limiter counts %d bytes at the end", l.Live())
		}
	}
}

// straight asks the driver for every block.
type straight struct {
	dev    driver.Device
	mu     sync.Mutex
	live   map[driver.Pointer]int64
	failed []driver.Pointer // frees that the driver refused
}

func (s *straight) Alloc(stream driver.Stream, size int64) (mem.Block, error) {
	check.Stream("straight: Alloc", stream)
	if size < 0 {
		panic("straight: negative size")
	}
	if size == 0 {
		return mem.Block{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.dev.Alloc(size)
	if err != nil {
		if err := s.retryLocked(); err != nil {
			return mem.Block{}, err
		}
		if p, err = s.dev.Alloc(size); err != nil {
			return mem.Block{}, fmt.Errorf("straight: %w: %w", mem.ErrNoMemory, err)
		}
	}
	s.live[p] = size
	return mem.Block{Ptr: p, Size: size}, nil
}

func (s *straight) Free(b mem.Block, used ...driver.Stream) {
	if b.Ptr == 0 {
		return
	}
	check.Used("straight: Free", used)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[b.Ptr] != b.Size {
		panic(fmt.Sprintf("straight: Free of %#x, not live", uint64(b.Ptr)))
	}
	delete(s.live, b.Ptr)
	if err := s.dev.Free(b.Ptr); err != nil {
		s.failed = append(s.failed, b.Ptr)
	}
}

func (s *straight) retry() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retryLocked()
}

func (s *straight) retryLocked() error {
	for len(s.failed) > 0 {
		if err := s.dev.Free(s.failed[0]); err != nil {
			return err
		}
		s.failed = s.failed[1:]
	}
	return nil
}
