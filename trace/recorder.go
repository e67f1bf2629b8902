package trace

import (
	"math"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/mem"
)

// A Recorder collects the events of one allocator: its Observe method is a mem.Observer. Like PyTorch's ring it keeps
// everything up to a number of entries, and then overwrites the oldest. Safe for concurrent use; events are in the order
// of the calls. It tells 65,536 pools apart; the events of any further ones name the default pool.
type Recorder struct {
	mu        sync.Mutex
	device    int
	max       int
	clock     func() int64
	events    []Event
	next      int // the oldest, once the ring is full
	lost      int64
	streams   numbering[uint64]
	pools     numbering[mem.PoolID]
	metadata  numbering[string]
	annotated uint32
}

// RecorderOptions says what a Recorder keeps. The zero value keeps everything, without times.
type RecorderOptions struct {
	Device int          // ordinal, for Trace.Device
	Max    int          // entries to keep; 0 or less means all
	Clock  func() int64 // microseconds since 1970; nil means 0 always
}

// NewRecorder returns a recorder without events.
func NewRecorder(opts RecorderOptions) *Recorder {
	r := &Recorder{device: opts.Device, max: opts.Max, clock: opts.Clock}
	if r.max <= 0 {
		r.max = math.MaxInt
	}
	r.Reset()
	return r
}

// Observe adds an event. It neither blocks for long nor calls anything but the clock.
func (r *Recorder) Observe(e mem.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := Event{
		Ptr:      e.Ptr,
		Size:     e.Size,
		Stream:   r.streams.of(uint64(e.Stream)),
		Metadata: r.annotated,
		Action:   e.Action,
	}
	if pool := r.pools.of(e.Pool); pool < maxPools {
		entry.Pool = uint16(pool)
	}
	if r.clock != nil {
		entry.TimeUS = r.clock()
	}
	if len(r.events) < r.max {
		r.events = append(r.events, entry)
		return
	}
	r.events[r.next] = entry
	r.next = (r.next + 1) % r.max
	r.lost++
}

// Annotate attaches a text to the events from now on, until the next call. The empty text attaches nothing.
func (r *Recorder) Annotate(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotated = r.metadata.of(text)
}

// Lost returns how many entries were overwritten.
func (r *Recorder) Lost() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Reset forgets all entries. The annotation stays.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if len(r.metadata.values) > 0 {
		text = r.metadata.values[r.annotated]
	}
	r.events, r.next, r.lost = nil, 0, 0
	r.streams, r.pools, r.metadata = numbering[uint64]{}, numbering[mem.PoolID]{}, numbering[string]{}
	r.pools.of(mem.PoolID{})
	r.metadata.of("")
	r.annotated = r.metadata.of(text)
}

// Trace returns a copy of what was recorded, oldest first. Stream handles are the device's stream numbers. It has no
// stacks. Streams, pools and annotations of overwritten entries are still listed.
func (r *Recorder) Trace() *Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &Trace{
		Device:     r.device,
		Events:     append(slices.Clone(r.events[r.next:]), r.events[:r.next]...),
		Streams:    slices.Sorted(slices.Values(r.streams.values)),
		Pools:      slices.Clone(r.pools.values[:min(len(r.pools.values), maxPools)]),
		PoolsKnown: true,
		Metadata:   slices.Clone(r.metadata.values),
	}
	order := make([]uint32, len(t.Streams))
	for i, handle := range r.streams.values {
		n, _ := slices.BinarySearch(t.Streams, handle)
		order[i] = uint32(n)
	}
	for i := range t.Events {
		t.Events[i].Stream = order[t.Events[i].Stream]
	}
	return t
}

// A numbering gives values numbers in the order in which they first appear.
type numbering[T comparable] struct {
	values  []T
	numbers map[T]uint32
	last    uint32 // the number found last: runs of one value are the rule
}

func (n *numbering[T]) of(v T) uint32 {
	if int(n.last) < len(n.values) && n.values[n.last] == v {
		return n.last
	}
	number, ok := n.numbers[v]
	if !ok {
		if n.numbers == nil {
			n.numbers = map[T]uint32{}
		}
		number = uint32(len(n.values))
		n.values = append(n.values, v)
		n.numbers[v] = number
	}
	n.last = number
	return number
}
