package collective

import "errors"

// Abort ends the communicator on all ranks because this rank failed. Queued work ends on every rank, with undefined
// contents. Err returns cause on this rank, and on the others a *RankError that names this rank. Call it for a rank
// that fails while others wait for it: Close alone would wait for them. It returns at once; Close must still be called.
// The first cause counts. After Close it does nothing. It is safe for concurrent use.
func (c *Communicator) Abort(cause error) {
	if cause == nil {
		cause = errors.New("collective: Abort without a cause")
	}
	c.member.Fail(cause, "")
}
