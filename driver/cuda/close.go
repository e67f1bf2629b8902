//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// Only Close frees resources: neither the garbage collector nor the end of the program does.

// Close waits for the work of the streams, frees the resources of this device and releases the primary context, which
// continues to exist if other code retains it. For a lost device it neither waits nor frees: the error is the one that
// lost the device.
func (d *device) Close() error {
	d.leavePeers()
	d.life.Lock() // waits for calls in progress
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	copiers.Delete(d)
	var errs []error
	if lost := d.lost.Load(); lost != nil {
		errs = append(errs, &driver.Error{Call: "Close", Code: driver.ErrLost, Detail: lost.Detail})
	} else if r := d.push(); r != cu.Success {
		errs = append(errs, d.fail("Close", r, "make the context current"))
	} else {
		errs = d.freeAll()
		d.pop()
	}
	for _, s := range d.streams {
		s.markAllDone()
		s.mu.Lock()
		s.closing, s.closed = true, true
		s.mu.Unlock()
	}
	errs = append(errs, d.fail("Close", d.lib.PrimaryCtxRelease(d.dev), "the context of device %d", d.info.Ordinal))
	return errors.Join(errs...)
}

// freeAll frees all resources. No other call is in progress, and the context is current.
func (d *device) freeAll() []error {
	var errs []error
	try := func(r cu.Result, format string, args ...any) {
		if err := d.fail("Close", r, format, args...); err != nil {
			errs = append(errs, err)
		}
	}
	d.abandonCaptures()
	for _, s := range d.streams {
		if s.gone || s.closed && s.shared { // the owner of a foreign stream may have destroyed it
			continue
		}
		switch c, err := s.captured("Close"); {
		case err != nil:
			errs = append(errs, err)
		case c == nil: // only other code can be capturing now; there is no work to wait for
			try(d.lib.StreamSynchronize(s.handle), "stream %d", s.id)
		}
	}
	if d.lost.Load() != nil {
		return errs
	}
	errs = append(errs, d.closeExtras()...)
	for _, e := range d.known.t {
		p, size := uint64(e.At), e.Size
		switch e.Value.kind {
		case allocated:
			try(d.lib.MemFree(p), "%#x", p)
		case reserved:
			for _, m := range e.Value.mapped {
				try(d.lib.MemUnmap(uint64(m.At), m.Size), "%#x+%d", m.At, m.Size)
			}
			try(d.lib.MemAddressFree(p, size), "%#x+%d", p, size)
		}
	}
	for id, pg := range d.virtual.pages {
		if pg.dropped {
			continue // unmapped by now, so libcuda has freed the memory
		}
		try(d.lib.MemRelease(pg.handle), "page %d", id)
	}
	d.known.t, d.virtual.pages = nil, nil
	for _, s := range d.streams {
		s.markAllDone()
		if !s.gone && !s.shared {
			try(d.lib.StreamDestroy(s.handle), "stream %d", s.id)
		}
	}
	for _, e := range d.events.free {
		try(d.lib.EventDestroy(e.handle), "an event")
	}
	d.events.free = nil
	return errs
}
