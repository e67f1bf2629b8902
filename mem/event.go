package mem

import "github.com/ashlar-go/ashlar/driver"

// An Action is the kind of an Event.
type Action uint8

const (
	ActionAlloc         Action = iota // a block was allocated
	ActionFreeRequested               // Free was called
	ActionFreeCompleted               // the block may be reused: at once, or when other streams were done with it
	ActionSegmentAlloc                // the driver allocated a segment
	ActionSegmentFree                 // a segment was returned to the driver
	ActionSegmentMap                  // pages were mapped into an expandable segment
	ActionSegmentUnmap                // pages were unmapped from an expandable segment
	ActionSnapshot                    // a snapshot was taken
	ActionOOM                         // an allocation failed for lack of memory
	ActionAnnotate                    // a named part of the program starts or ends; written by trace.Recorder.Annotate
	ActionUserDefined                 // an annotation in snapshots of PyTorch 2.4, where the frames contain the name
	NumActions
)

var actionNames = [NumActions]string{
	"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
	"snapshot", "oom", "annotate", "user_defined",
}

// String returns the name that PyTorch's snapshots use.
func (a Action) String() string {
	if a < NumActions {
		return actionNames[a]
	}
	return "unknown"
}

// IsAnnotation reports whether a is an annotation by the program, and not an action of an allocator.
func (a Action) IsAnnotation() bool { return a == ActionAnnotate || a == ActionUserDefined }

// ParseAction is the inverse of String.
func ParseAction(name string) (Action, bool) {
	for i, n := range actionNames {
		if n == name {
			return Action(i), true
		}
	}
	return 0, false
}

// An Event is one action of an allocator, with the fields of a PyTorch trace entry.
type Event struct {
	Action Action
	Stream driver.StreamID
	Pool   PoolID
	Ptr    driver.Pointer // of an OOM: the free bytes of the device
	// requested bytes of blocks; whole bytes of segments; rounded request of an OOM; active bytes of a snapshot
	Size int64
}

// An Observer is called with each event, in order, under the allocator's locks: it must be quick and must not call the
// allocator.
type Observer func(Event)

// Observable is an allocator that reports its events.
type Observable interface {
	// Observe sets the observer that receives every event from now on, in place of the previous one. Nil removes the
	// observer.
	Observe(observer Observer)
}
