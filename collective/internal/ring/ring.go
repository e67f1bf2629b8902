// Package ring is the transport of host devices: it carries bytes between ranks and reduces them on the host. It also
// works for other devices, through copies.
//
// A link connects two ranks: it is a connection between processes (New), or memory between goroutines (Local, pipe.go).
// Every rank has a link to every other. A link carries frames (frame.go), each with the call to which it belongs. A
// goroutine for each link reads frames as long as the transport lives, so the end of a link is detected at once, with
// the rank's number.
//
// A call has two parts. First the ranks agree: each sends its call to all others (for Send and Recv, to the other one)
// and waits for theirs. A rank sends data only to a rank that has announced the call. So a reader never waits for a
// call to be made, all written data is read, and no exchange hangs, whatever the sizes and the order of calls in a
// group. Then the data is sent in frames of at most 512 KiB, as one pass (pass.go, plan.go):
//
//	all-reduce      2(size-1) steps around the ring: reduce-scatter, then all-gather, each step a part of 1/size
//	reduce-scatter  size-1 steps; partial sums are kept in two blocks of the heap, as large as Dst each
//	all-gather      size-1 steps
//	broadcast       a chain from the root, each rank passing a frame on as soon as it has it
//	send, recv      straight over the link
//
// In a group, the collectives run one after another in their order. The sends to each rank run in their order, as do
// the receives from each rank, all concurrently with the collectives.
//
// Part p of an all-reduce or reduce-scatter is ((x[p] op x[p+1]) op x[p+2]) ..., counted around the ring. It is
// computed once and copied to every rank that needs it, so every rank has the same bits, whatever the timing. Float16,
// BFloat16 and the 8-bit floats are widened to float32 for each step and rounded after it, as in NCCL; integers wrap.
// Avg divides the sum in the last step, before a narrow type is rounded; intermediate sums of narrow floats are scaled
// so that they do not overflow; integers are truncated toward zero, as in NCCL. Max and Min give NaN if any number is
// NaN, as PyTorch does. Bool supports Max and Min (or, and), complex types support Sum, Prod and Avg; for other
// combinations the error matches driver.ErrUnsupported (reduce.go).
//
// On a device with visible memory and kernels, Queue queues a kernel whose function makes the calls when the stream
// reaches it. The kernel waits for other ranks and blocks its stream until then, so two ranks of one process need two
// streams. Calls on several streams run in the order in which they were queued. On other devices Queue itself waits for
// the stream and the other ranks, and copies data to and from the host. Neither works while the stream captures.
//
// State: a transport is open, failed or closed. It fails once, with the first of these errors: a link that ended, an
// invalid frame, calls that differ, a failure that another rank reported, Abort. Then all waits end with that error,
// every queued job returns it, the failure is reported to the other ranks, and readers continue to read and discard
// frames, so that no rank blocks on this one. A link ends with Close, which sends a bye frame before, or when Abort
// finds a partly written frame. A send that fails leaves it to the link's reader to say why: a bye frame may still be
// unread. After Close has seen the last job end, only Abort is a failure, because ranks may close in any order.
//
// Invariants: between two jobs no frame of data is in transit to or from this rank. A reader accesses a rank's memory
// only while the pass is in progress: the goroutine that ends a pass removes its memory from the link first and waits
// for the reader (incoming).
//
// Locks: transport.busy (one job at a time), then link.w (one frame at a time), then transport.mu, which guards all
// state, with one condition variable for all waits. The locks of pipes are leaves, and are not held while waiting for
// other locks.
//
// The transport has no other algorithm for small tensors, so their latency grows with the number of ranks. It does not
// encrypt and sets no time limits: the caller must detect a rank that is alive but silent, and call Abort. Collectives
// send data only over the links of the ring.
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

	links   []*link // by rank; nil for this rank
	next    *link   // nil if there is one rank
	prev    *link
	visible driver.Visible // nil: operands are copied, and Queue waits
	kernels driver.Kernels

	last   chan struct{}  // closed when the last queued job is done; used by Queue only
	jobs   sync.WaitGroup // queued jobs that are not done
	alive  sync.WaitGroup // readers, and goroutines that report failures to other ranks
	busy   sync.Mutex     // held by the current job
	number uint64         // of collectives begun; used by the current job only

	mu      sync.Mutex
	changed sync.Cond // signals changes of the fields below, of links and of incoming data
	err     error     // the error of the failed transport
	cause   error     // of the first Abort, if the transport had failed before
	failed  chan struct{}
	closing bool // Close was called: Queue is refused
	done    bool // all queued work is done: errors of links are no longer failures
	closed  bool
}

// New returns the transport of a rank, one of size, for dev. Links are connections to the other ranks, by number;
// links[rank] is ignored. The transport owns them: other code must not read, write or close them, nor set deadlines.
// As with those of net, Close must end reads and writes in progress, and once a write has failed no read may wait. It
// panics if a link is missing.
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

// Local returns the transports of ranks that are all in this process, one for each device. A device may be listed
// several times. Then each of its streams may be used by one rank only; and because its Free waits for all streams,
// Free waits for work that other ranks have queued. The error matches driver.ErrInvalid if there is no device.
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

// around returns the rank n places further around the ring. n is at least -size.
func (t *transport) around(n int) int { return (t.rank + n + 2*t.size) % t.size }

// wait blocks until ready returns true; ready is called with t.mu held. If the transport has failed, wait returns its
// error first.
func (t *transport) wait(ready func() bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && !ready() {
		t.changed.Wait()
	}
	return t.err
}
