// Package ring carries bytes between ranks over links, and adds them up on the host: the transport of host devices,
// whose memory Go code reaches, and through copies of any other device.
//
// A link joins two ranks: a connection between processes (New), or memory between goroutines (Local, pipe.go). Every
// rank has one to every other. What it carries are frames (frame.go), all with the call that they are part of. A
// goroutine for each link reads them for as long as the transport lives, so the end of any link is noticed at once, by
// name.
//
// A call has two parts. First the ranks agree: each tells all others its call (Send and Recv: the one other), and waits
// for theirs. Data is sent only to who has told that it is there, so a reader never has to wait for a call to be made,
// and what is written is read: that is why no exchange hangs, whatever the sizes and the order of calls in a group.
// Then the data goes in frames of at most 512 KiB, as one pass (pass.go, plan.go):
//
//	all-reduce      2(size-1) steps around the ring: reduce-scatter, then all-gather, each step a part of 1/size
//	reduce-scatter  size-1 steps; partial sums are kept in two blocks of the heap, as large as Dst each
//	all-gather      size-1 steps
//	broadcast       a chain from the root, each rank passing a frame on as soon as it has it
//	send, recv      straight over the link
//
// The calls of a group: the collectives run one after another in their order, and beside them the sends to each rank,
// in their order, and the receives from each, all at the same time.
//
// What is added: part p of an all-reduce or reduce-scatter is ((x[p] op x[p+1]) op x[p+2]) ..., counted around the
// ring, computed once and copied to every rank that needs it, so every rank has the same bits, whatever the timing.
// Float16, BFloat16 and the 8-bit floats are widened to float32 for each step and rounded after it, as NCCL does;
// integers wrap. Avg divides the sum in the last step, before a narrow type is rounded; on the way sums of narrow
// floats are kept small enough not to overflow; integers are truncated toward zero, as NCCL does. Max and Min give NaN
// if any number is NaN, as PyTorch does. Bool has Max and Min (or, and), complex types Sum, Prod and Avg; all else
// matches driver.ErrUnsupported (reduce.go).
//
// On a device whose memory is visible and which has kernels, Queue queues a kernel whose function takes part in the
// calls when the stream gets there. It waits for other ranks and holds its stream until then, so two ranks of one
// process need two streams. Calls on several streams run in the order in which they were queued. On other devices Queue
// itself waits for the stream and the other ranks, and copies out and in. Neither works while the stream captures.
//
// State: a transport is open, failed or closed. It fails once, with the first of: a link that ended, a frame that is
// none, calls that differ, a failure that another rank told, Abort. Then all waits end with that error, every job that
// is queued returns it, the other ranks are told, and readers go on to read and drop what comes, so that no rank blocks
// on this one. Links end with Close, which says so in a frame before, or when Abort finds a frame half written. From
// the moment that Close has seen the last job end, nothing but Abort is a failure: ranks close in any order.
//
// Invariants: between two jobs no frame of data is under way to or from this rank. A rank's memory is touched by a
// reader only while the pass is in progress: the goroutine that ends a pass takes it from the link first and waits for
// the reader (inflow).
//
// Locks: transport.busy (one job at a time), then link.w (one frame at a time), then transport.mu, which guards all
// state, with one condition for all waits; those of pipes are leaves, and not held while waiting for another.
//
// It does not choose other ways for small tensors (latency grows with the number of ranks), encrypt, set time limits (a
// rank that is silent but alive is the caller's to notice, and to Abort), or use links other than those of the ring for
// collectives' data.
package ring

import (
	"fmt"
	"net"
	"sync"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
)

type transport struct {
	dev  driver.Device
	rank int
	size int

	links   []*link // by rank; nil for this one
	next    *link   // nil if there is one rank
	prev    *link
	visible driver.Visible // nil: operands are copied, and Queue waits
	kernels driver.Kernels

	last   chan struct{}  // closed when the job queued last is done; Queue's own
	jobs   sync.WaitGroup // queued and not done
	alive  sync.WaitGroup // readers, and those who tell other ranks
	busy   sync.Mutex     // held by the job that is under way
	number uint64         // of collectives begun: the job's own

	mu      sync.Mutex
	changed sync.Cond // anything below, or of a link or an inflow
	err     error     // what it failed with
	cause   error     // of the first Abort, if another failure came before it
	failed  chan struct{}
	closing bool // Close was called: Queue is refused
	done    bool // so is all that was queued: what other ranks do is no failure any more
	closed  bool
}

// New returns rank's transport for dev, one of size. Links are connections to the other ranks, by number; that of rank
// itself is not looked at. They are the transport's from now on: nothing else may read, write, close them or set
// deadlines. Close of a connection must end its reads and writes, as those of net do. It panics if a link is missing.
func New(dev driver.Device, rank, size int, links []net.Conn) comm.Transport {
	if size < 1 || rank < 0 || rank >= size || len(links) != size {
		panic(fmt.Sprintf("ring: rank %d of %d with %d links", rank, size, len(links)))
	}
	wires := make([]wire, size)
	for peer, c := range links {
		if peer == rank {
			continue
		}
		if c == nil {
			panic(fmt.Sprintf("ring: rank %d has no link to rank %d", rank, peer))
		}
		wires[peer] = &conn{Conn: c}
	}
	return newTransport(dev, rank, wires)
}

// Local returns the transports of ranks that are all in this process, one for each device. A device may be there
// several times; on each of its streams only one rank may queue, and since its Free waits for all streams, it waits for
// what other ranks have queued there. The error matches driver.ErrInvalid if there is no device.
func Local(devs []driver.Device) ([]comm.Transport, error) {
	if len(devs) == 0 {
		return nil, &driver.Error{Call: "ring.Local", Code: driver.ErrInvalid, Detail: "no devices"}
	}
	wires := make([][]wire, len(devs))
	for i := range wires {
		wires[i] = make([]wire, len(devs))
		for j := range i {
			wires[i][j], wires[j][i] = newPipe()
		}
	}
	transports := make([]comm.Transport, len(devs))
	for i, dev := range devs {
		transports[i] = newTransport(dev, i, wires[i])
	}
	return transports, nil
}

func newTransport(dev driver.Device, rank int, wires []wire) *transport {
	t := &transport{dev: dev, rank: rank, size: len(wires), last: make(chan struct{}), failed: make(chan struct{})}
	t.changed.L = &t.mu
	close(t.last)
	if v, k := dev.Visible(), dev.Kernels(); v != nil && k != nil {
		t.visible, t.kernels = v, k
	}
	t.links = make([]*link, t.size)
	for peer, w := range wires {
		if peer != rank {
			t.links[peer] = &link{t: t, peer: peer, wire: w}
		}
	}
	t.next, t.prev = t.links[t.around(1)], t.links[t.around(-1)]
	for _, l := range t.links {
		if l != nil {
			t.alive.Add(1)
			go l.read()
		}
	}
	return t
}

// around returns the rank that is n further around the ring, n from -size.
func (t *transport) around(n int) int { return (t.rank + n + 2*t.size) % t.size }

// wait blocks until ready, which is called with t.mu held. It returns the error that the transport failed with, first.
func (t *transport) wait(ready func() bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && !ready() {
		t.changed.Wait()
	}
	return t.err
}
