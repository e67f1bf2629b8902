package collective

import "errors"

// Abort says that this rank can go on no more, because of cause: what is queued on every rank ends, with contents that mean
// nothing, Err of this one is cause, and that of the others a *RankError that names it. For a rank that fails where others
// wait for it: its Close alone would wait for them. It returns at once; Close comes after it as ever. The first cause counts,
// and after Close it does nothing. Any goroutine may call it.
func (c *Communicator) Abort(cause error) {
	if cause == nil {
		cause = errors.New("collective: Abort without a cause")
	}
	c.member.Fail(cause, "")
}
