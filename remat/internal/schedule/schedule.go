// Package schedule decides which results of operations stay in memory under a budget, which are dropped and computed
// again, and which are copied to the host. It knows ids, sizes and costs; an [Executor] does the work.
//
// A program announces its operations one by one to an [Engine]. The engine makes the inputs resident, makes room for
// the outputs by dropping other storages, and has the executor compute. A dropped storage is computed again when it is
// read, by the operation that made it, its inputs first.
//
// An Engine reads no clock. Its time is the sum of the costs of the operations that were computed.
package schedule

// A Value is a result of an operation: a tensor, or a view of one. Ids are reused after the value was forgotten.
type Value int32

// A Storage is memory, which several values may share.
type Storage int32

// An Op is a recorded operation.
type Op int32

// None is the id of no value, storage or operation.
const None = -1

// A Call announces an operation.
type Call struct {
	Name    string // identifies the operation in plans: equal names and sizes are equal work
	Inputs  []Value
	Outputs []Output
	Cost    int64 // ns; 0 if it is not known yet
	Scratch int64 // bytes of workspace during the operation
	Fixed   bool  // the operation cannot be repeated: its outputs are never evicted
	Work    any   // for the executor
}

// An Output describes a result of an operation.
type Output struct {
	Size  int64 // bytes of a storage of its own; ignored for an alias
	Alias int   // -1 if it owns its storage, or the index of the input whose storage it shares
}

// An Executor does the work that an engine decides. The engine calls it in the goroutine of its own caller.
type Executor interface {
	// Compute runs an operation whose inputs are resident, and returns its cost in ns, or 0 if that is not known yet.
	// The memory for all outputs and the scratch is within the budget. After an error nothing has changed.
	Compute(*Run) (cost int64, err error)
	// Drop gives back the device memory of a storage. A copy on the host stays.
	Drop(Storage)
	// ForgetStorage and ForgetOp say that the engine does not name the id again, except for another storage or
	// operation.
	ForgetStorage(Storage)
	ForgetOp(Op)
}

// A Copier is an executor that can copy storages to the host and back, beside the computation.
type Copier interface {
	// CopyOut starts a copy to the host, after the work queued so far.
	CopyOut(Storage) error
	// CopyIn allocates device memory and starts the copy from the host.
	CopyIn(Storage) error
	// CopyDone reports whether the latest copy of a storage is complete. It does not block.
	CopyDone(Storage) bool
	// Wait orders later computation, and Drop, after the latest copy of a storage.
	Wait(Storage) error
	// DropHost gives back the copy on the host.
	DropHost(Storage)
}

// A Run is one execution of an operation. It is valid during Compute.
type Run struct {
	Op       Op
	Work     any
	Inputs   []Value
	Outputs  []Value
	Storages []Storage // of the outputs
	// Keep says which outputs become resident. A resident copy of the others exists: the new one is discarded.
	Keep  []bool
	Again bool // the operation ran before
}
