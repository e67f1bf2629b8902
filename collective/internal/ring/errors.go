package ring

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/dtype"
)

// A LinkError reports that the link to another rank has ended. Err is the reason: io.EOF if the other rank is gone, an
// invalid frame, or the report of a third rank.
type LinkError struct {
	Peer int
	Err  error
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("ring: the link to rank %d ended: %v", e.Peer, e.Err)
}

// Unwrap returns the reason.
func (e *LinkError) Unwrap() error { return e.Err }

// A Call holds the properties of a call on which ranks must agree.
type Call struct {
	Number uint64 // from 1: among the collectives of the transport, or the sends from one rank to another
	Kind   comm.Kind
	Op     comm.Op // of all-reduce and reduce-scatter
	Type   dtype.DType
	N      int // elements, as comm.Kind counts them
	Peer   int // of broadcast, send and recv
}

func (c Call) String() string {
	s := c.Kind.String()
	if reduces(c.Kind) {
		s += " (" + c.Op.String() + ")"
	}
	switch s = fmt.Sprintf("%s of %d %v", s, c.N, c.Type); c.Kind {
	case comm.Broadcast, comm.Recv:
		s = fmt.Sprintf("%s from rank %d", s, c.Peer)
	case comm.Send:
		s = fmt.Sprintf("%s to rank %d", s, c.Peer)
	case comm.AllReduce, comm.AllGather, comm.ReduceScatter:
	}
	return fmt.Sprintf("%s (number %d)", s, c.Number)
}

// A MismatchError reports that two ranks made calls that do not match. The ranks involved detect it and report it to
// the others.
type MismatchError struct {
	Rank     int
	Call     Call
	Peer     int
	PeerCall Call
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("ring: calls differ: rank %d makes %v, rank %d %v", e.Rank, e.Call, e.Peer, e.PeerCall)
}

var (
	errLeft  = errors.New("that rank has closed its transport")
	errAbort = errors.New("aborted")
)

// reduces reports whether calls of a kind have an operation.
func reduces(k comm.Kind) bool { return k == comm.AllReduce || k == comm.ReduceScatter }
