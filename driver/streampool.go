package driver

import (
	"errors"
	"fmt"
	"sync"
)

// keptStreams is how many idle streams a StreamPool keeps unless Keep says otherwise, as BMEngine's does.
const keptStreams = 16

// A StreamPool reuses the streams of one device for callers that need a stream for a short time. Get returns the stream
// that was put back last, or a new one. The pool keeps up to 16 unused streams (see Keep). It is safe for concurrent
// use: its lock is a leaf, and is not held while the device is called.
//
// A stream may be put back before its work is done. Work of its next user is queued after that work, and marks taken on
// it stay valid. Only closing a stream waits: Stream.Close waits for its work.
type StreamPool struct {
	dev  Device
	opts StreamOptions

	mu     sync.Mutex
	most   int      // unused streams that are kept
	kept   []Stream // the one put back last is the last
	inUse  []Stream // by ID; nil where no stream with that ID is in use
	closed bool
}

// NewStreamPool returns an empty pool of streams of dev, which are made with opts. It panics if opts has a Foreign
// stream, which is not the pool's to reuse.
func NewStreamPool(dev Device, opts StreamOptions) *StreamPool {
	if dev == nil || opts.Foreign != 0 {
		panic(fmt.Sprintf("driver: NewStreamPool(%v, %+v): want a device, and no foreign stream", dev, opts))
	}
	return &StreamPool{dev: dev, opts: opts, most: keptStreams}
}

// Keep sets the maximum number of unused streams that the pool keeps. A pool with many users should keep more: closing
// a stream and making another costs time, and uses up a number.
func (p *StreamPool) Keep(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = n
}

// Get returns the stream that was put back last, or a new one. The caller puts it back, or closes it. The error is the
// device's, or matches ErrClosed.
func (p *StreamPool) Get() (Stream, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, &Error{Call: "StreamPool.Get", Code: ErrClosed}
	}
	if n := len(p.kept); n > 0 {
		s := p.kept[n-1]
		p.kept[n-1] = nil
		p.kept = p.kept[:n-1]
		p.markInUse(s)
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	s, err := p.dev.NewStream(p.opts)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.markInUse(s)
	p.mu.Unlock()
	return s, nil
}

// markInUse records a stream as in use. It replaces one of the same ID that its user closed. The caller holds mu.
func (p *StreamPool) markInUse(s Stream) {
	id := int(s.ID())
	for len(p.inUse) <= id {
		p.inUse = append(p.inUse, nil)
	}
	p.inUse[id] = s
}

// Put returns a stream of Get to the pool. The caller must not use it any more. Its work need not be done, but it must
// not be capturing. If the pool has the maximum of unused streams, or is closed, Put closes the stream, which waits for
// its work, and returns the error of that.
//
// Put panics if the stream is not from this pool's Get, or was put back already.
func (p *StreamPool) Put(s Stream) error {
	id := int(s.ID())
	p.mu.Lock()
	if id >= len(p.inUse) || p.inUse[id] != s {
		p.mu.Unlock()
		panic(fmt.Sprintf("driver: StreamPool.Put of stream %d, which is not in use from this pool: "+
			"it was put back already, or came from elsewhere", id))
	}
	p.inUse[id] = nil
	if keep := !p.closed && len(p.kept) < p.most; keep {
		p.kept = append(p.kept, s)
		p.mu.Unlock()
		return nil
	}
	p.mu.Unlock()
	return s.Close()
}

// Close closes the unused streams, after their work. Streams in use are closed when they are put back. Get fails from
// now on. The error joins those of the streams. Closing twice is a no-op.
func (p *StreamPool) Close() error {
	p.mu.Lock()
	kept := p.kept
	p.kept, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, s := range kept {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
