package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// reach is the distance from the anchor beyond which a stamp becomes the next anchor.
const reach = time.Second

// A claim is a stamp that a Read took from a ring to turn it into a time.
type claim struct {
	number uint64
	of     field
	mark   driver.Mark // its stamp's
	point  point
	err    error
}

// A field names the point of a span or sample that a claim is for.
type field uint8

const (
	spanBegin field = iota
	spanEnd
	samplePoint
)

// Read waits until the device has reached everything recorded so far, and returns it. The spans stay for the next Read;
// see Reset. If stamps were refused or could not be read, the Recording is complete, their spans have no time, and the
// error tells their number and the first cause. If ctx ends first, the Recording has what the device has done by then,
// and the error is that of ctx. After Close there is no Recording, and the error matches driver.ErrClosed.
//
// Read waits on a stream of its own: it consumes no error of the caller's streams and queues nothing on them.
func (r *Recorder) Read(ctx context.Context) (*Recording, error) {
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-r.reading }()
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	waited := r.resolve(ctx)
	rec, failed := r.recording()
	return rec, errors.Join(waited, failed)
}

var errClosed = &driver.Error{Call: "timeline.Recorder", Code: driver.ErrClosed}

// lock takes the token. If the token is free, it does so even when ctx has ended.
func (r *Recorder) lock(ctx context.Context) error {
	select {
	case r.reading <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// resolve turns as many stamps into times as it can until ctx ends. The caller holds the token.
func (r *Recorder) resolve(ctx context.Context) error {
	claims := r.take()
	fresh := r.anchor.state == nothing
	var err error
	if left := r.settle(claims); left > 0 {
		err = r.wait(ctx, claims)
		if left = r.settle(claims); left == 0 {
			err = nil
		} else if err == nil {
			err = driver.ErrNotReady
		}
		if err != nil {
			err = fmt.Errorf("timeline: %s: the device has not got to %d stamps: %w", r.opts.Name, left, err)
		}
	}
	if fresh {
		r.setZero(claims)
	}
	r.give(claims)
	return err
}

// take takes the stamps out of the rings, in the order of streams and of the work on each.
func (r *Recorder) take() []claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var claims []claim
	from := func(p *point, number uint64, of field) {
		if p.state == queued {
			claims = append(claims, claim{number: number, of: of, mark: p.stamp.Mark, point: *p})
			*p = point{state: taken}
		}
	}
	for _, n := range r.spans.numbers() {
		sp := r.spans.get(n)
		from(&sp.begin, n, spanBegin)
		from(&sp.end, n, spanEnd)
	}
	for n := r.samples.first + 1; n <= r.samples.last; n++ {
		from(&r.samples.get(n).point, n, samplePoint)
	}
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.mark.Stream, b.mark.Stream), cmp.Compare(a.mark.Tick, b.mark.Tick),
			cmp.Compare(a.point.stamp.ID, b.point.stamp.ID))
	})
	return claims
}

// settle turns the reached stamps into times, returns those stamps and the unreadable ones to the device, and returns
// the number of the others.
func (r *Recorder) settle(claims []claim) (left int) {
	for i := range claims {
		if c := &claims[i]; c.point.state == queued && !r.measure(c) {
			left++
		}
	}
	return left
}

// measure turns one stamp into a time, and reports false if the device has not reached it.
func (r *Recorder) measure(c *claim) bool {
	p, from := &c.point, r.anchor
	if from.state == nothing {
		from.stamp = p.stamp
	}
	elapsed, err := r.clock.Elapsed(from.stamp, p.stamp)
	switch {
	case errors.Is(err, driver.ErrNotReady), errors.Is(err, driver.ErrCapturing):
		return false
	case err != nil:
		c.err = err
		r.discard(p)
		return true
	}
	measured := point{state: known, at: from.at + elapsed}
	if from.state == nothing || elapsed.Abs() > reach {
		r.discard(&r.anchor)
		r.anchor = measured
		r.anchor.stamp = p.stamp
	} else {
		r.discard(p)
	}
	*p = measured
	return true
}

// wait waits until the remaining stamps are reached, or ctx ends.
func (r *Recorder) wait(ctx context.Context, claims []claim) error {
	if err := r.ownStream(); err != nil {
		return err
	}
	var errs []error
	for i, c := range claims {
		last := i+1 == len(claims) || claims[i+1].mark.Stream != c.mark.Stream
		if last && c.point.state == queued {
			errs = append(errs, r.stream.WaitFor(c.point.stream, c.mark))
		}
	}
	return errors.Join(append(errs, r.stream.Sync(ctx))...)
}

// ownStream makes the stream on which the Recorder waits.
func (r *Recorder) ownStream() (err error) {
	if r.stream == nil {
		r.stream, err = r.dev.NewStream(driver.StreamOptions{})
	}
	return err
}

// setZero makes the earliest time zero, at the first Read.
func (r *Recorder) setZero(claims []claim) {
	zero := time.Duration(math.MaxInt64)
	for _, c := range claims {
		if c.point.state == known {
			zero = min(zero, c.point.at)
		}
	}
	for i := range claims {
		if c := &claims[i]; c.point.state == known {
			c.point.at -= zero
		}
	}
	if r.anchor.state == known {
		r.anchor.at -= zero
	}
}

// give puts the points back into the rings.
func (r *Recorder) give(claims []claim) {
	var gone []point
	r.mu.Lock()
	for _, c := range claims {
		var p *point
		var err *error
		if c.of == samplePoint {
			if sm := r.samples.get(c.number); sm != nil {
				p, err = &sm.point, &sm.err
			}
		} else if sp := r.spans.get(c.number); sp != nil {
			p, err = &sp.begin, &sp.err
			if c.of == spanEnd {
				p = &sp.end
			}
		}
		if p == nil { // dropped while the stamp was out of the ring
			gone = append(gone, c.point)
			continue
		}
		*p = c.point
		*err = cmp.Or(*err, c.err)
	}
	r.mu.Unlock()
	for i := range gone {
		r.discard(&gone[i])
	}
}
