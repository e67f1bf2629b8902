package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A pausable allocator gives its memory back while blocks are live: mem/paged.
type pausable interface {
	Pause(paged.PauseOptions) error
	Resume() error
}

// Pause gives the memory of a device's allocator back to the driver, so that other programs can use it while a model
// sleeps. Tensors stay alive, and keep their addresses; Resume restores their contents, unless PauseOptions.Discard
// gives them up. Pause waits for the work queued on the default stream and on all streams of sessions. It holds no
// other lock of the engine while it waits.
//
// Until Resume returns, no session may queue work on the device's tensors: on a GPU it would end the context. Requests
// for memory fail with an error that matches paged.ErrPaused; tensors may be released. Memory of the backend (cuBLAS,
// for example) stays. The error matches driver.ErrUnsupported if the allocator is not mem/paged, and for Discard with
// Config.Tenants: blocks could then hold what other tenants had. The others are those of paged.Allocator.Pause.
func (e *Engine) Pause(i int, o paged.PauseOptions) error {
	return e.pausing("Pause", i, func(d *device, a pausable) error {
		if o.Discard && d.quotas != nil {
			return &driver.Error{
				Call: "Pause", Code: driver.ErrUnsupported,
				Detail: "memory of tenants cannot be discarded, because Resume does not wipe it",
			}
		}
		d.mu.Lock()
		used := append(slices.Clone(o.Used), d.place.Stream())
		for _, s := range d.usedStreams {
			if s != nil {
				used = append(used, s)
			}
		}
		d.mu.Unlock()
		o.Used = used
		return a.Pause(o)
	})
}

// Resume undoes Pause. If the device has not enough memory, the error is a *mem.OutOfMemory, the device is still
// paused, and Resume may be called again. Without a Pause it is a no-op.
func (e *Engine) Resume(i int) error {
	return e.pausing("Resume", i, func(d *device, a pausable) error {
		err := a.Resume()
		if d.users != nil {
			d.users.Forget() // live blocks have new pages
		}
		return err
	})
}

// pausing calls f with a device's allocator.
func (e *Engine) pausing(call string, i int, f func(*device, pausable) error) error {
	d := e.at(call, i)
	if err := e.checkOpen(); err != nil {
		return err
	}
	a, ok := mem.Find[pausable](d.allocator)
	if !ok {
		return fmt.Errorf("engine: device %d: %w", i, &driver.Error{
			Call: call, Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("its allocator, %T, keeps its memory; DeviceConfig.Allocator %q does not",
				bottom(d.allocator), "paged"),
		})
	}
	err := d.allocator.whileOpen(func() error { return f(d, a) })
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("engine: device %d: %w", i, err)
	}
	return err
}
