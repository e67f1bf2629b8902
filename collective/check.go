package collective

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/tensor"
)

// check returns the place to work at: p or the first tensor's. It returns an error unless the tensors have one type,
// are contiguous and on the communicator's device, and, if writes is set, work at the place can write to the first. It
// panics if a tensor was released.
func (c *Communicator) check(
	name string, p *tensor.Place, writes bool, tensors ...*tensor.Tensor,
) (*tensor.Place, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	first := tensors[0]
	for _, t := range tensors {
		if !t.Defined() {
			return nil, refuse(ErrType, name, "an operand is the undefined tensor")
		}
		t.MustLive(name)
		switch {
		case !c.place.SameDevice(t.Place()):
			return nil, refuse(ErrDevice, name, "%s on %s: rank %d is on %v", t.Brief(), other(t.Place(), c.place),
				c.Rank(), c.place)
		case t.DType() != first.DType():
			return nil, refuse(ErrType, name, "%s and %s: want one type", first.Brief(), t.Brief())
		case !t.IsContiguous():
			return nil, refuse(ErrLayout, name, "%s with strides %v: want contiguous elements (Contiguous copies)",
				t.Brief(), t.Strides())
		}
	}
	if p == nil {
		p = first.Place()
	}
	if !c.place.SameDevice(p) {
		return nil, refuse(ErrDevice, name, "the place given is on %s: rank %d is on %v", other(p, c.place), c.Rank(),
			c.place)
	}
	if writes {
		if err := first.Writable(name, p); err != nil {
			return nil, fmt.Errorf("collective: %w", err)
		}
	}
	return p, nil
}

// other returns a name for p, which is not on q's device.
func other(p, q *tensor.Place) string {
	if p.String() == q.String() {
		return "another " + p.String()
	}
	return p.String()
}

// peer returns an error unless the rank exists.
func (c *Communicator) peer(name string, rank int) error {
	if rank < 0 || rank >= c.Size() {
		return refuse(ErrRank, name, "rank %d: there are %d", rank, c.Size())
	}
	return nil
}

// parts returns an error unless whole has a part with part's shape for every rank, and part is this rank's part or
// shares no memory with whole.
func (c *Communicator) parts(name string, whole, part *tensor.Tensor) error {
	shape, each := whole.Shape(), part.Shape()
	stacked := len(shape) == len(each)+1 && shape[0] == c.Size() && slices.Equal(shape[1:], each)
	joined := len(shape) == len(each) && len(each) > 0 && shape[0] == c.Size()*each[0] &&
		slices.Equal(shape[1:], each[1:])
	if !stacked && !joined {
		return refuse(ErrShape, name, "%s for %d ranks' %s: want a first axis of length %d, new or that times as long",
			whole.Brief(), c.Size(), part.Brief(), c.Size())
	}
	if !whole.Overlaps(part) {
		return nil
	}
	n := part.Len()
	own := tensor.Must(tensor.Must(whole.Reshape(whole.Len())).Narrow(0, c.Rank()*n, n))
	if !own.SameElements(tensor.Must(part.Reshape(n))) {
		return refuse(ErrLayout, name, "%s lies in %s, and is not the part of rank %d", part.Brief(), whole.Brief(),
			c.Rank())
	}
	return nil
}
