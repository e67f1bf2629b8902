// Package compute has the operations on tensors: elementwise functions with PyTorch's broadcasting and type promotion,
// reductions, softmax and norms, gathering, sorting, matrix products, and random numbers.
//
// [Open] opens a device with a caching allocator and a backend. Each operation takes, as its first parameter, the place
// at which it works: the device, the stream to which work is queued, and the scope of the results. A nil place means
// that of the first tensor.
//
// An operation queues its work and returns. Invalid shapes, types and devices are errors of the call (ErrShape, ErrType
// and ErrDevice, with the operands in the text). Device errors and indices out of range (*backend.IndexError) are
// reported by the next wait: Place.Sync, or a read of any tensor of the device. The place's scope owns the results;
// without a scope, or without a place, the caller does.
//
// Operands must be on the place's device, and may have been used on other streams (see package tensor). A result shares
// no memory with the operands. Operations are safe for concurrent use.
//
// Package backend defines the types in which results are computed. Integers wrap; float16 and bfloat16 are computed in
// float32 and rounded once. Complex and 8-bit floating-point tensors can be made, copied, cast and printed, but not
// computed with.
package compute

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/compute/cuda"
	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/caching" // the default allocator of mem.Open
	"github.com/ashlar-go/ashlar/tensor"
)

// Errors that those of operations match. The text has the operands and the reason.
var (
	ErrShape  = errors.New("shapes do not fit")
	ErrType   = errors.New("element types do not fit")
	ErrDevice = errors.New("devices differ")
)

// An opError is an invalid call of an operation.
type opError struct {
	op, text string
	kind     error
}

func (e *opError) Error() string { return "compute: " + e.op + ": " + e.text }

func (e *opError) Unwrap() error { return e.kind }

func newOpError(kind error, op, format string, args ...any) error {
	return &opError{op, fmt.Sprintf(format, args...), kind}
}

// Options control how a place is opened. The zero value suits most uses.
type Options struct {
	Allocator string // for mem.Open, such as "caching:expandable_segments:True"; empty is the default of mem.Open

	// Memory, if not nil, returns the device that the allocator uses. For example, layer.NewLimitedDevice(dev, 8<<30,
	// "MemoryLimit") limits its memory to 8 GiB. Everything else uses the device itself.
	Memory func(dev driver.Device) driver.Device

	Host  host.Options // of the host backend
	CUDA  cuda.Options // of the backend for NVIDIA GPUs, such as the path of cuBLAS
	Sites bool         // record the calls that made each storage: see tensor.Config
}

// Open opens the first available device of specs ("cuda", "cuda:1", "host", "sim:total=1GiB") with a caching allocator
// and the device's backend. It returns a place whose Close closes them. The program must import the drivers for their
// side effects. A device that is absent, or whose driver is not part of the program, is skipped; any other error ends
// the search. If no device is available, the error has the reason for each, and the missing imports.
func Open(specs ...string) (*tensor.Place, error) { return Options{}.Open(specs...) }

// Open is the function Open with these options.
func (o Options) Open(specs ...string) (*tensor.Place, error) {
	var errs []error
	for _, spec := range specs {
		dev, err := driver.Open(spec)
		if err == nil {
			return o.on(dev, "Open", dev.Close)
		}
		errs = append(errs, fmt.Errorf("compute: open %s: %w", spec, err))
		if !errors.Is(err, driver.ErrAbsent) && !errors.Is(err, driver.ErrUnsupported) &&
			!errors.Is(err, driver.ErrUnknown) {
			break
		}
	}
	if len(specs) == 0 {
		return nil, errors.New("compute: open: no device named")
	}
	return nil, errors.Join(errs...)
}

// On returns a place on a device with a caching allocator and the device's backend. The place's Close closes the two;
// the device stays the caller's to close.
func On(dev driver.Device) (*tensor.Place, error) { return Options{}.On(dev) }

// On is the function On with these options.
func (o Options) On(dev driver.Device) (*tensor.Place, error) {
	return o.on(dev, "On", func() error { return nil })
}

// on makes a place for the function of the given name. The place's Close calls last after everything else.
func (o Options) on(dev driver.Device, function string, last func() error) (*tensor.Place, error) {
	b, err := o.backend(dev)
	if err != nil {
		return nil, errors.Join(err, last())
	}
	memory := dev
	if o.Memory != nil {
		memory = o.Memory(dev)
	}
	a, err := mem.Open(o.Allocator, memory)
	if err != nil {
		return nil, errors.Join(err, b.Close(), last())
	}
	return tensor.NewPlace(tensor.Config{
		Device: dev, Allocator: a, Backend: b, Sites: o.Sites,
		SitesBy: "compute.Options{Sites: true}." + function,
		Close: func() error {
			errs := []error{b.Close()}
			if c, ok := mem.Find[io.Closer](a); ok {
				errs = append(errs, c.Close())
			}
			return errors.Join(append(errs, last())...)
		},
	}), nil
}

// NewBackend returns the backend for a device: compute/cuda for the driver "cuda", and compute/host for every other.
// Close it before the device.
func NewBackend(dev driver.Device) (backend.Backend, error) { return Options{}.backend(dev) }

func (o Options) backend(dev driver.Device) (backend.Backend, error) {
	if dev.Info().Driver == "cuda" {
		return cuda.New(dev, o.CUDA)
	}
	return host.New(dev, o.Host), nil
}

// placeFor returns the place at which to work: p, or that of the first tensor. It fails if there is none, or if a
// tensor is undefined or on another device, and panics if one was released.
func placeFor(op string, p *tensor.Place, operands ...*tensor.Tensor) (*tensor.Place, error) {
	for _, x := range operands {
		if !x.Defined() {
			return nil, newOpError(ErrType, op, "an operand is the undefined tensor")
		}
		x.MustLive(op)
		if p == nil {
			p = x.Place()
		}
		if q := x.Place(); !p.SameDevice(q) {
			where := q.String()
			if where == p.String() {
				where = "another " + where
			}
			if first := operands[0]; p.SameDevice(first.Place()) {
				return nil, newOpError(ErrDevice, op, "%s on %v, %s on %s: want one device", first.Brief(), p,
					x.Brief(), where)
			}
			return nil, newOpError(ErrDevice, op, "%s on %s, the place given on %v: want one device", x.Brief(), where,
				p)
		}
	}
	if p == nil {
		return nil, newOpError(ErrDevice, op, "no place is given")
	}
	return p, nil
}

// queue orders p's stream after the earlier uses of the operands, and then calls f to queue the work, which writes dst.
// The memory is pinned while f runs, so f may take the arrays, and operands stay reachable until then.
func queue(
	op string, p *tensor.Place, dst *tensor.Tensor, operands []*tensor.Tensor, f func(backend.Queue) error,
) error {
	pinAll(dst, operands)
	defer unpinAll(dst, operands)
	for _, x := range operands {
		if err := x.Use(p.Stream(), false); err != nil {
			return fmt.Errorf("compute: %s: %w", op, err)
		}
	}
	if err := dst.Use(p.Stream(), true); err != nil {
		return fmt.Errorf("compute: %s: %w", op, err)
	}
	if err := f(p.Queue()); err != nil {
		return fmt.Errorf("compute: %s of %s: %w", op, dst.Brief(), err)
	}
	return nil
}

func pinAll(dst *tensor.Tensor, operands []*tensor.Tensor) {
	dst.Pin()
	for _, x := range operands {
		x.Pin()
	}
}

func unpinAll(dst *tensor.Tensor, operands []*tensor.Tensor) {
	dst.Unpin()
	for _, x := range operands {
		x.Unpin()
	}
}

// releaseIfFailed returns a new tensor, or releases it if err is not nil.
func releaseIfFailed(t *tensor.Tensor, err error) (*tensor.Tensor, error) {
	if err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// temporary returns the place for temporary tensors that the operation releases: p without its scope.
func temporary(p *tensor.Place) *tensor.Place { return p.Unscoped() }

// axisOf returns an axis of x, counted from 0.
func axisOf(op string, x *tensor.Tensor, axis int) (int, error) {
	n := x.Rank()
	if axis < -n || axis >= n {
		return 0, newOpError(ErrShape, op, "axis %d of %s, which has %d", axis, x.Brief(), n)
	}
	return (axis + n) % n, nil
}

// broadcastTo returns x as an operand of the given shape, to which it can be broadcast.
func broadcastTo(x *tensor.Tensor, shape []int) backend.Array {
	a := x.Array()
	if slices.Equal(a.Shape, shape) {
		return a
	}
	strides := make([]int, len(shape))
	front := len(shape) - len(a.Shape)
	for i, n := range a.Shape {
		if n == shape[front+i] {
			strides[front+i] = a.Strides[i]
		}
	}
	a.Shape, a.Strides = shape, strides
	return a
}

// broadcast returns the shape to which all operands can be broadcast. The caller must not change it.
func broadcast(op string, operands ...*tensor.Tensor) ([]int, error) {
	shape := operands[0].Array().Shape
	for i, x := range operands[1:] {
		s := x.Array().Shape
		if slices.Equal(s, shape) {
			continue
		}
		wide, err := tensor.BroadcastShapes(shape, s)
		if err != nil {
			return nil, newOpError(ErrShape, op, "%s and %s cannot be broadcast to one shape", operands[i].Brief(),
				x.Brief())
		}
		shape = wide
	}
	return shape, nil
}
