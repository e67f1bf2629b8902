// Package planned serves a workload that is known from a trace: every block has its place before the program starts.
//
// Make finds the part of a trace that repeats and packs its blocks (fit/pack) near the least memory that they need; a Plan can
// be written and read. New opens an allocator that serves the expected request from its place in a few nanoseconds, and any other
// from a fallback.
//
// # Plans
//
// A plan has a lane for each stream: a part of the region, and the requests that the stream makes, in order. A position is an
// index into them, and a slot is one of them: what is asked for, where its block lies, and the position before which that is
// freed. Memory never passes from one lane to another, so no stream waits for another but where a Free names one, and streams
// that run side by side need not come in the recorded order.
//
//	prologue   weights: served once
//	body       from Lane.Loop to the end, again and again; without a loop the trace repeats nowhere as a whole
//
// Shapes: a lane may hold many steps, each with its own sizes, all packed into one region. A step that comes again, in whatever
// order, is found by its requests (below): a plan for each shape. A plan with room (Options.Room) has slots for requests of more
// and less than was recorded.
//
// # Turns
//
// The position of a lane is one atomic word with a turn, which grows whenever the position does not just advance. A block's tag is
// the word that it was served at. Each slot has a mark, the turn in which its block was freed, so what lies before the position
// is live if its mark is older than its turn, and serving writes nothing but the word:
//
//	Alloc   compares the size; the slots that end here have marks of this turn; the word grows by one (compare and swap)
//	Free    the mark becomes this turn, or the one before for a slot that is still to come in this turn (compare and swap)
//
// That is enough as long as all live is what the plan has live at the position, or less: then a slot's bytes are free, since
// the plan is a packing. Everything else happens under the lane's mutex, with a bit of the word set that sends every Alloc there.
//
// # Departures
//
// Strays are live blocks, or freed while other streams use them, that the plan does not have live at the position: freed late,
// or left over from elsewhere in the plan. While there are any, a slot is served only if it overlaps none; a stream follows the users
// of one that is freed (mem/internal/reuse). What cannot be served comes from the fallback, and the position advances.
//
// A request that is not expected comes from the fallback, and the lane is lost. It is found again by the first that fits:
//
//	the last four requests in a row, at most eight positions on: some were left out
//	the last twelve, anywhere: another step, or the same again. Of several such places the one with most requests in common
//	the request that was missed: others were inserted
//	the request as many positions on as were missed: they had other sizes
//	two in a row at most eight positions on
//
// A step of another shape, after requests that all steps end with, is so found at its first request. Finding costs a search among
// the slots and a look at each live block.
//
// # Invariant
//
//	live blocks of a lane = slots that the plan has live at the position, less those freed or not served, and live strays
//	they and the pending strays are disjoint
//
// # Locks
//
// Allocator.mu (statistics, Close), then those of lanes in their order, then that of the streams' waits. The fallback is called
// without any, but by Close and for statistics.
//
// # What it does not do
//
// It moves no block, and requests of private pools are the fallback's, so that captured graphs keep their memory: whoever captures
// allocates from a pool of the fallback. Peaks are the plan's: see Stats. Sizes match exactly, or within the room.
package planned

const (
	grain       = 512                 // bytes: places are multiples of it
	maxSlots    = 1<<posBits - 2      // of a lane
	maxSize     = 1 << 50             // bytes of a request, and of a lane
	maxStreams  = 1 << 10             // streams
	maxName     = 512                 // bytes
	minMatch    = 4                   // requests that a place near the position is found by
	farMatch    = 12                  // and one anywhere
	numRecent   = 16                  // requests that a lane remembers
	maxCompared = 64                  // places that are compared
	window      = 8                   // positions that are looked ahead
	posBits     = 24                  // of a word
	posMask     = 1<<posBits - 1      //
	slow        = 1 << 63             // of a word: the lane's mutex decides
	maxGen      = 1<<(63-posBits) - 1 // of a word
)

func roundUp(n int64) int64 { return (n + grain - 1) &^ (grain - 1) }
