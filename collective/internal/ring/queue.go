package ring

import (
	"context"
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
)

// A member is a call of a group with the memory of its operands.
type member struct {
	comm.Call
	dst, src []byte
}

// Queue implements comm.Transport. On a device without visible memory or without kernels it waits for the stream and
// the other ranks, and also returns their errors.
func (t *transport) Queue(s driver.Stream, calls ...comm.Call) error {
	const name = "Transport.Queue"
	if err := t.check(name, calls); err != nil {
		return err
	}
	if err := t.begin(name); err != nil {
		return err
	}
	queued := false
	defer func() {
		if !queued {
			t.jobs.Done()
		}
	}()
	if g := t.dev.Graphs(); g != nil {
		if capturing, err := g.Capturing(s); err != nil {
			return err
		} else if capturing {
			return &driver.Error{Call: name, Code: driver.ErrCapturing, Detail: "other ranks do not launch the graph"}
		}
	}
	if t.kernels == nil {
		return t.queueCopies(s, calls)
	}
	group := make([]member, len(calls))
	var reads, writes []driver.Range
	for i, c := range calls {
		group[i].Call = c
		for _, o := range group[i].operands(t.size) {
			b, err := t.bytes(o)
			if err != nil {
				return err
			}
			*o.to = b
			if r := (driver.Range{Ptr: o.Ptr, Size: int64(o.size)}); o.Ptr == 0 || o.size == 0 {
				continue
			} else if o.written {
				writes = append(writes, r)
			} else {
				reads = append(reads, r)
			}
		}
	}
	before, done := t.last, make(chan struct{})
	err := t.kernels.Launch(s, driver.Kernel{
		Name: "collective", Reads: reads, Writes: writes,
		Func: func(driver.Memory) error {
			defer t.jobs.Done()
			defer close(done)
			select {
			case <-before:
			case <-t.failed:
			}
			return t.perform(group)
		},
	})
	if err != nil {
		return err
	}
	t.last, queued = done, true
	return nil
}

// check returns an error for calls that this transport does not support.
func (t *transport) check(name string, calls []comm.Call) error {
	for _, c := range calls {
		if _, ok := reducerFor(c.Op, c.Type, t.size); reduces(c.Kind) && !ok {
			return &driver.Error{
				Call: name, Code: driver.ErrUnsupported, Detail: fmt.Sprintf("%v (%v) of %v", c.Kind, c.Op, c.Type),
			}
		}
	}
	return nil
}

// begin counts a job, or returns the reason why no more can be queued.
func (t *transport) begin(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closing:
		return &driver.Error{Call: name, Code: driver.ErrClosed, Detail: "the transport"}
	case t.cause != nil:
		return fmt.Errorf("ring: aborted: %w (after: %w)", t.cause, t.err)
	case t.err != nil:
		return t.err
	}
	t.jobs.Add(1)
	return nil
}

// An operand is an operand of a call on this rank, with the variable for its memory.
type operand struct {
	comm.Operand
	size    int
	written bool
	to      *[]byte
}

// operands returns the operands of the call with their sizes in bytes, those that are read first.
func (m *member) operands(ranks int) []operand {
	size := m.N * m.Type.Size()
	src, dst := operand{m.Src, size, false, &m.src}, operand{m.Dst, size, true, &m.dst}
	switch m.Kind {
	case comm.Broadcast, comm.Recv:
		return []operand{dst}
	case comm.Send:
		return []operand{src}
	case comm.AllGather:
		dst.size *= ranks
	case comm.ReduceScatter:
		src.size *= ranks
	case comm.AllReduce:
	}
	return []operand{src, dst}
}

// bytes returns the memory of an operand on a device with visible memory.
func (t *transport) bytes(o operand) ([]byte, error) {
	if o.Bytes == nil && o.size > 0 {
		return t.visible.Bytes(o.Ptr, int64(o.size))
	}
	return o.Bytes[:o.size], nil
}

// queueCopies copies the operands to the host, makes the calls, and copies the results back.
func (t *transport) queueCopies(s driver.Stream, calls []comm.Call) error {
	if err := s.Sync(context.Background()); err != nil {
		return err
	}
	group := make([]member, len(calls))
	for i, c := range calls {
		m := &group[i]
		m.Call = c
		for _, o := range m.operands(t.size) {
			switch {
			case o.Bytes != nil || o.size == 0:
				*o.to = o.Bytes[:o.size]
				continue
			case o.written && c.Kind == comm.AllReduce && c.Dst.Ptr == c.Src.Ptr:
				m.dst = m.src
				continue
			}
			*o.to = make([]byte, o.size)
			if !o.written || c.Kind == comm.Broadcast && c.Peer == t.rank {
				if err := s.CopyOut(*o.to, o.Ptr); err != nil {
					return err
				}
			}
		}
	}
	if err := t.perform(group); err != nil {
		return err
	}
	for i := range group {
		m := &group[i]
		for _, o := range m.operands(t.size) {
			if o.written && o.Bytes == nil && o.size > 0 && (m.Kind != comm.Broadcast || m.Peer != t.rank) {
				if err := s.CopyIn(o.Ptr, *o.to); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Close waits for queued work. It does not wait for other ranks to close, except for a rank that is alive and does not
// read; Abort ends that wait, too. Closing twice is not an error. Err returns the error of the transport.
func (t *transport) Close() error {
	t.mu.Lock()
	t.closing = true
	t.mu.Unlock()
	t.jobs.Wait()
	t.mu.Lock()
	t.done = true // first, because another rank that also closes may end its link without a bye frame
	t.mu.Unlock()
	for _, l := range t.links {
		if l != nil {
			l.leave()
		}
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, l := range t.links {
		if l != nil {
			_ = l.wire.Close() // Abort may have closed it
		}
	}
	t.alive.Wait()
	return nil
}
