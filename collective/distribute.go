package collective

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// maxAxes is the maximum number of axes of a distributed tensor.
const maxAxes = 16

// Distribute gives every rank its share of a tensor that only rank root has, like BMEngine's distribute_parameter. t is
// the tensor on root; it is ignored on the others, which get type and shape from root. All ranks call it with the same
// placement, Replicate or Along an axis. The share is made at p; nil is the communicator's own place. The caller (or
// p's scope) owns it; on root it is a copy. Distribute waits until the others know the shape, and queues the rest. Root
// needs memory for one part at a time besides its own.
func Distribute(
	ctx context.Context, c *Communicator, p *tensor.Place, t *tensor.Tensor, where Placement, root int,
) (*tensor.Tensor, error) {
	const name = "Distribute"
	if p == nil {
		p = c.place
	}
	if err := c.peer(name, root); err != nil {
		return nil, err
	}
	if c.group != nil {
		return nil, refuse(ErrConfig, name, "it waits for its own calls: not in a Group")
	}
	if where.kind == omit {
		return nil, refuse(ErrConfig, name, "the placement gives it to no rank")
	}
	var unfit error // of root's tensor; the others wait for the result
	if c.Rank() == root {
		if unfit = fit(name, p, t, where); unfit != nil {
			t = nil
		}
	}
	d, shape, err := c.describe(ctx, p, t, root)
	switch {
	case unfit != nil:
		return nil, unfit
	case err != nil:
		return nil, err
	case d == dtype.Invalid:
		return nil, refuse(ErrShape, name, "rank %d has nothing that can be distributed %v: its error says why", root,
			where)
	}
	axis := -1
	if where.kind == along {
		if axis, err = where.on(shape); err != nil {
			return nil, fmt.Errorf("collective: %s: %w", name, err)
		}
	}
	if c.Rank() == root {
		return c.sendShares(p, t, axis)
	}
	if axis >= 0 {
		_, shape[axis] = Part(shape[axis], c.Rank(), c.Size())
	}
	share, err := tensor.Empty(p, d, shape...)
	if err != nil {
		return nil, err
	}
	if axis >= 0 {
		err = c.Recv(p, share, root)
	} else {
		err = c.Broadcast(p, share, root)
	}
	if err != nil {
		share.Release()
		return nil, err
	}
	return share, nil
}

// fit returns an error if root's tensor cannot be distributed.
func fit(name string, p *tensor.Place, t *tensor.Tensor, where Placement) error {
	if !t.Defined() {
		return refuse(ErrType, name, "the undefined tensor")
	}
	t.MustLive(name)
	if t.Rank() > maxAxes {
		return refuse(ErrShape, name, "%s has %d axes: want at most %d", t.Brief(), t.Rank(), maxAxes)
	}
	if !p.SameDevice(t.Place()) {
		return refuse(ErrDevice, name, "%s on %s, the place given on %v", t.Brief(), other(t.Place(), p), p)
	}
	if where.kind == along {
		if _, err := where.on(t.Shape()); err != nil {
			return fmt.Errorf("collective: %s: %w", name, err)
		}
	}
	return nil
}

// describe sends type and shape of root's tensor to all ranks. The type is Invalid if root has none.
func (c *Communicator) describe(
	ctx context.Context, p *tensor.Place, t *tensor.Tensor, root int,
) (dtype.DType, []int, error) {
	words := make([]int64, 2+maxAxes)
	if t != nil {
		words[0], words[1] = int64(t.DType()), int64(t.Rank())
		for i, n := range t.Shape() {
			words[2+i] = int64(n)
		}
	}
	told, err := tensor.FromSlice(p.Unscoped(), words)
	if err != nil {
		return dtype.Invalid, nil, err
	}
	defer told.Release()
	if err := c.Broadcast(p, told, root); err != nil {
		return dtype.Invalid, nil, err
	}
	if err := c.Wait(ctx, p); err != nil {
		return dtype.Invalid, nil, err
	}
	if words, err = tensor.ToSlice[int64](told); err != nil {
		return dtype.Invalid, nil, err
	}
	shape := make([]int, min(max(words[1], 0), maxAxes))
	for i := range shape {
		shape[i] = int(words[2+i])
	}
	return dtype.DType(words[0]), shape, nil
}

// sendShares is root's part: it sends the other ranks their shares, and returns a copy of its own.
func (c *Communicator) sendShares(p *tensor.Place, t *tensor.Tensor, axis int) (*tensor.Tensor, error) {
	if axis < 0 {
		share, err := t.Clone(p)
		if err == nil {
			if err = c.Broadcast(p, share, c.Rank()); err != nil {
				share.Release()
			}
		}
		if err != nil {
			return nil, err
		}
		return share, nil
	}
	var share *tensor.Tensor
	for rank := range c.Size() {
		start, length := Part(t.Dim(axis), rank, c.Size())
		part, err := t.Narrow(axis, start, length)
		switch {
		case err != nil:
		case rank == c.Rank():
			share, err = part.Clone(p)
		default:
			err = c.sendCopy(p, part, rank)
		}
		if err != nil {
			if share != nil {
				share.Release()
			}
			return nil, err
		}
	}
	return share, nil
}

// sendCopy sends a view, through a copy unless it is contiguous.
func (c *Communicator) sendCopy(p *tensor.Place, view *tensor.Tensor, to int) error {
	part, err := view.Contiguous(p.Unscoped())
	if err != nil {
		return err
	}
	defer part.Release()
	return c.Send(p, part, to)
}
