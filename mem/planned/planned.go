// Package planned serves a workload that is known from a trace: every block has its address before the program starts.
//
// Make finds the part of a trace that repeats and packs its blocks (fit/pack) close to the minimum memory that they
// need. A Plan can be written and read. New opens an allocator that serves each expected request from its planned
// address in a few nanoseconds, and every other request from a fallback allocator. Sizes match exactly, or within the
// plan's room (Options.Room).
//
// A Learner needs no trace: it plans the steps of a program that repeat while it runs.
//
// An Allocator is safe for concurrent use. Sizes are bytes. An expected request makes no driver call and takes no
// lock, unless streams share memory: then it takes a lock, and may make its stream wait for another one. Errors begin
// with "planned:"; a request that the fallback cannot serve returns the fallback's error. Peaks in Stats are the
// plan's: see Stats. The allocator moves no blocks. Requests of private pools go to the fallback, so a captured graph
// must allocate from a pool of the fallback.
package planned

// # Plans
//
// A plan has a StreamPlan for each stream, or for several streams: a part of the region, and the requests that the
// streams make, in order. A position is an index into them. A slot is one request: its size, the offset of its block,
// and the position before which the block is freed.
//
// Memory never passes from one StreamPlan to another. So streams with StreamPlans of their own (Options.Apart) wait for
// each other only if a Free names them, and may run in another order than in the recording. Streams that share one must
// make their requests in the recorded order. What one of them frees is listed as memory that it may still use (see
// Departures), and another one that gets it waits. All their requests take the mutex.
//
//	prologue   weights: served once
//	body       from StreamPlan.Loop to the end, repeatedly; a trace that does not repeat has no body
//
// A StreamPlan may hold many steps, each with its own sizes, packed into one region. A step that occurs again, in any
// order, is found by its requests (see Departures), so there is a plan for each shape.
//
// # Generations
//
// The position of a stream is one atomic word, together with a generation that grows whenever the position does not
// simply advance. A block's tag is the word with which it was served. Each slot has a mark: the generation in which
// its block was freed. So a slot before the position is live if its mark is older than its generation, and serving a
// request only writes the word:
//
//	Alloc   compares the size, checks that the slots that end here have marks of this generation, and adds one to the
//	        word (compare and swap)
//	Free    sets the mark (compare and swap) to this generation, or to the one before if the slot is still to come in
//	        this generation
//
// This suffices while the live blocks are those that are live by the plan at the position, or fewer: then the bytes of
// a slot are free, since the plan is a packing. Everything else happens under the stream's mutex, with the bit slow of
// the word set, which sends every Alloc there.
//
// # Departures
//
// Overdue blocks are live, or freed while streams other than the next one may use them, although they are free in the
// plan at this position: they were freed late, or belong to another part of the plan. While there are overdue blocks, a
// slot is served only if it overlaps none of them. A stream waits for the users of an overdue block that was freed
// (mem/internal/reuse).
// Requests that cannot be served go to the fallback, and the position advances.
//
// An unexpected request goes to the fallback, and the stream is lost. Its position is found again by the first of
// these that fits:
//
//	the last four requests in a row, at most eight positions on: some were left out
//	the last twelve, anywhere: another step, or the same again; of several such positions the one with the longest match
//	the request that was expected: others were inserted
//	the request as many positions on as were missed: they had other sizes
//	two in a row at most eight positions on
//
// So a step of another shape is found at its first request if all steps end with the same requests. The cost is a
// search among the slots and a check of each live block.
//
// # Invariant
//
//	live blocks of a stream = slots that are live by the plan at the position, less those freed or not served,
//	                          plus live overdue blocks
//	live blocks and freed overdue blocks do not overlap
//
// # Locks
//
// Allocator.mu (statistics, Close), then the streams' mutexes in order, then that of waits. The fallback is called
// without locks, except by Close and for statistics.

const (
	grain       = 512                 // bytes: offsets are multiples of it
	maxSlots    = 1<<posBits - 2      // of a stream
	maxSize     = 1 << 50             // bytes of a stream's part of the region
	maxRequest  = maxSize / 16        // bytes of a request, so that with the largest room it is not beyond maxSize
	maxStreams  = 1 << 10             // streams
	maxName     = 512                 // bytes
	minMatch    = 4                   // requests that must match near the position
	farMatch    = 12                  // requests that must match anywhere else
	numRecent   = 16                  // requests that a stream remembers
	maxCompared = 64                  // positions compared
	window      = 8                   // positions searched ahead
	posBits     = 24                  // of a word
	posMask     = 1<<posBits - 1      //
	slow        = 1 << 63             // of a word: every request takes the mutex
	sizeBits    = 50                  // of a key: see keyOf
	sizeMask    = 1<<sizeBits - 1     //
	maxGen      = 1<<(63-posBits) - 1 // of a word
)

func roundUp(n int64) int64 { return (n + grain - 1) &^ (grain - 1) }
