package nccl

import "errors"

// Err returns the first error that NCCL reported, in a call or between calls, or the cause of Abort.
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

// Abort takes the handle and makes NCCL abort the communicator: its kernels end, as does the work of NCCL's threads for
// this rank. NCCL frees the memory with the last rank of the process. On a device that is closed or lost nothing is
// aborted, because no work waits there.
func (t *transport) Abort(cause error) {
	if cause == nil {
		cause = errors.New("no cause was given")
	}
	if handle, ok := t.finish(&aborted{cause}); ok {
		_ = t.destroyOnce(commAbort, handle)
	}
	<-t.gone
}

// Close finalizes the communicator, which waits for all queued work, and destroys it. If another rank is gone, this may
// last until Abort, and the error is then that of Abort. A transport with an error is aborted, and Close returns that
// error. Closing a transport that is over is not an error; concurrent calls of Close wait for each other.
func (t *transport) Close() error {
	t.mu.Lock()
	first := !t.closing && t.over == nil
	t.closing = true
	t.mu.Unlock()
	if !first {
		<-t.gone
		return nil
	}
	err := t.await(groupEnd, nil) // of a Queue that is still in progress
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

// finalize starts to finalize a working communicator.
func (t *transport) finalize() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	return t.setError(t.lib.check(commFinalize, t.lib.call(commFinalize, t.handle)))
}

// finish puts the transport into the state over, with a reason, and takes its handle. It reports whether this was the
// first call.
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

// destroyOnce calls ncclCommAbort or ncclCommDestroy at most once. Both wait.
func (t *transport) destroyOnce(s symbol, handle uintptr) error {
	defer close(t.gone)
	var err error
	if handle != 0 { // 0 if New failed early
		err = t.direct(s, func() error { return t.lib.check(s, t.lib.call(s, handle)) })
	}
	return errors.Join(err, t.control.Close())
}
