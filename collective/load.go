package collective

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// A Placement says what each rank has of a tensor: Replicate, Omit, or a part Along an axis.
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
	Omit      = Placement{kind: omit} // no rank has any
)

// Along gives each rank its part of an axis, which counts from the last if it is negative: see Part.
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

// Part returns which of n indices are rank's, one of size: length from start on. The parts lie in the order of the
// ranks, and where n is no multiple of size the first ranks have one more than the others.
func Part(n, rank, size int) (start, length int) {
	each, more := n/size, n%size
	start, length = rank*each+min(rank, more), each
	if rank < more {
		length++
	}
	return start, length
}

// A Rule places the tensors whose names match Pattern, as path.Match has it: * is any text without a slash, dots
// included.
type Rule struct {
	Pattern string
	Placement
}

// A Plan says where the tensors of a checkpoint go: by the first rule that matches a name, or else by Default.
type Plan struct {
	Rules   []Rule
	Default Placement
}

// For returns the placement of a tensor. The error says which pattern is none.
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

// Load loads this rank's share of a checkpoint to p, nil for the communicator's own place: tensors that are replicated,
// whole, and of those that are split its own part, the only one that is read. The tensors have their names in the
// checkpoint, and the caller (or p's scope) owns them. It looks whether ctx has ended before each; at that or any other
// error nothing is left loaded. Every rank opens the checkpoint for itself: Load does not speak to the others, and
// fails alone. (Distribute is for what one rank alone can read.)
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
		err = errors.New("the checkpoint names it and does not know it")
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

// on returns the axis of a shape that a placement splits.
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
