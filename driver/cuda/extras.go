//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// deviceExtras is the state of a device for staging, page-locked memory, timing, graphs, modules, peers and sharing.
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
	others      othersCaptures
}

// streamExtras is their state of a stream. It is zero for a new stream.
type streamExtras struct {
	slot *area // for short copies to the device, or nil
}

// staged returns the device's page-locked areas.
func (d *device) staged() *staging {
	d.stagingOnce.Do(func() { d.staging.init(d.lib, 0) })
	return &d.staging
}

// closeExtras frees the extras of a stream. Its work is done, its mu is held and the context is current.
func (s *stream) closeExtras() {
	if s.slot != nil {
		s.d.staged().slots.give(s.slot)
		s.slot = nil
	}
}

// closeExtras frees the extras of the device. The work of all streams is done, the context is current, and no other
// call is in progress.
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

// drain waits for the work queued on the device's streams, except those that capture. (libcuda refuses to wait for a
// whole context while one of its streams captures.) Between enter and leave, with no stream locked.
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

// lastTick returns the tick after all work of the stream. It returns 0 if the stream captures or is closed, because
// then there is no work to wait for.
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

// ignoreClosed ignores the error of a closed device. Close of the device frees these resources, so freeing them later
// is not an error.
func ignoreClosed(err error) error {
	if errors.Is(err, driver.ErrClosed) {
		return nil
	}
	return err
}

// abandonCaptures ends the captures in progress, so that Close may wait for the streams.
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
