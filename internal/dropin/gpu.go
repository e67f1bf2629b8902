package dropin

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// A gpu is a device, opened at its first use, so that a process has CUDA contexts only on the devices that it uses.
type gpu struct {
	process *Process
	ordinal int
	limit   atomic.Int64 // bytes; 0 is none

	ready atomic.Bool // dev and allocator are set
	dev   driver.Device
	alloc mem.Allocator

	mu      sync.Mutex                // held while the device is opened or closed, and while a stream is added
	streams atomic.Pointer[[]foreign] // replaced, never modified

	tagged tagPools
	host   *pinned.Allocator // of contents of paused memory; nil until needed
}

// A foreign is a stream of the program, with its handle.
type foreign struct {
	handle uintptr
	stream driver.Stream
}

// Handles of CUDA's default streams under their own names (cuda.h: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
const (
	legacyStream    = 1
	perThreadStream = 2
)

// errPerThread is the error for a stream that is another one on every thread.
var errPerThread = fmt.Errorf("%w: the per-thread default stream is another one on every thread: use a stream with a "+
	"handle of its own", ErrInvalid)

// start opens the device and its allocator. After a failure, the next call tries again.
func (g *gpu) start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() {
		return nil
	}
	dev, err := g.process.open(g.ordinal)
	if err != nil {
		return err
	}
	a, err := g.openAllocator(dev)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	g.dev, g.alloc = dev, a
	g.streams.Store(&[]foreign{{0, dev.DefaultStream()}, {legacyStream, dev.DefaultStream()}})
	if limit := g.limit.Load(); limit != 0 {
		err = g.setLimit(limit)
	}
	if err == nil {
		raw.SetCurrent(dev, a)
		err = g.observe()
	}
	if err != nil {
		return errors.Join(err, g.release())
	}
	g.ready.Store(true)
	return nil
}

// stream returns the stream with a handle. Streams are kept for the life of the process, as PyTorch keeps those of its
// pools.
func (g *gpu) stream(handle uintptr) (driver.Stream, error) {
	if s := g.known(handle); s != nil {
		return s, nil
	}
	return g.addStream(handle)
}

// known returns the stream with a handle, or nil if the program has not used it yet.
func (g *gpu) known(handle uintptr) driver.Stream {
	for _, f := range *g.streams.Load() {
		if f.handle == handle {
			return f.stream
		}
	}
	return nil
}

// newStream opens a stream of the program.
func (g *gpu) newStream(handle uintptr) (driver.Stream, error) {
	if handle == perThreadStream {
		return nil, errPerThread
	}
	return g.dev.NewStream(driver.StreamOptions{Foreign: handle})
}

func (g *gpu) addStream(handle uintptr) (driver.Stream, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.known(handle); s != nil {
		return s, nil
	}
	s, err := g.newStream(handle)
	if err != nil {
		return nil, err
	}
	more := append(slices.Clone(*g.streams.Load()), foreign{handle, s})
	g.streams.Store(&more)
	return s, nil
}

// handleOf returns the handle of the stream with an ID. It returns 0 for the default stream and for Ashlar's own
// streams.
func (g *gpu) handleOf(id driver.StreamID) uintptr {
	for _, f := range *g.streams.Load() {
		if f.stream.ID() == id {
			return f.handle
		}
	}
	return 0
}

// setLimit limits the bytes that the allocator reserves; 0 is no limit.
func (g *gpu) setLimit(bytes int64) error {
	if a, ok := mem.Find[interface{ SetLimit(int64) error }](g.alloc); ok {
		return a.SetLimit(bytes)
	}
	if a, ok := mem.Find[interface{ SetMemoryFraction(float64) error }](g.alloc); ok {
		if bytes == 0 {
			return a.SetMemoryFraction(1)
		}
		return a.SetMemoryFraction(min(1, float64(bytes)/float64(g.dev.Info().TotalMemory)))
	}
	return fmt.Errorf("ashlar: the backend %s has no limit: %w", g.process.settings.backend, driver.ErrUnsupported)
}

// release closes the allocator and the device.
func (g *gpu) release() error {
	raw.SetCurrent(g.dev, nil)
	err := g.tagged.close()
	if c, ok := g.alloc.(interface{ Close() error }); ok {
		err = errors.Join(c.Close(), err)
	}
	if g.host != nil { // after the allocator, whose pauses have blocks of it
		err = errors.Join(err, g.host.Close())
	}
	g.streams.Store(nil)
	return errors.Join(err, g.dev.Close())
}

func (g *gpu) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ready.Swap(false) {
		return nil
	}
	return g.release()
}
