// Package intercept wraps a device and passes each of its calls through a hook, which can count, time, observe or
// replace it.
//
//	d := intercept.Wrap(inner, func(c intercept.Call, next func() error) error {
//		log.Print(c.Kind)
//		return next()
//	})
//
// The hook sees every call that can return an error, on the device, its streams, its abilities and what they make
// (graphs, modules, events), except Device.Close. It calls next to make the call on the inner device, and returns the
// call's error. A hook that does not call next replaces the call: nothing reaches the inner device. If it returns an
// error after next succeeded, the caller gets the error, and a graph, module, event or stream that next made is closed.
//
// Streams and devices of this package are unwrapped when they are passed to the inner device; others are passed as they
// are. An ability that the inner device lacks is nil here too. Calls that return no error (IsPinned, Graph.Nodes,
// Visible) go to the inner device directly, and so do calls of kernels on the driver.Memory that they get.
//
// A Device is as safe for concurrent use as its hook, which is called without locks. It is itself a small value over
// the inner device: wrappers may be stacked, and a type that embeds a *Device may replace methods of it.
package intercept

import "github.com/ashlar-go/ashlar/driver"

// A Call describes a call to a hook.
type Call struct {
	Kind   Kind
	Stream driver.Stream // of the inner device: the stream the call uses or is made on; nil if there is none
}

// A Hook is called for each call. It returns the call's error.
type Hook func(c Call, next func() error) error

// A Device is an inner device whose calls go through a hook.
type Device struct {
	inner  driver.Device
	hook   Hook
	stream *stream // the default one
}

var _ driver.Device = (*Device)(nil)

// Wrap returns inner with its calls passed through hook. Closing the Device closes inner.
func Wrap(inner driver.Device, hook Hook) *Device {
	d := &Device{inner: inner, hook: hook}
	d.stream = &stream{d, inner.DefaultStream()}
	return d
}

// Unwrap returns the inner device.
func (d *Device) Unwrap() driver.Device { return d.inner }

// UnwrapStream returns the inner device's stream of s, or s itself if it is not one of d's streams.
func (d *Device) UnwrapStream(s driver.Stream) driver.Stream {
	if own, ok := s.(*stream); ok && own != nil && own.d == d {
		return own.inner
	}
	return s
}

func (d *Device) intercepted() driver.Device { return d.inner }

// innerDevice returns the device in a wrapper of this package, or other itself.
func innerDevice(other driver.Device) driver.Device {
	if w, ok := other.(interface{ intercepted() driver.Device }); ok {
		return w.intercepted()
	}
	return other
}

// call passes a call without a stream through the hook.
func (d *Device) call(k Kind, next func() error) error { return d.hook(Call{Kind: k}, next) }

// on passes a call that uses a stream through the hook.
func (d *Device) on(s driver.Stream, k Kind, next func(s driver.Stream) error) error {
	inner := d.UnwrapStream(s)
	return d.hook(Call{Kind: k, Stream: inner}, func() error { return next(inner) })
}

// wrapped passes a call that makes an object through the hook, and wraps the object. It closes the object if the hook
// returns an error after the call succeeded.
func wrapped[T interface{ Close() error }](
	d *Device, c Call, make func() (T, error), wrap func(T) T,
) (out T, err error) {
	var made T
	ok := false
	err = d.hook(c, func() (err error) {
		made, err = make()
		ok = err == nil
		return err
	})
	switch {
	case err == nil && ok:
		return wrap(made), nil
	case ok:
		_ = made.Close() // the hook's error counts
	}
	return out, err
}

// Info returns the inner device's Info.
func (d *Device) Info() driver.Info { return d.inner.Info() }

// Available is a call of kind Available.
func (d *Device) Available() (free, total int64, err error) {
	err = d.call(Available, func() (err error) { free, total, err = d.inner.Available(); return err })
	return free, total, err
}

// Processes is a call of kind Processes.
func (d *Device) Processes() (list []driver.ProcessMemory, err error) {
	err = d.call(Processes, func() (err error) { list, err = d.inner.Processes(); return err })
	return list, err
}

// Alloc is a call of kind Alloc.
func (d *Device) Alloc(size int64) (p driver.Pointer, err error) {
	err = d.call(Alloc, func() (err error) { p, err = d.inner.Alloc(size); return err })
	return p, err
}

// Free is a call of kind Free.
func (d *Device) Free(p driver.Pointer) error {
	return d.call(Free, func() error { return d.inner.Free(p) })
}

// NewStream is a call of kind NewStream.
func (d *Device) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	return wrapped(d, Call{Kind: NewStream}, func() (driver.Stream, error) { return d.inner.NewStream(o) },
		func(s driver.Stream) driver.Stream { return &stream{d, s} })
}

// DefaultStream returns the same stream each time.
func (d *Device) DefaultStream() driver.Stream { return d.stream }

// VirtualMemory is nil if the inner device has none.
func (d *Device) VirtualMemory() driver.VirtualMemory {
	if vm := d.inner.VirtualMemory(); vm != nil {
		return virtualMemory{d, vm}
	}
	return nil
}

// Kernels is nil if the inner device has none.
func (d *Device) Kernels() driver.Kernels {
	if k := d.inner.Kernels(); k != nil {
		return kernels{d, k}
	}
	return nil
}

// Pinned is nil if the inner device has none.
func (d *Device) Pinned() driver.Pinned {
	if p := d.inner.Pinned(); p != nil {
		return pinned{d, p}
	}
	return nil
}

// Timing is nil if the inner device has none.
func (d *Device) Timing() driver.Timing {
	if t := d.inner.Timing(); t != nil {
		return timing{d, t}
	}
	return nil
}

// Graphs is nil if the inner device has none.
func (d *Device) Graphs() driver.Graphs {
	if g := d.inner.Graphs(); g != nil {
		return graphs{d, g}
	}
	return nil
}

// Peers is nil if the inner device has none.
func (d *Device) Peers() driver.Peers {
	if p := d.inner.Peers(); p != nil {
		return peers{d, p}
	}
	return nil
}

// Visible returns the inner device's: none of its calls go through the hook.
func (d *Device) Visible() driver.Visible { return d.inner.Visible() }

// Sharing is nil if the inner device has none.
func (d *Device) Sharing() driver.Sharing {
	if s := d.inner.Sharing(); s != nil {
		return sharing{d, s}
	}
	return nil
}

// Close closes the inner device. The hook is not called.
func (d *Device) Close() error { return d.inner.Close() }
