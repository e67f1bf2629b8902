package collective

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/tensor"
)

// A job is a call with its tensors, which may be nil.
type job struct {
	name     string
	call     comm.Call // without operands
	dst, src *tensor.Tensor
}

// A group is a list of jobs that are queued together.
type group struct {
	place *tensor.Place // the place of the first job
	jobs  []job
}

// Group queues the operations that f calls, all on one stream, together when f returns nil. They run at the same time,
// so a rank may send and receive at once. If f returns an error, none is queued, and Group returns that error. A tensor
// that one of them writes must not be used by another, and all tensors must live until Group returns. Groups within a
// group are part of it.
func (c *Communicator) Group(f func() error) error {
	if c.group != nil {
		return f()
	}
	if err := c.usable(); err != nil {
		return err
	}
	g := &group{}
	c.group = g
	defer func() { c.group = nil }() // even if f panics
	if err := f(); err != nil {
		return err
	}
	c.group = nil
	if len(g.jobs) == 0 {
		return nil
	}
	return c.queue(g.place, g.jobs)
}

// do queues a job, or adds it to the group.
func (c *Communicator) do(p *tensor.Place, j job) error {
	g := c.group
	if g == nil {
		return c.queue(p, []job{j})
	}
	if g.place == nil {
		g.place = p
	}
	if g.place.Stream() != p.Stream() {
		return refuse(ErrDevice, j.name, "it is on another stream than the calls before it in the group")
	}
	g.jobs = append(g.jobs, j)
	return nil
}

// queue makes p's stream wait for earlier uses of the operands, and makes the transport queue the calls. No other
// function accesses the memory of tensors.
func (c *Communicator) queue(p *tensor.Place, jobs []job) error {
	if err := c.usable(); err != nil {
		return err
	}
	if !c.matchesSelf(jobs) {
		return refuse(ErrRank, jobs[0].name, "rank %d sends to itself without a Recv in the same Group", c.Rank())
	}
	calls := make([]comm.Call, len(jobs))
	for i, j := range jobs {
		for _, use := range [...]struct {
			t      *tensor.Tensor
			writes bool
		}{{j.src, false}, {j.dst, true}} {
			if use.t == nil {
				continue
			}
			use.t.Pin()
			defer use.t.Unpin() // after its work is queued
			if err := use.t.Use(p.Stream(), use.writes); err != nil {
				return fmt.Errorf("collective: %s: %w", j.name, err)
			}
		}
		calls[i] = j.call
		calls[i].Dst, calls[i].Src = operand(j.dst), operand(j.src)
	}
	c.mu.Lock()
	c.streams[p.Stream().ID()] = p.Stream()
	c.mu.Unlock()
	err := c.transport.Queue(p.Stream(), calls...)
	if err == nil {
		return nil
	}
	if failed := c.awaitOutcome(context.Background()); failed != nil { // soon: see hub.suspect
		return failed
	}
	j := jobs[0]
	return fmt.Errorf("collective: %s of %d %v: %w", j.name, j.call.N, j.call.Type, err)
}

// matchesSelf reports whether a group has a receive for each send of this rank to itself.
func (c *Communicator) matchesSelf(jobs []job) bool {
	open := 0
	for _, j := range jobs {
		switch {
		case j.call.Peer != c.Rank():
		case j.call.Kind == comm.Send:
			open++
		case j.call.Kind == comm.Recv:
			open--
		}
	}
	return open == 0
}

// operand returns the elements of a contiguous tensor.
func operand(t *tensor.Tensor) comm.Operand {
	if t == nil || t.Len() == 0 {
		return comm.Operand{}
	}
	a := t.Array()
	start, size := int64(a.Offset)*int64(a.DType.Size()), t.Size()
	var o comm.Operand
	if a.Ptr != 0 {
		o.Ptr = a.Ptr + driver.Pointer(start)
	}
	if a.Bytes != nil {
		o.Bytes = a.Bytes[start : start+size : start+size]
	}
	return o
}
