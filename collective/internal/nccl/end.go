package nccl

import "errors"

// Err returns what NCCL found wrong in any call, or between calls, or what the transport was aborted for.
func (t *transport) Err() error {
	t.mu.Lock()
	failed, over := t.failed, t.over
	t.mu.Unlock()
	switch {
	case over != nil && over != errClosed:
		return over
	case failed != nil || over != nil:
		return failed
	}
	if _, err := t.ask(commGetAsyncError); err != errClosed {
		return err
	}
	return nil
}

// Abort takes the handle and has NCCL give it up: its kernels end, and what NCCL does on other threads for this rank.
// NCCL gives the memory back with the last rank of the process. Nothing is aborted on a device that is closed or lost:
// there nothing waits any more.
func (t *transport) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause was given")
	}
	if handle, ok := t.finish(&aborted{cause}); ok {
		_ = t.destroyOnce(commAbort, handle)
	}
	<-t.gone
}

// Close finalizes, which waits for all work that was queued, and destroys. If another rank is gone that may last until
// Abort: then the error is Abort's. A transport in which something went wrong is aborted, and the error is what did.
// Closing what is over is not an error; closing twice at a time waits.
func (t *transport) Close() error {
	t.mu.Lock()
	first := !t.closing && t.over == nil
	t.closing = true
	t.mu.Unlock()
	if !first {
		<-t.gone
		return nil
	}
	err := t.await(groupEnd, nil) // of a Queue that is not through
	if err == nil {
		err = t.direct(commFinalize, t.finalize)
	}
	if err == nil {
		err = t.await(commFinalize, nil)
	}
	if err != nil {
		t.Abort(err)
		return t.Err() // err, unless an Abort came first
	}
	handle, ok := t.finish(errClosed)
	if !ok {
		<-t.gone
		return t.Err()
	}
	return t.destroyOnce(commDestroy, handle)
}

// finalize starts the end of a communicator that works.
func (t *transport) finalize() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	return t.setError(t.lib.check(commFinalize, t.lib.call(commFinalize, t.handle)))
}

// finish makes the transport over, for a reason, and takes its handle. It reports whether this was the first time.
func (t *transport) finish(reason error) (handle uintptr, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return 0, false
	}
	handle = t.handle
	t.over, t.handle = reason, 0
	return handle, true
}

// destroyOnce calls ncclCommAbort or ncclCommDestroy, which wait, at most once.
func (t *transport) destroyOnce(s symbol, handle uintptr) error {
	defer close(t.gone)
	var err error
	if handle != 0 { // New may have got none
		err = t.direct(s, func() error { return t.lib.check(s, t.lib.call(s, handle)) })
	}
	return errors.Join(err, t.control.Close())
}
