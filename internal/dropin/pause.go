package dropin

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// registerThreads is how many goroutines touch host memory before it is page-locked.
const registerThreads = 16

// pausable is an allocator or a pool that can be paused.
type pausable interface {
	Pause(paged.PauseOptions) error
	Resume() error
}

// Pause gives the memory of a tag on a device back to the driver; without a name, all memory outside the private pools
// of graphs. Addresses stay. The contents are kept in page-locked host memory, or discarded. The program's queued work
// must be done. Requests for paused memory fail; the error matches ErrInvalid. Pause fails if blocks are pinned.
func (p *Process) Pause(ordinal int, tag string, discard bool) error {
	g, memory, err := p.pausable(ordinal, tag)
	if memory == nil {
		return err
	}
	if err := p.unpinned(g, memory); err != nil {
		return err
	}
	p.pausing.Lock()
	defer p.pausing.Unlock()
	o := paged.PauseOptions{Discard: discard}
	for _, f := range *g.streams.Load() {
		o.Used = append(o.Used, f.stream)
	}
	if !discard {
		if o.Host, err = g.hostMemory(); err != nil {
			return err
		}
		if o.HostLimit, err = p.hostLeft(); err != nil {
			return err
		}
	}
	return invalidIfPaused(memory.Pause(o))
}

// Resume undoes Pause. Without keepHost it frees the host memory; with it, the next Pause uses that memory again. The
// error matches mem.ErrNoMemory if the device has not enough memory; then the memory is still paused.
func (p *Process) Resume(ordinal int, tag string, keepHost bool) error {
	g, memory, err := p.pausable(ordinal, tag)
	if memory == nil {
		return err
	}
	p.pausing.Lock()
	defer p.pausing.Unlock()
	if err := memory.Resume(); err != nil {
		return invalidIfPaused(err)
	}
	if keepHost || g.host == nil {
		return nil
	}
	return g.host.EmptyCache()
}

// PauseInfo returns the bytes of a device that are paused, and those of host memory that keep contents or are kept for
// the next Pause.
func (p *Process) PauseInfo(ordinal int) (paused, host int64, err error) {
	g, err := p.used(ordinal)
	if g == nil {
		return 0, 0, err
	}
	if a, err := g.paged(""); err == nil {
		paused = a.PageStats().Paused
	}
	p.pausing.Lock()
	defer p.pausing.Unlock()
	if g.host != nil {
		host = g.host.Stats().AllocatedBytes.Current
	}
	return paused, host, nil
}

// pausable finds a device and its memory with a tag. The memory is nil, without an error, if there is none.
func (p *Process) pausable(ordinal int, tag string) (*gpu, pausable, error) {
	t, err := p.tags.find(tag)
	if err != nil {
		return nil, nil, err
	}
	g, err := p.used(ordinal)
	if g == nil {
		return nil, nil, err
	}
	if t == 0 {
		a, err := g.paged("Pause")
		if err != nil {
			return nil, nil, err
		}
		return g, a, nil
	}
	if pool := g.tagged.pool(t); pool != nil {
		return g, pool, nil
	}
	return nil, nil, nil
}

// unpinned returns an error if a block of the memory is pinned.
func (p *Process) unpinned(g *gpu, memory pausable) error {
	whole, _ := g.paged("")
	for _, at := range p.pins.all() {
		l, ok := raw.CurrentBlocks().Holding(at)
		if !ok || l.Device != g.dev {
			continue
		}
		if pool, ok := l.From.(*paged.Pool); memory == pausable(whole) || ok && memory == pausable(pool) {
			return fmt.Errorf("%w: the block at %#x is pinned, so that its memory stays in place: unpin it before "+
				"the pause", ErrInvalid, uint64(at))
		}
	}
	return nil
}

// hostMemory returns the allocator of host memory for contents. The caller holds pausing.
func (g *gpu) hostMemory() (_ *pinned.Allocator, err error) {
	if g.host == nil {
		g.host, err = pinned.New(g.dev, pinned.Config{
			HostRegister: true, RegisterThreads: registerThreads, MaxRoundThreshold: -1,
		})
	}
	return g.host, err
}

// hostLeft returns how many bytes more host memory may keep contents: 0 is no limit. The caller holds pausing.
func (p *Process) hostLeft() (int64, error) {
	limit := p.settings.host
	if limit == 0 {
		return 0, nil
	}
	for i := range p.gpus {
		if g := &p.gpus[i]; g.ready.Load() {
			if a, err := g.paged(""); err == nil {
				limit -= a.PageStats().Host
			}
		}
	}
	if limit <= 0 {
		return 0, fmt.Errorf("%w: the limit of host memory, %s (the setting host), is reached", ErrInvalid,
			bytesize.Format(p.settings.host))
	}
	return limit, nil
}

// invalidIfPaused makes the error for what is paused already the caller's.
func invalidIfPaused(err error) error {
	if errors.Is(err, paged.ErrPaused) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

var (
	_ pausable = (*paged.Allocator)(nil)
	_ pausable = (*paged.Pool)(nil)
)
