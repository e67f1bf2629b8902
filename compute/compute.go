// Package compute is the operations on tensors: elementwise functions with broadcasting and type promotion as PyTorch has
// them, reductions, softmax and norms, gathering, sorting, matrix products, random numbers.
//
// Every operation has as its first parameter the place that it works at: the device and the stream that it is queued to, and
// the scope of what it makes; nil is the place of the first tensor. It queues its work and returns: errors of shapes, types
// and devices come at once (ErrShape, ErrType, ErrDevice; they name both sides), those of the device and of indices that are
// out of range (*backend.IndexError) when somebody waits: Place.Sync, or the next reading of any tensor of the device. What an
// operation returns is owned by the place's scope, or where that has none, or no place is given, by its caller.
//
// Operands must be on the place's device; they may have been used on other streams (see package tensor). A result shares no
// memory with the operands.
//
// What is computed in which type stands with the operations in package backend: integers wrap, float16 and bfloat16 are
// computed in float32 and rounded once. Complex and 8-bit floating-point tensors can be made, copied, cast and printed, but
// not computed with.
//
// The device's own part is done by a backend.Backend: compute/host on the host and on simulated devices, compute/cuda on
// NVIDIA GPUs. Open picks it.
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
	_ "github.com/ashlar-go/ashlar/mem/caching" // the allocator that mem.Open gives out
	"github.com/ashlar-go/ashlar/tensor"
)

// What an operation can be refused for; its error's text says what is wrong, and with which operands.
var (
	ErrShape  = errors.New("shapes do not fit")
	ErrType   = errors.New("element types do not fit")
	ErrDevice = errors.New("devices differ")
)

// A refusal is an operation that cannot be.
type opError struct {
	op, text string
	kind     error
}

func (e *opError) Error() string { return "compute: " + e.op + ": " + e.text }

func (e *opError) Unwrap() error { return e.kind }

func newOpError(kind error, op, format string, args ...any) error {
	return &opError{op, fmt.Sprintf(format, args...), kind}
}

// Options say what a place is made of. The zero value is a good one.
type Options struct {
	Allocator string // as mem.Open takes it: "caching:expandable_segments:True"; empty is its first choice

	// Memory, if not nil, returns the device as the allocator sees it: layer.NewLimitedDevice(dev, 8<<30, "MemoryLimit") has it take no
	// more than that. All but the allocator uses the device itself.
	Memory func(dev driver.Device) driver.Device

	Host  host.Options // of the host's backend
	CUDA  cuda.Options // of that for NVIDIA GPUs: where cuBLAS lies, if not where the system looks
	Sites bool         // record the calls that made each storage: see tensor.Config
}

// Open opens the first of the devices that is there ("cuda", "cuda:1", "host", "sim:total=1GiB"), with a caching allocator
// and the backend for it, and returns a place on it that closes them all. The drivers must be linked into the program:
// import them for their side effects. A device that is absent, or that this program has no code for, is passed over; any
// other error ends the search. If none is there, the error says why for each, and what to import.
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
		if !errors.Is(err, driver.ErrAbsent) && !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrUnknown) {
			break
		}
	}
	if len(specs) == 0 {
		return nil, errors.New("compute: open: no device named")
	}
	return nil, errors.Join(errs...)
}

// On returns a place on a device that stays the caller's, with a caching allocator and the backend for it, which the place's
// Close closes.
func On(dev driver.Device) (*tensor.Place, error) { return Options{}.On(dev) }

// On is the function On with these options.
func (o Options) On(dev driver.Device) (*tensor.Place, error) {
	return o.on(dev, "On", func() error { return nil })
}

// on makes a place for a function of this name, whose Close calls last at its end.
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

// NewBackend returns the backend for a device: cuda's for the driver of that name, the host's for every other. Close it
// before the device.
func NewBackend(dev driver.Device) (backend.Backend, error) { return Options{}.backend(dev) }

func (o Options) backend(dev driver.Device) (backend.Backend, error) {
	if dev.Info().Driver == "cuda" {
		return cuda.New(dev, o.CUDA)
	}
	return host.New(dev, o.Host), nil
}

// at returns the place to work at: p, or the first tensor's. It fails if there is none, or if a tensor is undefined or on
// another device, and panics if one was released: before anything is made.
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
				return nil, newOpError(ErrDevice, op, "%s on %v, %s on %s: want one device", first.Brief(), p, x.Brief(), where)
			}
			return nil, newOpError(ErrDevice, op, "%s on %s, the place given on %v: want one device", x.Brief(), where, p)
		}
	}
	if p == nil {
		return nil, newOpError(ErrDevice, op, "no place is given")
	}
	return p, nil
}

// queue orders p's stream behind what the operands need, and then queues work on them by f; dst is written. Their memory
// stays where it is meanwhile, so f may ask for their arrays, and an operand that its caller has dropped lives until then.
func queue(op string, p *tensor.Place, dst *tensor.Tensor, operands []*tensor.Tensor, f func(backend.Queue) error) error {
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

// made passes on a new tensor whose contents were queued, and releases it if that failed.
func releaseIfFailed(t *tensor.Tensor, err error) (*tensor.Tensor, error) {
	if err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// temporary is the place for what an operation makes on the way and releases itself: p without its scope.
func temporary(p *tensor.Place) *tensor.Place { return p.Unscoped() }

// axisOf returns an axis of x, counted from the end if negative.
func axisOf(op string, x *tensor.Tensor, axis int) (int, error) {
	n := x.Rank()
	if axis < -n || axis >= n {
		return 0, newOpError(ErrShape, op, "axis %d of %s, which has %d", axis, x.Brief(), n)
	}
	return (axis + n) % n, nil
}

// spread returns x as an operand of the given shape, which it can be broadcast to.
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

// broadcast returns the shape that all can be broadcast to. The caller does not change it.
func broadcast(op string, operands ...*tensor.Tensor) ([]int, error) {
	shape := operands[0].Array().Shape
	for i, x := range operands[1:] {
		s := x.Array().Shape
		if slices.Equal(s, shape) {
			continue
		}
		wide, err := tensor.BroadcastShapes(shape, s)
		if err != nil {
			return nil, newOpError(ErrShape, op, "%s and %s cannot be broadcast to one shape", operands[i].Brief(), x.Brief())
		}
		shape = wide
	}
	return shape, nil
}
