package ring

import (
	"errors"
	"fmt"
)

// fail makes the transport fail with err, unless it has failed before or all its work is done, and returns the error of
// the transport.
func (t *transport) fail(err error, tell bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failLocked(err, tell)
}

// failLocked is fail with t.mu held. If tell is set, it reports the failure to the other ranks.
func (t *transport) failLocked(err error, tell bool) error {
	if t.err != nil || t.done {
		return t.err
	}
	t.end(err)
	if tell {
		f, text := t.failureFrame(err)
		for _, l := range t.links {
			if l != nil {
				t.alive.Add(1)
				go func() {
					l.w.Lock()
					l.sendFailure(f, text)
				}()
			}
		}
	}
	return err
}

// end ends all waits with err. t.mu is held.
func (t *transport) end(err error) {
	t.err = err
	close(t.failed)
	t.changed.Broadcast()
}

// sendFailure writes a frame, with l.w held until it is written. It waits for a rank that does not read, until Abort or
// Close.
func (l *link) sendFailure(f frame, text []byte) {
	defer l.t.alive.Done()
	defer l.w.Unlock()
	_ = l.put(f, text) // a rank that cannot be reached has failed, too
}

// failureFrame returns the frame that says why this rank has failed.
func (t *transport) failureFrame(err error) (frame, []byte) {
	var differ *MismatchError
	if errors.As(err, &differ) {
		return frame{typ: mismatchFrame}, appendMismatch(nil, differ)
	}
	culprit, text := t.rank, err.Error()
	var lost *LinkError
	if errors.As(err, &lost) {
		culprit, text = lost.Peer, lost.Err.Error()
	}
	return frame{typ: lostFrame, call: Call{Peer: culprit}}, []byte(text[:min(len(text), textBytes)])
}

// Abort reports the failure to the other ranks if that requires no wait. A link on which a frame is being written is
// closed instead.
func (t *transport) Abort(cause error) {
	if cause == nil {
		cause = errAbort
	}
	err := fmt.Errorf("ring: aborted: %w", cause)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	first := t.err == nil
	if first {
		t.end(err)
	} else if t.cause == nil && !errors.Is(t.err, cause) {
		t.cause = cause
	}
	f, text := t.failureFrame(err)
	for _, l := range t.links {
		switch {
		case l == nil:
		case !l.w.TryLock():
			_ = l.wire.Close()
		case first:
			t.alive.Add(1)
			go l.sendFailure(f, text)
		default:
			l.w.Unlock()
		}
	}
	t.mu.Unlock()
	t.busy.Lock() // waits for the current job to end
	defer t.busy.Unlock()
}

func (t *transport) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
