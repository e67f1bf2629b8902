// Package comm is the interface between package collective, which knows tensors and ranks, and the transports that
// carry bytes between ranks: NCCL (internal/nccl) and the host's own (internal/ring). Package collective checks all
// arguments; a transport only moves and reduces bytes.
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

// The kinds of calls. N counts elements: of each rank's operand for AllReduce and Broadcast, of Src for AllGather (Dst
// has N for each rank, in their order), of Dst for ReduceScatter (Src has N for each rank), and of the sent or received
// operand for Send and Recv.
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

// An Operand is a sequence of contiguous elements in the memory of a transport's device.
type Operand struct {
	Ptr   driver.Pointer // of the first element; 0 if it is Go's own memory
	Bytes []byte         // the same memory, if Go code can access it; otherwise nil
}

// A Call is one operation of one rank. All ranks make the same calls in the same order, except Send and Recv, which are
// matched by each other. A Send of a rank to itself and its Recv must be in one group.
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
	// Queue queues calls on a stream of the rank's device and returns without waiting for other ranks. There are two
	// exceptions: NCCL waits while it connects ranks for the first time, and ring waits on devices without kernels. So
	// ranks of one process need a goroutine each; Abort ends such a wait. Several calls form a group: they run at the
	// same time, so that a rank may send and receive at once. The caller keeps the memory until the work is done, by
	// the order of the stream. Only one goroutine may call Queue at a time. If the transport does not support the type
	// for this call, the error matches driver.ErrUnsupported and nothing is queued.
	Queue(s driver.Stream, calls ...Call) error

	// Abort ends queued work on this rank: streams continue with undefined contents, and later calls of Queue return an
	// error that wraps cause. Any goroutine may call it, more than once; the first cause counts. It returns when queued
	// work no longer waits for other ranks.
	Abort(cause error)

	// Err returns the first error that the transport detected by itself, or the cause of Abort, or nil. It does not
	// wait.
	Err() error

	// Close waits for queued work and closes the connection. All ranks must call it.
	Close() error
}
