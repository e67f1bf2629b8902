package collective

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// A Placement describes what part of a tensor each rank has: the whole (Replicate), nothing (Omit), or a part along an
// axis (Along).
type Placement struct {
	kind placement
	axis int
}

type placement uint8

const (
	replicate placement = iota
	along
	omit
)

var (
	Replicate = Placement{}           // every rank has the whole; the zero Placement
	Omit      = Placement{kind: omit} // no rank has a part
)

// Along returns the placement that gives each rank its part of an axis: see Part. A negative axis counts from the last.
func Along(axis int) Placement { return Placement{along, axis} }

func (l Placement) String() string {
	switch l.kind {
	case along:
		return fmt.Sprintf("along axis %d", l.axis)
	case omit:
		return "omitted"
	case replicate:
	}
	return "replicated"
}

// Part returns the part of rank when n indices are divided among size ranks: length indices from start on. Parts are in
// the order of the ranks. If n is not a multiple of size, the parts of the first ranks are longer by one.
func Part(n, rank, size int) (start, length int) {
	each, more := n/size, n%size
	start, length = rank*each+min(rank, more), each
	if rank < more {
		length++
	}
	return start, length
}

// A Rule places the tensors whose names match Pattern, in the syntax of path.Match: * matches any text without a slash;
// the text may contain dots.
type Rule struct {
	Pattern string
	Placement
}

// A Plan gives the placement of each tensor of a checkpoint: that of the first rule that matches the name, or else
// Default.
type Plan struct {
	Rules   []Rule
	Default Placement
}

// For returns the placement of a tensor. The error names an invalid pattern.
func (pl Plan) For(name string) (Placement, error) {
	for _, r := range pl.Rules {
		matches, err := path.Match(r.Pattern, name)
		if err != nil {
			return Placement{}, refuse(ErrConfig, "Plan", "pattern %q: %v", r.Pattern, err)
		}
		if matches {
			return r.Placement, nil
		}
	}
	return pl.Default, nil
}

// Load loads this rank's share of a checkpoint to p; nil is the communicator's own place. Replicated tensors are loaded
// whole; of split tensors only this rank's part is read. The tensors have their names in the checkpoint, and the caller
// (or p's scope) owns them. Load checks ctx before each tensor; after an error nothing stays loaded. Every rank opens
// the checkpoint itself: Load does not communicate, and fails alone. For a tensor that only one rank can read use
// Distribute.
func Load(
	ctx context.Context, c *Communicator, p *tensor.Place, ck safetensors.Checkpoint, plan Plan,
) (map[string]*tensor.Tensor, error) {
	if p == nil {
		p = c.place
	}
	loaded := map[string]*tensor.Tensor{}
	for _, name := range ck.Names() {
		t, err := c.load(ctx, p, ck, plan, name)
		if err != nil {
			for _, t := range loaded {
				t.Release()
			}
			return nil, err
		}
		if t != nil {
			loaded[name] = t
		}
	}
	return loaded, nil
}

// load loads this rank's share of one tensor, nil if it has none.
func (c *Communicator) load(
	ctx context.Context, p *tensor.Place, ck safetensors.Checkpoint, plan Plan, name string,
) (*tensor.Tensor, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("collective: Load: %w", context.Cause(ctx))
	}
	where, err := plan.For(name)
	if err != nil || where.kind == omit {
		return nil, err
	}
	info, ok := ck.Info(name)
	var t *tensor.Tensor
	switch {
	case !ok:
		err = errors.New("the checkpoint lists the name but has no such tensor")
	case where.kind == replicate:
		t, err = ck.Load(p, name)
	default:
		axis, bad := where.on(info.Shape)
		if bad != nil {
			err = bad
			break
		}
		start, length := Part(info.Shape[axis], c.Rank(), c.Size())
		t, err = ck.LoadSlice(p, name, axis, start, length)
	}
	if err != nil {
		return nil, fmt.Errorf("collective: Load: %s, %v: %w", name, where, err)
	}
	return t, nil
}

// on returns the axis along which a placement splits a shape.
func (l Placement) on(shape []int) (int, error) {
	axis := l.axis
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return 0, fmt.Errorf("%w: a tensor of shape %v has no axis %d", ErrShape, shape, l.axis)
	}
	return axis, nil
}
