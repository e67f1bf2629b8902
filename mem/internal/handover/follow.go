package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// Follow makes s, which need not have been noted, wait for a past: for each of its users once, as far as it has not yet, and
// not for itself. The error is the device's, and matches driver.ErrCapturing if a user captures; then s waits for some of the
// past, and may be made to follow it again.
func (t *Streams) Follow(s driver.Stream, p Past) error {
	for other := range t.All(p.Users) {
		if other == s || t.follows(s, other, p) {
			continue
		}
		closed, err := t.wait(s, other)
		switch {
		case err != nil:
			return fmt.Errorf("%s: have stream %d wait for stream %d: %w", t.owner, s.ID(), other.ID(), err)
		case closed:
			t.known[other.ID()] = nil
		default:
			t.waited(s, other)
		}
	}
	return nil
}

// follows reports whether s has waited for all that a stream has to do with a past. What a newer stream of its number waited for
// is not its own: s is closed, and could not hand the memory on in order.
func (t *Streams) follows(s, other driver.Stream, p Past) bool {
	id, its := int(s.ID()), int(other.ID())
	if id < len(t.known) && t.known[id] != nil && t.known[id] != s {
		return false
	}
	if id >= len(t.waits) || its >= len(t.waits[id]) || p.time == always {
		return false
	}
	return t.waits[id][its] > min(p.time, t.frees[its])
}

// waited notes that s follows a stream's work up to now.
func (t *Streams) waited(s, other driver.Stream) {
	t.clock++
	id, its := int(s.ID()), int(other.ID())
	for id >= len(t.waits) {
		t.waits = append(t.waits, nil)
	}
	if row := t.waits[id]; its >= len(row) {
		t.waits[id] = append(row, make([]uint64, its+1-len(row))...)
	}
	t.waits[id][its] = t.clock
}

// wait makes s wait for the work queued on other so far, or reports that other is closed.
func (t *Streams) wait(s, other driver.Stream) (closed bool, err error) {
	if err = t.NotCapturing(other); err == nil {
		var m driver.Mark
		if m, err = other.Mark(); err == nil {
			err = s.WaitFor(other, m)
		}
	}
	if errors.Is(err, driver.ErrClosed) { // which of the two, or the device?
		if _, own := s.Mark(); own == nil {
			return true, nil
		}
	}
	return false, err
}

// NotCapturing fails if a stream captures, with an error that matches driver.ErrCapturing, or if the device cannot tell.
func (t *Streams) NotCapturing(s driver.Stream) error {
	graphs := t.dev.Graphs()
	if graphs == nil {
		return nil
	}
	captures, err := graphs.Capturing(s)
	if captures {
		return &driver.Error{Call: "Stream.WaitFor", Code: driver.ErrCapturing, Detail: fmt.Sprintf("stream %d captures", s.ID())}
	}
	return err
}

// Sync blocks until all that the streams of a set have queued is done. The error is the device's.
func (t *Streams) Sync(of Set) error {
	for s := range t.All(of) {
		err := s.Sync(context.Background())
		if errors.Is(err, driver.ErrClosed) {
			_, _, err = t.dev.Available() // fails if the device is closed, and not the stream alone
		}
		if err != nil {
			return err
		}
	}
	return nil
}
