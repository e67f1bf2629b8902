package driver

import (
	"errors"
	"fmt"
	"sync"
)

// keptStreams is how many idle streams a StreamPool keeps unless Keep says otherwise, as BMEngine's does.
const keptStreams = 16

// A StreamPool lends the streams of one device, so that work which needs a stream for a short while makes none of its
// own, and ends none, which would wait for its work. It keeps up to 16 streams that nobody has (see Keep), and lends the one that came
// back last. Safe for concurrent use: one lock, a leaf, not held while the device is called.
//
// A stream comes back with the work that was queued on it, done or not. Whoever gets it next is queued behind that work,
// and waits for it where he waits for the stream; the marks of those who had it before stay valid. Nothing is waited for,
// but where a stream is closed: Stream.Close waits for its work.
type StreamPool struct {
	dev  Device
	opts StreamOptions

	mu     sync.Mutex
	most   int      // that are kept
	kept   []Stream // the last one back is the last
	lent   []Stream // by ID; nil where the pool has lent no stream of that number
	closed bool
}

// NewStreamPool returns an empty pool of streams of dev, which are made as opts say. Options with a Foreign stream panic:
// that is one stream, and others may hold it.
func NewStreamPool(dev Device, opts StreamOptions) *StreamPool {
	if dev == nil || opts.Foreign != 0 {
		panic(fmt.Sprintf("driver: NewStreamPool(%v, %+v): want a device, and no foreign stream", dev, opts))
	}
	return &StreamPool{dev: dev, opts: opts, most: keptStreams}
}

// Keep has the pool keep up to n streams from now on, more or fewer than 16: where many borrowers come and go, a stream that is
// closed only to be made again costs time, and its number is used up.
func (p *StreamPool) Keep(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = n
}

// Get lends the stream that was put back last, or a new one if none is kept. The caller puts it back, or closes it and
// forgets it. The error is the device's, or matches ErrClosed.
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
		p.lend(s)
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	s, err := p.dev.NewStream(p.opts)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.lend(s)
	p.mu.Unlock()
	return s, nil
}

// lend notes who is out. A number that is taken was that of a stream whose borrower closed it. The caller holds mu.
func (p *StreamPool) lend(s Stream) {
	id := int(s.ID())
	for len(p.lent) <= id {
		p.lent = append(p.lent, nil)
	}
	p.lent[id] = s
}

// Put takes back a stream that Get lent, for the next who asks; its former borrower queues nothing more on it. Work on it
// need not be done, but no capture may be under way. With as many streams kept as there may be, or after Close, the stream is closed instead,
// which waits for its work, and the error is that of closing it.
//
// Put panics if this pool did not lend the stream, or has it back already.
func (p *StreamPool) Put(s Stream) error {
	id := int(s.ID())
	p.mu.Lock()
	if id >= len(p.lent) || p.lent[id] != s {
		p.mu.Unlock()
		panic(fmt.Sprintf("driver: StreamPool.Put of stream %d, which is not on loan from this pool: "+
			"it was put back already, or came from elsewhere", id))
	}
	p.lent[id] = nil
	if keep := !p.closed && len(p.kept) < p.most; keep {
		p.kept = append(p.kept, s)
		p.mu.Unlock()
		return nil
	}
	p.mu.Unlock()
	return s.Close()
}

// Close closes the streams that are kept, after their work. Those on loan are closed when they are put back; Get fails
// from now on. The error joins those of the streams. Closing twice is nothing.
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
