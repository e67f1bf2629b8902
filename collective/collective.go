// Package collective lets several ranks, one device each, work on tensors together: in one process (Local), or in many
// on several machines (Join, with what FromEnv finds of torchrun, MPI or Slurm).
//
// # Structure
//
// A Communicator is one rank's end. It has a transport, which moves and adds bytes on the device's streams
// (internal/nccl on GPUs, internal/ring on the host and everything else; internal/comm is the seam), and a member of
// the ranks' meeting (internal/rendezvous), which knows who is alive. This package checks operands, brings the two
// together, and puts tensors that are spread over ranks where they belong (load.go, distribute.go).
//
// # Operations
//
// All ranks make the same calls in the same order; Send and Recv alone are made by the two that they name. As in
// package compute, the first parameter is the place to work at, nil for the (written) tensor's own, and an operation
// queues its work on that place's stream and returns. (On a device whose kernels are not the host's or CUDA's,
// driver/sim say, it waits for the other ranks.) Tensors must be contiguous; they may have no element. What is wrong
// with shapes, types and devices on one rank is an error at once, and nothing is queued there: so other ranks may wait
// for this one, which must close its communicator, or make the right call. Calls that fit on each rank but not together
// are found by the Host backend: an error that matches ErrMismatch, on every rank. NCCL does not notice.
//
// A tensor may be released as soon as the operation has returned: its memory is freed in the order of the streams that
// use it, and so stays until the work is done.
//
// # Failure
//
// When a rank dies, falls silent, or cannot go on, every rank is told the same *RankError, and what is queued on every
// rank ends, with contents that mean nothing: no wait hangs. A communicator that has failed stays so; Close it, and
// Join again. Wait, Barrier and the operations return the error; so does Err. A wait that is not of this package
// (Place.Sync, reading a tensor) ends too: ask Err before using what was read.
//
// # States
//
//	open -> failed -> closed       open -> closed
//
// # Invariants
//
// The first error is Err's until the end. The transport of a communicator that failed is aborted once, with that error
// as cause. A group is queued as a whole or not at all.
//
// # Locks
//
// Communicator.mu is a leaf. The operations take none: see Communicator.
//
// # What it does not do
//
// Authentication, encryption (every connection is in the clear; whoever reaches the meeting point and knows the run's
// ID is a rank), subsets of ranks, ranks that come later or again, choosing a device (see Config.LocalRank), or a time
// limit for a rank that lives and makes no call: contexts bound Wait and Barrier, and Timeout bounds Close, which names
// that rank.
//
// Nor does it order the work of several communicators on one GPU. NCCL's kernels wait there for those of other ranks,
// so two communicators whose work starts in one order on one rank and in another on the next can wait for each other
// for ever (NCCL's user guide, "Using multiple NCCL communicators concurrently"): every rank queues to them in one
// order, on one stream.
package collective

import (
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/tensor"
)

// An Op combines the elements of several ranks, in an order that is the transport's.
type Op = comm.Op

// The operations.
const (
	Sum  = comm.Sum
	Prod = comm.Prod
	Max  = comm.Max
	Min  = comm.Min
	Avg  = comm.Avg // the sum divided by the number of ranks
)

// pollEvery is how often a transport is asked whether it has found something wrong by itself.
const pollEvery = time.Second

// A Communicator is one rank among those that work together. Its operations (AllReduce to Recv, Group) are for one
// goroutine at a time, since their order is what they mean; everything else is safe for concurrent use.
type Communicator struct {
	config    Config
	place     *tensor.Place
	transport comm.Transport
	member    *rendezvous.Member
	local     bool // all ranks are in this process

	group *group // that is being made, or nil

	ended chan struct{} // tells watch to end
	tasks sync.WaitGroup

	mu      sync.Mutex
	streams map[driver.StreamID]driver.Stream // that work was queued on
	own     error                             // what look found first
	done    bool                              // the others are needed no more: what the transport finds is that they close
	closed  chan struct{}                     // made by the first Close, closed at its end
	final   error                             // what Close returns
}

func newCommunicator(cfg Config, p *tensor.Place, t comm.Transport, m *rendezvous.Member, local bool) *Communicator {
	c := &Communicator{
		config: cfg, place: p.Unscoped(), transport: t, member: m, local: local,
		streams: map[driver.StreamID]driver.Stream{}, ended: make(chan struct{}),
	}
	c.tasks.Go(c.watch)
	return c
}

// Rank returns this rank's number, from 0.
func (c *Communicator) Rank() int { return c.config.Rank }

// Size returns the number of ranks.
func (c *Communicator) Size() int { return c.config.Size }

// Handle returns NCCL's own handle, an ncclComm_t, for calls of NCCL that this package does not make. The communicator
// owns it: it is good until Close or Abort, and callers do not destroy it. It is non-blocking (ncclCommGetAsyncError
// tells when a call is done), and calls with it take their turn with this package's operations, in the same order on
// all ranks. The error matches driver.ErrUnsupported if the ranks are not connected by NCCL.
func (c *Communicator) Handle() (uintptr, error) {
	t, ok := c.transport.(interface{ Handle() (uintptr, error) })
	if !ok {
		return 0, &driver.Error{
			Call: "Communicator.Handle", Code: driver.ErrUnsupported, Detail: fmt.Sprintf("backend %q has no handles; %q has", c.config.Backend, NCCL),
		}
	}
	return t.Handle()
}

// Config returns what the communicator was made with; Backend and Timeout are those in use.
func (c *Communicator) Config() Config { return c.config }
