// Package comm is what stands between collective, which knows tensors and ranks, and the transports that carry bytes
// between them: NCCL (internal/nccl) and the host's own (internal/ring). Everything has been checked when a transport is
// called: it moves and adds.
package comm

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// An Op combines the elements of several ranks.
type Op uint8

// The operations, with NCCL's numbers.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Avg
)

func (o Op) String() string { return [...]string{"sum", "prod", "max", "min", "avg"}[o] }

// A Kind is what a Call does.
type Kind uint8

// The kinds of calls. N counts elements: of each rank's operand for AllReduce and Broadcast, of Src for AllGather (Dst has
// N for each rank, in their order), of Dst for ReduceScatter (Src has N for each rank), and of what is sent.
const (
	AllReduce     Kind = iota // Dst = Op over the ranks of Src; the two may be the same memory
	Broadcast                 // Dst = Src of rank Peer; on that rank Src and Dst are the same memory
	AllGather                 // Dst = the Src of all ranks; Src may be this rank's part of Dst
	ReduceScatter             // Dst = this rank's part of Op over the ranks of Src; Dst may be this rank's part of Src
	Send                      // Src to rank Peer
	Recv                      // Dst from rank Peer
)

func (k Kind) String() string {
	return [...]string{"all-reduce", "broadcast", "all-gather", "reduce-scatter", "send", "recv"}[k]
}

// An Operand is contiguous elements in the memory of a transport's device.
type Operand struct {
	Ptr   driver.Pointer // of the first element; 0 if it is Go's own memory
	Bytes []byte         // the same, from the first element to the last, where Go code can reach it; else nil
}

// A Call is one operation of one rank. All ranks make the same calls in the same order, but for Send and Recv, which meet;
// those of a rank and itself do in one group.
type Call struct {
	Kind     Kind
	Op       Op // of AllReduce and ReduceScatter
	Type     dtype.DType
	Dst, Src Operand
	N        int // elements; see Kind
	Peer     int // of Broadcast, Send and Recv
}

// A Transport is one rank's connection to all others.
type Transport interface {
	// Queue queues calls on a stream of the rank's device and returns without waiting for other ranks; but where it has yet
	// to connect them (NCCL), or has no kernels to queue (ring), it waits for them, so ranks of one process need a goroutine
	// each, and Abort ends that wait. Several calls are a group: they are under way at the same time, so that a rank may send
	// and receive at once. The memory stays until the work is done, by the stream's order. One goroutine at a time. The error matches driver.ErrUnsupported, and nothing
	// is queued, if the transport does not know the type for this call.
	Queue(s driver.Stream, calls ...Call) error

	// Abort ends what is under way, on this rank: streams go on, with contents that mean nothing, and later calls of Queue
	// fail with an error that wraps cause. Any goroutine, more than once; the first cause counts. It returns when queued
	// work no longer waits for other ranks.
	Abort(cause error)

	// Err returns what the transport itself found wrong since it was made (or what it was aborted for), or nil. It does
	// not wait.
	Err() error

	// Close gives the connection up after the work that was queued is done. All ranks close.
	Close() error
}
