package ring

import (
	"io"
	"sync"
)

// A wire carries bytes both ways, in order. One goroutine sends at a time and one receives.
type wire interface {
	// send writes head and payload. They may be changed after it returns.
	send(head, payload []byte) error

	// receive reads all of b.
	receive(b []byte) error

	// receiveInPlace calls use with the next bytes, at least one and at most n, and returns their number. The number is
	// a multiple of 16, or n, or the rest of one send.
	receiveInPlace(n int, use func([]byte)) (int, error)

	// Close ends both directions, including sends and receives in progress.
	Close() error
}

// A pipe is one end of a wire between goroutines. It has no buffer: the receiver uses the sender's memory while the
// sender waits.
type pipe struct{ in, out *half }

func newPipe() (pipe, pipe) {
	a, b := newHalf(), newHalf()
	return pipe{a, b}, pipe{b, a}
}

// A half is one direction.
type half struct {
	mu     sync.Mutex
	moved  sync.Cond
	data   []byte // bytes being sent
	inUse  bool   // data is in use
	closed bool
}

func newHalf() *half {
	h := &half{}
	h.moved.L = &h.mu
	return h
}

func (p pipe) send(head, payload []byte) error {
	if err := p.out.offer(head); err != nil {
		return err
	}
	return p.out.offer(payload)
}

// offer waits until b has been received. Even after Close it waits until b is no longer in use.
func (h *half) offer(b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = b
	h.moved.Broadcast()
	for h.inUse || len(h.data) > 0 && !h.closed {
		h.moved.Wait()
	}
	if len(h.data) > 0 {
		h.data = nil
		return io.ErrClosedPipe
	}
	return nil
}

func (p pipe) receive(b []byte) error {
	for done := 0; done < len(b); {
		n, err := p.receiveInPlace(len(b)-done, func(part []byte) { copy(b[done:], part) })
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

func (p pipe) receiveInPlace(n int, use func([]byte)) (int, error) {
	h := p.in
	h.mu.Lock()
	for len(h.data) == 0 && !h.closed {
		h.moved.Wait()
	}
	if h.closed {
		h.mu.Unlock()
		return 0, io.EOF
	}
	part := h.data[:min(n, len(h.data))]
	h.inUse = true
	h.mu.Unlock()

	use(part)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.inUse, h.data = false, h.data[len(part):]
	h.moved.Broadcast()
	return len(part), nil
}

func (p pipe) Close() error {
	for _, h := range []*half{p.in, p.out} {
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		h.moved.Broadcast()
	}
	return nil
}
