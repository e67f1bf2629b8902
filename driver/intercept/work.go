package intercept

import (
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// kernels wraps the inner device's.
type kernels struct {
	d     *Device
	inner driver.Kernels
}

func (k kernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	return k.d.on(s, Launch, func(s driver.Stream) error { return k.inner.Launch(s, kernel) })
}

func (k kernels) Load(code []byte) (driver.Module, error) {
	return wrapped(k.d, Call{Kind: Load}, func() (driver.Module, error) { return k.inner.Load(code) },
		func(m driver.Module) driver.Module { return module{k.d, m} })
}

// module wraps one of the inner device. Its functions are the inner ones.
type module struct {
	d     *Device
	inner driver.Module
}

func (m module) Function(name string) (f driver.Function, err error) {
	err = m.d.call(Function, func() (err error) { f, err = m.inner.Function(name); return err })
	return f, err
}

func (m module) Close() error { return m.d.call(CloseModule, m.inner.Close) }

// graphs wraps the inner device's.
type graphs struct {
	d     *Device
	inner driver.Graphs
}

func (g graphs) Begin(s driver.Stream) error { return g.d.on(s, Begin, g.inner.Begin) }

func (g graphs) End(s driver.Stream) (driver.Graph, error) {
	inner := g.d.UnwrapStream(s)
	return wrapped(g.d, Call{Kind: End, Stream: inner}, func() (driver.Graph, error) { return g.inner.End(inner) },
		func(made driver.Graph) driver.Graph { return graph{g.d, made} })
}

func (g graphs) Capturing(s driver.Stream) (yes bool, err error) {
	err = g.d.on(s, Capturing, func(s driver.Stream) (err error) { yes, err = g.inner.Capturing(s); return err })
	return yes, err
}

func (g graphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (yes bool, err error) {
	err = g.d.on(s, Ordered, func(s driver.Stream) (err error) {
		yes, err = g.inner.Ordered(g.d.UnwrapStream(other), m, s)
		return err
	})
	return yes, err
}

// graph wraps one of the inner device.
type graph struct {
	d     *Device
	inner driver.Graph
}

func (g graph) Launch(s driver.Stream) error { return g.d.on(s, LaunchGraph, g.inner.Launch) }

func (g graph) Nodes() int { return g.inner.Nodes() }

func (g graph) Close() error { return g.d.call(CloseGraph, g.inner.Close) }

// timing wraps the inner device's.
type timing struct {
	d     *Device
	inner driver.Timing
}

func (t timing) Stamp(s driver.Stream) (at driver.Stamp, err error) {
	err = t.d.on(s, Stamp, func(s driver.Stream) (err error) { at, err = t.inner.Stamp(s); return err })
	return at, err
}

func (t timing) Elapsed(from, to driver.Stamp) (took time.Duration, err error) {
	err = t.d.call(Elapsed, func() (err error) { took, err = t.inner.Elapsed(from, to); return err })
	return took, err
}

func (t timing) Discard(s driver.Stamp) error {
	return t.d.call(Discard, func() error { return t.inner.Discard(s) })
}
