package timeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// alignTries is how often clocks are compared; the closest comparison counts.
const alignTries = 8

// recorders numbers them, for the order in which Align holds several.
var recorders atomic.Uint64

// Align sets the time zero of several devices' recorders to now, so that one file can hold their recordings. It forgets
// everything recorded so far. Call it while the devices are idle: it waits for stamps on streams of its own only, but a
// busy device may delay them, which makes skew larger.
//
// Align compares the clock of each device with that of the first: it takes a stamp of one device between two stamps of
// the other, each after the previous one was reached. skew bounds the difference between the times that two of the
// devices give for one instant: half the distance of the two stamps, or the sum of both for two devices that were each
// compared with the first. Clocks drift apart from then on; call Align again where that matters.
//
// The error matches driver.ErrUnsupported if a device has no clock, and driver.ErrClosed after Close; it is that of ctx
// if ctx ends first. In each of these cases the recorders keep their contents, but some may have the new time zero.
// Align panics if a Recorder is given twice.
func Align(ctx context.Context, all ...*Recorder) (skew time.Duration, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *Recorder) int { return cmp.Compare(a.number, b.number) })
	for i, r := range sorted {
		if i > 0 && sorted[i-1] == r {
			panic("timeline: Align with one Recorder twice")
		}
	}
	if ctx.Err() != nil { // a fast device may need no wait, which would see ctx
		return 0, context.Cause(ctx)
	}
	for _, r := range sorted {
		if err := r.lock(ctx); err != nil {
			return 0, err
		}
		defer func() { <-r.reading }()
		if err := r.ready(); err != nil {
			return 0, err
		}
	}
	anchors := make([]point, len(all))
	defer func() {
		for i, r := range all {
			r.discard(&anchors[i]) // those that did not become anchors
		}
	}()
	first := all[0]
	if anchors[0], err = first.instant(ctx); err != nil {
		return 0, err
	}
	var most, second time.Duration
	for i, r := range all[1:] {
		var half time.Duration
		if anchors[i+1], half, err = first.compare(ctx, anchors[0], r); err != nil {
			return 0, err
		}
		if half > most {
			most, second = half, most
		} else {
			second = max(second, half)
		}
	}
	for i, r := range all {
		r.forget()
		r.anchor, anchors[i] = anchors[i], r.anchor
	}
	return most + second, nil
}

// ready returns the reason why a recorder cannot be aligned, or nil.
func (r *Recorder) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errClosed
	case r.clock == nil:
		return &driver.Error{Call: "timeline.Align", Code: driver.ErrUnsupported, Detail: r.opts.Name + " has no clock"}
	}
	return nil
}

// instant returns a stamp of the device's clock at a time within the call.
func (r *Recorder) instant(ctx context.Context) (point, error) {
	if err := r.ownStream(); err != nil {
		return point{}, err
	}
	p, err := r.stamp(r.stream)
	if err != nil {
		return point{}, err
	}
	if err := r.stream.Sync(ctx); err != nil {
		r.discard(&p)
		return point{}, fmt.Errorf("timeline: %s: a stamp to align by: %w", r.opts.Name, err)
	}
	p.state, p.stream = known, nil
	return p, nil
}

// compare returns a stamp of another device, its time since zero on r's clock, and the largest error of that time.
func (r *Recorder) compare(
	ctx context.Context, zero point, other *Recorder,
) (best point, half time.Duration, err error) {
	before, err := r.instant(ctx)
	if err != nil {
		return point{}, 0, err
	}
	defer func() { r.discard(&before) }()
	for try := range alignTries {
		at, err := other.instant(ctx)
		if err != nil {
			return best, half, err
		}
		after, err := r.instant(ctx)
		if err != nil {
			other.discard(&at)
			return best, half, err
		}
		begin, errBegin := r.clock.Elapsed(zero.stamp, before.stamp)
		gap, errGap := r.clock.Elapsed(before.stamp, after.stamp)
		r.discard(&before)
		before = after
		if err := cmp.Or(errBegin, errGap); err != nil {
			other.discard(&at)
			return best, half, err
		}
		if at.at = begin + gap/2; try == 0 || gap/2 < half {
			best, at, half = at, best, gap/2
		}
		other.discard(&at)
	}
	return best, half, nil
}
