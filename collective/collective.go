// Package collective lets several ranks, with one device each, work on tensors together: AllReduce, Broadcast, Send and
// more. The ranks are devices of one process (Local) or processes on several machines (Join, with the Config that
// FromEnv reads from torchrun's, MPI's or Slurm's variables).
//
//	c, err := collective.Join(ctx, place, config)
//	defer c.Close()
//	err = c.AllReduce(place, collective.Sum, gradient, gradient)
//
// All ranks make the same calls in the same order; only Send and Recv are made by just the two ranks they name. The
// first parameter is the place to work at; nil means that of the written tensor. An operation queues its work on the
// place's stream and returns. (On a device that has neither the host's nor CUDA's kernels, such as driver/sim's, it
// waits for the other ranks.) Tensors must be contiguous, and may be empty. A tensor may be released as soon as the
// operation has returned.
//
// An invalid argument is an error on the rank that passes it, and queues nothing there: other ranks may wait for this
// one, which must make the right call or close its communicator. Calls that are valid on each rank but differ between
// ranks give an error that matches ErrMismatch, on every rank, with the Host backend; NCCL does not detect them.
//
// When a rank dies, falls silent or fails, every rank gets the same *RankError, and queued work on every rank ends with
// undefined contents, so that no wait hangs. Wait, Barrier, the operations and Err return the error. Place.Sync and
// reads of tensors end too, without it: check Err before using their results. A communicator that failed stays so:
// Close it, and Join again.
//
// Ranks of several machines share a secret (Config.Secret), by which they know each other, and may encrypt their
// connections: see SECURITY.md for the promises. NCCL's own connections have neither.
//
// On one GPU, queue to several communicators in the same order on every rank, on one stream: NCCL's
// kernels wait for those of other ranks, and otherwise may deadlock (NCCL's user guide, "Using multiple NCCL
// communicators concurrently").
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

// # Structure
//
// A Communicator is one rank. It has a transport, which moves and reduces bytes on the device's streams (internal/nccl
// on GPUs, internal/ring elsewhere; internal/comm is their interface), and a member of the rendezvous
// (internal/rendezvous), which knows which ranks are alive. This package checks operands, and distributes tensors over
// ranks (load.go, distribute.go).
//
// # States
//
//	open -> failed -> closed       open -> closed
//
// # Invariants
//
// Err returns the first error until the end. The transport of a communicator that failed is aborted once, with that
// error as cause. A group is queued as a whole or not at all. Memory of released tensors is freed in the order of the
// streams that use it.
//
// # Locks
//
// Communicator.mu is a leaf. The operations take none: see Communicator.
//
// # Limits
//
// There are no subsets of ranks, and no ranks that join later or again. Config.LocalRank does not choose a device. A
// rank that lives and makes no call is no error of Wait or Barrier, which contexts bound; Timeout bounds Close, which
// names it.

// An Op combines the elements of several ranks, in an order that the transport chooses.
type Op = comm.Op

// The operations.
const (
	Sum  = comm.Sum
	Prod = comm.Prod
	Max  = comm.Max
	Min  = comm.Min
	Avg  = comm.Avg // the sum divided by the number of ranks
)

// pollEvery is the interval at which a transport is checked for errors.
const pollEvery = time.Second

// A Communicator is one rank among those that work together. Its operations (AllReduce to Recv, Group) are for one
// goroutine at a time, since their order matters; all other methods are safe for concurrent use.
type Communicator struct {
	config    Config
	place     *tensor.Place
	transport comm.Transport
	member    *rendezvous.Member
	local     bool // all ranks are in this process

	group *group // the group under construction, or nil

	ended chan struct{} // closed to end watch
	tasks sync.WaitGroup

	mu      sync.Mutex
	streams map[driver.StreamID]driver.Stream // streams on which work was queued
	own     error                             // first error of the transport
	done    bool                              // the other ranks are no longer needed, and may close
	closed  chan struct{}                     // made by the first Close, closed at its end
	final   error                             // the result of Close
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
// owns it: it is valid until Close or Abort, and callers must not destroy it. It is non-blocking (ncclCommGetAsyncError
// tells when a call is done), and calls with it take their turn with this package's operations, in the same order on
// all ranks. The error matches driver.ErrUnsupported if the ranks are not connected by NCCL.
func (c *Communicator) Handle() (uintptr, error) {
	t, ok := c.transport.(interface{ Handle() (uintptr, error) })
	if !ok {
		return 0, &driver.Error{
			Call: "Communicator.Handle", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("backend %q has no handles; %q has", c.config.Backend, NCCL),
		}
	}
	return t.Handle()
}

// Config returns the configuration of the communicator, with the Backend and Timeout in use.
func (c *Communicator) Config() Config { return c.config }
