package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// copies are the copies of tensors that sessions made on other devices. Its lock is a leaf: the goroutine that removes
// copies releases them after unlocking.
type copies struct {
	mu       sync.Mutex
	bySource map[tensor.WeakStorage][]*copied // has each live storage that was ever copied: its release is observed
	made     uint64
}

// copied is one copy. The session owns it.
type copied struct {
	number  uint64 // smaller is older
	session *Session
	device  int
	source  tensor.WeakStorage
	view    view
	tensor  *tensor.Tensor
}

// A view says which elements of a storage a tensor has.
type view struct {
	dtype          dtype.DType
	offset         int
	shape, strides []int
}

func viewOf(t *tensor.Tensor) view { return view{t.DType(), t.Offset(), t.Shape(), t.Strides()} }

func (v view) equal(o view) bool {
	return v.dtype == o.dtype && v.offset == o.offset && slices.Equal(v.shape, o.shape) &&
		slices.Equal(v.strides, o.strides)
}

// CopyTo returns t itself, if it is on the device, or a copy there. The copy is made once for each storage, type and
// view: later calls return the same copy, even if t was written since (see ClearCopies). The session owns the copy, and
// releases it with t's memory, in ClearCopies, or in Close. CopyTo waits until t is written, or until ctx ends. The
// session of a task of EachDevice can copy to every device of the engine. The error says that the session does not have
// the device, or is that of tensor.To.
func (s *Session) CopyTo(ctx context.Context, t *tensor.Tensor, i int) (*tensor.Tensor, error) {
	if err := s.enter("CopyTo"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	t.MustLive("CopyTo")
	dev, err := s.deviceFor("CopyTo", i)
	if err != nil {
		return nil, err
	}
	if t.Place().SameDevice(dev.device.place) {
		return t, nil
	}
	c := &copied{session: s, device: i, source: t.Storage().Weak(), view: viewOf(t)}
	all := &s.engine.copies
	if known := all.find(c); known != nil {
		s.log(DebugCopies, "CopyTo found the copy", slog.String("tensor", t.Brief()), slog.Int("device", i))
		return known, nil
	}
	if err := ready(ctx, t); err != nil {
		return nil, fmt.Errorf("engine: CopyTo device %d: %w", i, err)
	}
	made, err := t.To(s.place(dev).Unscoped())
	if err != nil {
		return nil, fmt.Errorf("engine: CopyTo device %d: %w", i, err)
	}
	c.tensor = made
	s.log(DebugCopies, "CopyTo",
		slog.String("tensor", t.Brief()), slog.String("from", t.Place().String()), slog.Int("device", i))
	if source := c.source; all.add(c) {
		t.Storage().OnRelease(func() { all.dropSource(source) })
	}
	return made, nil
}

// ready waits until the work that writes t is done, or ctx ends.
func ready(ctx context.Context, t *tensor.Tensor) error {
	s := t.Place().Stream()
	if err := t.Use(s, false); err != nil {
		return err
	}
	return s.Sync(ctx)
}

// ClearCopies releases all copies that CopyTo made for the session.
func (s *Session) ClearCopies() error {
	if err := s.enter("ClearCopies"); err != nil {
		return err
	}
	defer s.guard.leave()
	s.engine.copies.dropSession(s)
	return nil
}

// find returns the existing copy equal to c, or nil.
func (x *copies) find(c *copied) *tensor.Tensor {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range x.bySource[c.source] {
		if k.session == c.session && k.device == c.device && k.view.equal(c.view) {
			return k.tensor
		}
	}
	return nil
}

// add adds a copy, and reports whether it is the first of its source, whose release is then to be observed.
func (x *copies) add(c *copied) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.bySource == nil {
		x.bySource = map[tensor.WeakStorage][]*copied{}
	}
	x.made++
	c.number = x.made
	others, watched := x.bySource[c.source]
	x.bySource[c.source] = append(others, c)
	return !watched
}

// dropSource releases the copies of a source that was released.
func (x *copies) dropSource(source tensor.WeakStorage) {
	x.mu.Lock()
	out := x.bySource[source]
	delete(x.bySource, source)
	x.mu.Unlock()
	release(out)
}

// dropSession releases the copies of a session.
func (x *copies) dropSession(s *Session) {
	var out []*copied
	x.mu.Lock()
	for source, all := range x.bySource {
		x.bySource[source] = slices.DeleteFunc(all, func(c *copied) bool {
			if c.session == s {
				out = append(out, c)
			}
			return c.session == s
		})
	}
	x.mu.Unlock()
	// not by the order of the map
	slices.SortFunc(out, func(a, b *copied) int { return cmp.Compare(a.number, b.number) })
	release(out)
}

func release(all []*copied) {
	for _, c := range all {
		c.tensor.Release()
	}
}
