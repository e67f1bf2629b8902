package collective

import (
	"slices"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/tensor"
)

// AllReduce queues dst = op over the ranks of src, with the same bits on every rank. Dst and src have the same shape
// and type, and are the same memory (perhaps the same tensor) or share none. The transport determines which types an op
// supports: the error for others matches driver.ErrUnsupported.
func (c *Communicator) AllReduce(p *tensor.Place, op Op, dst, src *tensor.Tensor) error {
	const name = "AllReduce"
	p, err := c.check(name, p, true, dst, src)
	if err != nil {
		return err
	}
	if !slices.Equal(dst.Shape(), src.Shape()) {
		return refuse(ErrShape, name, "into %s from %s: want one shape", dst.Brief(), src.Brief())
	}
	if dst.Overlaps(src) && !dst.SameElements(src) {
		return refuse(ErrLayout, name, "%s and %s overlap and are not the same elements", dst.Brief(), src.Brief())
	}
	call := comm.Call{Kind: comm.AllReduce, Op: op, Type: src.DType(), N: src.Len()}
	return c.reduce(name, p, call, dst, src)
}

// Broadcast queues a copy of rank root's t to t of every other rank. All have the same shape and type.
func (c *Communicator) Broadcast(p *tensor.Place, t *tensor.Tensor, root int) error {
	const name = "Broadcast"
	p, err := c.check(name, p, true, t)
	if err == nil {
		err = c.peer(name, root)
	}
	if err != nil {
		return err
	}
	call := comm.Call{Kind: comm.Broadcast, Type: t.DType(), N: t.Len(), Peer: root}
	if root == c.Rank() {
		return c.do(p, job{name, call, t, t})
	}
	return c.do(p, job{name, call, t, nil})
}

// AllGather queues a copy of every rank's src to its part of dst, on all ranks. Dst has src's shape with a new first
// axis of length Size, or with its first axis Size times as long; the parts are in the order of the ranks. Src must be
// this rank's part of dst, or share no memory with dst.
func (c *Communicator) AllGather(p *tensor.Place, dst, src *tensor.Tensor) error {
	const name = "AllGather"
	p, err := c.check(name, p, true, dst, src)
	if err == nil {
		err = c.parts(name, dst, src)
	}
	if err != nil {
		return err
	}
	return c.do(p, job{name, comm.Call{Kind: comm.AllGather, Type: src.DType(), N: src.Len()}, dst, src})
}

// ReduceScatter queues dst = this rank's part of op over the ranks of src. Src has dst's shape with a new first axis of
// length Size, or with its first axis Size times as long. Dst is this rank's part of src (then the rest of src is
// undefined), or shares no memory with it. Types are as for AllReduce.
func (c *Communicator) ReduceScatter(p *tensor.Place, op Op, dst, src *tensor.Tensor) error {
	const name = "ReduceScatter"
	p, err := c.check(name, p, true, dst, src)
	if err == nil {
		err = c.parts(name, src, dst)
	}
	if err != nil {
		return err
	}
	return c.reduce(name, p, comm.Call{Kind: comm.ReduceScatter, Op: op, Type: src.DType(), N: dst.Len()}, dst, src)
}

// Send queues a send of t to rank to, which must receive it with Recv into a tensor of the same type and number of
// elements. A send of this rank to itself must be in one Group with its Recv.
func (c *Communicator) Send(p *tensor.Place, t *tensor.Tensor, to int) error {
	const name = "Send"
	p, err := c.check(name, p, false, t)
	if err == nil {
		err = c.peer(name, to)
	}
	if err != nil {
		return err
	}
	return c.do(p, job{name, comm.Call{Kind: comm.Send, Type: t.DType(), N: t.Len(), Peer: to}, nil, t})
}

// Recv queues a receive of t from rank from, which sends it. Several sends and receives between two ranks match in the
// order of the calls.
func (c *Communicator) Recv(p *tensor.Place, t *tensor.Tensor, from int) error {
	const name = "Recv"
	p, err := c.check(name, p, true, t)
	if err == nil {
		err = c.peer(name, from)
	}
	if err != nil {
		return err
	}
	return c.do(p, job{name, comm.Call{Kind: comm.Recv, Type: t.DType(), N: t.Len(), Peer: from}, t, nil})
}

// reduce queues a call with an operation.
func (c *Communicator) reduce(name string, p *tensor.Place, call comm.Call, dst, src *tensor.Tensor) error {
	if call.Op > Avg {
		return refuse(ErrType, name, "no operation has the number %d", uint8(call.Op))
	}
	return c.do(p, job{name, call, dst, src})
}
