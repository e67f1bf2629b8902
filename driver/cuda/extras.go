//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// deviceExtras is what staging, page-locked memory, timing, graphs, modules, peers and sharing keep of a device.
type deviceExtras struct {
	stagingOnce sync.Once
	staging     staging
	pinned      pinnedTable
	stamps      stamps
	graphs      openSet[*graph]
	modules     openSet[*module]
	peers       peerSet
	shared      sharedSet
	shares      openSet[*sharedEvent]
}

// streamExtras is what they keep of a stream. It is zero when the stream is made.
type streamExtras struct {
	slot *area // for short copies to the device, or nil
}

// staged returns the device's page-locked areas.
func (d *device) staged() *staging {
	d.stagingOnce.Do(func() { d.staging.init(d.lib, 0) })
	return &d.staging
}

// closeExtras gives back what a stream holds. Its work is done, its mu held and the context current.
func (s *stream) closeExtras() {
	if s.slot != nil {
		s.d.staged().slots.give(s.slot)
		s.slot = nil
	}
}

// closeExtras gives back what they hold, when the work of all streams is done and the context is current; no other call
// runs.
func (d *device) closeExtras() []error {
	const call = "Close"
	d.streamsMu.Lock()
	for _, s := range d.streams {
		s.mu.Lock()
		s.closeExtras()
		s.mu.Unlock()
	}
	d.streamsMu.Unlock()
	var errs []error
	note := func(what string, r cu.Result) {
		if r != cu.Success {
			errs = append(errs, d.fail(call, r, "%s", what))
		}
	}
	note("free staging memory", d.staged().close())
	note("free page-locked memory", d.closePinned())
	note("destroy events", d.closeStamps())
	note("destroy graphs", d.graphs.destroyAll(func(g *graph) cu.Result { return d.lib.GraphExecDestroy(g.exec) }))
	note("unload modules", d.modules.destroyAll(func(m *module) cu.Result { return d.lib.ModuleUnload(m.handle) }))
	note("close memory of other processes", d.closeShared())
	note("destroy events that processes share",
		d.shares.destroyAll(func(e *sharedEvent) cu.Result { return d.lib.EventDestroy(e.handle) }))
	note("take access to other devices back", d.closePeers())
	return errs
}

// drain waits for the work queued on the device's streams, but for those that capture: libcuda refuses to wait for a whole
// context while one of its streams does. Between enter and leave, with no stream locked.
func (d *device) drain(call string) error {
	d.streamsMu.Lock()
	streams := slices.Clone(d.streams)
	d.streamsMu.Unlock()
	for _, s := range streams {
		tick, err := s.lastTick(call)
		if err == nil {
			err = s.await(call, tick)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lastTick is the tick behind all work of the stream, 0 if it captures or is closed: then there is none to wait for.
func (s *stream) lastTick(call string) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil
	}
	capture, err := s.captured(call)
	if capture != nil || err != nil {
		return 0, err
	}
	m, err := s.mark(call)
	return m.Tick, err
}

// ignoreClosed is for what a device gives back by itself when it is closed: doing so later is not an error.
func ignoreClosed(err error) error {
	if errors.Is(err, driver.ErrClosed) {
		return nil
	}
	return err
}

// abandonCaptures ends the captures that still run, so that waiting for the streams is allowed.
func (d *device) abandonCaptures() {
	d.streamsMu.Lock()
	streams := slices.Clone(d.streams)
	d.streamsMu.Unlock()
	for _, s := range streams {
		s.mu.Lock()
		c := s.capture
		s.mu.Unlock()
		if c == nil || c.id != 0 || !c.begunBy(s) {
			continue
		}
		d.abandon(s)
		c.finish()
	}
}
