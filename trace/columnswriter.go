package trace

import "sync"

// A ColumnsWriter makes Columns of events. It packs them in other goroutines; except for that, it is not safe for
// concurrent use. The zero value is ready.
type ColumnsWriter struct {
	// Watch, if not nil, is called with all events in order, some at a time, in another goroutine. They are valid
	// during the call only. All calls have returned when Columns returns.
	Watch func(events []Event)

	// Discard says that the events are watched and not kept: Columns returns none.
	Discard bool

	events  []Event // of the last chunk, not packed yet
	columns Columns
	free    chan *packingBuffer
	packing sync.WaitGroup
	buffer  *packingBuffer // of events
	watched chan struct{}  // closed when the events before have been watched; nil at first
}

// A packingBuffer is the memory for one chunk that is being packed.
type packingBuffer struct {
	events  [chunkEvents]Event
	scratch packing
}

// packers is the number of chunks that are packed at a time.
const packers = 2

// Len returns the number of events so far.
func (w *ColumnsWriter) Len() int { return w.columns.n }

// Add adds an event.
func (w *ColumnsWriter) Add(e *Event) {
	if len(w.events) == cap(w.events) {
		w.room()
	}
	w.events = append(w.events, *e)
	w.columns.n++
}

// room makes room for another event. The first chunk grows, so that few events take little memory.
func (w *ColumnsWriter) room() {
	if n := len(w.events); n < chunkEvents {
		grown := make([]Event, n, min(max(64, 4*n), chunkEvents))
		copy(grown, w.events)
		w.events = grown
		return
	}
	w.pack()
	if w.buffer = w.next(); w.buffer != nil {
		w.events = w.buffer.events[:0]
	}
}

// next returns a buffer, when there is one.
func (w *ColumnsWriter) next() *packingBuffer {
	if w.free == nil {
		w.free = make(chan *packingBuffer, packers+1)
		for range packers + 1 {
			w.free <- nil
		}
	}
	b := <-w.free
	if b == nil {
		b = &packingBuffer{}
	}
	return b
}

// pack packs the events of the last chunk.
func (w *ColumnsWriter) pack() {
	events, buffer := w.events, w.buffer
	var k *chunk
	if !w.Discard {
		k = &chunk{}
		w.columns.chunks = append(w.columns.chunks, k)
	}
	before, watched := w.watched, make(chan struct{})
	w.watched = watched
	w.packing.Go(func() {
		switch {
		case k == nil:
		case buffer != nil:
			k.pack(events, &buffer.scratch)
		default:
			k.pack(events, &packing{})
		}
		if before != nil {
			<-before
		}
		if w.Watch != nil {
			w.Watch(events)
		}
		close(watched)
		if buffer != nil {
			w.free <- buffer
		}
	})
	w.events, w.buffer = nil, nil
}

// Columns returns the events. None must be added afterwards.
func (w *ColumnsWriter) Columns() *Columns {
	if len(w.events) > 0 {
		w.pack()
	}
	w.packing.Wait()
	if w.Discard {
		return &Columns{}
	}
	return &w.columns
}
