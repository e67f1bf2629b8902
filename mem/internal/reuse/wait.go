package reuse

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// Wait makes s wait for each stream in p that it has not already waited for. s itself needs no wait and need not be
// registered. The error is the device's, and matches driver.ErrCapturing if one of the streams captures. After an error
// s waits for some of the streams, and Wait may be called again.
func (t *Streams) Wait(s driver.Stream, p Dependencies) error {
	for other := range t.All(p.Users) {
		if other == s || t.hasWaited(s, other, p) {
			continue
		}
		closed, err := t.waitFor(s, other)
		switch {
		case err != nil:
			return fmt.Errorf("%s: have stream %d wait for stream %d: %w", t.owner, s.ID(), other.ID(), err)
		case closed:
			t.forget(other)
		case len(t.unsure) == 0:
			t.recordWait(s, other)
		}
	}
	return nil
}

// hasWaited reports whether s has already waited for other's part of p.
func (t *Streams) hasWaited(s, other driver.Stream, p Dependencies) bool {
	id, its := int(s.ID()), int(other.ID())
	// Waits of a newer stream with the ID of s do not count: s is closed then.
	if id < len(t.streams) && t.streams[id] != nil && t.streams[id] != s {
		return false
	}
	// Waits are recorded by ID, which does not tell unsure streams from each other.
	if len(t.unsure) > 0 || id >= len(t.waits) || its >= len(t.waits[id]) || p.time == neverDone {
		return false
	}
	return t.waits[id][its] > min(p.time, t.frees[its].time)
}

// recordWait records that s waited for other's work up to now.
func (t *Streams) recordWait(s, other driver.Stream) {
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

// waitFor makes s wait for the work queued on other so far, or reports that other is closed. A wait that a capture
// forbids is not needed if that work is done, or if the capture orders it before all further work of s.
func (t *Streams) waitFor(s, other driver.Stream) (closed bool, err error) {
	var m driver.Mark
	err = t.NotCapturing(other)
	switch {
	case err == nil:
		if m, err = other.Mark(); err != nil { // other may have begun to capture since
			break
		}
		if err = s.WaitFor(other, m); errors.Is(err, driver.ErrCapturing) && t.reached(other, m) {
			err = nil
		}
	case errors.Is(err, driver.ErrCapturing) && t.NotCapturing(s) != nil && t.ordered(other, s):
		err = nil
	}
	if errors.Is(err, driver.ErrClosed) { // is it other, s or the device that is closed?
		if _, own := s.Mark(); own == nil {
			return true, nil
		}
	}
	return false, err
}

// ordered reports whether a capture orders all that other has done before the next work of s. Both capture.
func (t *Streams) ordered(other, s driver.Stream) bool {
	m, err := other.Mark()
	if err != nil {
		return false
	}
	yes, err := t.dev.Graphs().Ordered(other, m, s)
	return yes && err == nil
}

// reached reports whether the host knows that a mark is reached.
func (t *Streams) reached(s driver.Stream, m driver.Mark) bool {
	done, err := s.Reached(m)
	return done && err == nil
}

// NotCapturing returns an error that matches driver.ErrCapturing if s captures, or the error of asking the device.
func (t *Streams) NotCapturing(s driver.Stream) error {
	graphs := t.dev.Graphs()
	if graphs == nil {
		return nil
	}
	captures, err := graphs.Capturing(s)
	if captures {
		return &driver.Error{
			Call: "Stream.WaitFor", Code: driver.ErrCapturing,
			Detail: fmt.Sprintf("stream %d captures", s.ID()),
		}
	}
	return err
}

// Sync waits until the queued work of all streams of a set is done. The error is the device's.
func (t *Streams) Sync(of Set) error {
	for s := range t.All(of) {
		err := s.Sync(context.Background())
		if errors.Is(err, driver.ErrClosed) {
			_, _, err = t.dev.Available() // fails if the device itself is closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}
