package snapshot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// TimelineOptions say what WriteTimeline shows. The zero value is valid.
type TimelineOptions struct {
	// Name returns the name of the blocks with a stack. If it is nil or returns "", the innermost frame names them.
	Name func(trace.StackID) string

	Marks []TimelineMark
}

// A TimelineMark names a moment of a device: after an event, or before the first one if it is -1.
type TimelineMark struct {
	Device, Event int
	Name          string
}

// WriteTimeline writes the traces and annotations as one JSON file for https://ui.perfetto.dev and chrome://tracing, in
// the Trace Event Format (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). A device is
// a process in which
//
//   - memory is a counter (C) of the requested bytes and of the bytes in segments, with a value for each distinct time;
//   - a block is an asynchronous span (b, e), from its allocation until its memory can be reused; it is named by
//     the innermost frame of its stack, or by its size;
//   - a stream is a thread, on which segment events, failed requests and snapshots are instants (i);
//   - a mark is an instant of the whole process;
//   - an annotation is an asynchronous span from its START to its END.
//
// The argument stack of an event is its whole stack, innermost frame first. (Perfetto does not read the format's own
// field for stacks: https://github.com/google/perfetto/issues/387.)
//
// Times are microseconds since the earliest event; otherData.start_us is its time in microseconds since 1970. If the
// events of a trace have no times (a trace.Recorder without a clock), they are placed one microsecond apart. The last
// value of the counter is the sum over the segments. So if the start of a trace is missing, the first value is the
// memory at the first recorded event.
//
// Memory use is proportional to the allocated blocks and the names of stacks, not to the number of events. It is an
// *Error if stacks that events share take more than 64 MiB plus 32 KiB for each event when they are written out.
// Otherwise the error is that of w.
func (s *Snapshot) WriteTimeline(w io.Writer, o TimelineOptions) error {
	s = s.Expanded()
	x := &timeline{s: s, o: o, out: textOutput{w: w}, names: map[trace.StackID]string{}, shared: maxShared}
	if s.Stacks != nil {
		x.lines = make([]string, len(s.Stacks.Frames))
	}
	x.zero = s.start()
	x.out.text(`{"displayTimeUnit":"ms","otherData":{"start_us":` + strconv.FormatInt(x.zero, 10) + `},"traceEvents":[`)
	named := map[int]bool{}
	process := func(device int) {
		if !named[device] {
			named[device] = true
			x.begin("M", "process_name", device, 0)
			x.add(`,"args":{"name":"device `, strconv.Itoa(device), `"}}`)
		}
	}
	for device, t := range s.Traces {
		if t != nil && len(t.Events) > 0 {
			process(device)
			x.trace(device, t)
		}
	}
	for i := range s.Annotations {
		process(s.Annotations[i].Device)
	}
	x.annotations()
	x.out.text("\n]}\n")
	return x.out.close()
}

// start returns the earliest time of all events and annotations with a time.
func (s *Snapshot) start() int64 {
	first := int64(0)
	see := func(us int64) {
		if us != 0 && (first == 0 || us < first) {
			first = us
		}
	}
	for _, t := range s.Traces {
		if t != nil {
			for i := range t.Events {
				see(t.Events[i].TimeUS)
			}
		}
	}
	for i := range s.Annotations {
		see(s.Annotations[i].TimeUS)
	}
	return first
}

// since converts a time to a time in the file. An event without a time is placed at the start.
func (x *timeline) since(us int64) int64 { return max(us-x.zero, 0) }

// A timeline writes a file for WriteTimeline.
type timeline struct {
	s     *Snapshot
	out   textOutput
	zero  int64 // the time that is 0 in the file
	some  bool  // an event was written
	spans int64 // asynchronous spans so far
	names map[trace.StackID]string

	o      TimelineOptions
	lines  []string // the JSON of each frame, by its index; "" until it is needed
	shared int64    // bytes of frames that may still be written again
}

// A spanned is an allocated block with its open span.
type spanned struct {
	span int64
	name string
}

// begin begins an event.
func (x *timeline) begin(phase, name string, device, thread int) {
	b := x.out.buf
	if x.some {
		b = append(b, ',')
	}
	x.some = true
	b = appendString(append(b, "\n{\"name\":"...), name)
	b = append(append(b, `,"ph":"`...), phase...)
	b = strconv.AppendInt(append(b, `","pid":`...), int64(device), 10)
	x.out.buf = strconv.AppendInt(append(b, `,"tid":`...), int64(thread), 10)
}

func (x *timeline) add(parts ...string) {
	for _, s := range parts {
		x.out.buf = append(x.out.buf, s...)
	}
	x.out.room()
}

func (x *timeline) number(key string, n int64) {
	x.out.buf = strconv.AppendInt(append(x.out.buf, key...), n, 10)
}

func (x *timeline) handle(key string, n uint64) {
	x.out.buf = append(strconv.AppendUint(append(x.out.buf, key...), n, 16), '"')
}

// thread returns the thread number of a stream. It is the stream's index: handles have more bits than viewers keep.
func thread(stream uint32) int { return int(stream) + 1 }

// before returns the totals before the trace, such that the totals after it are those of the segments.
func (s *Snapshot) before(t *trace.Trace) trace.Totals {
	change := t.Totals()
	var requested, reserved int64
	for _, seg := range s.SegmentsOf(t.Device) {
		reserved += seg.TotalSize
		for j := range seg.Blocks {
			if b := &seg.Blocks[j]; b.State != mem.Inactive {
				requested += cmp.Or(b.RequestedSize, b.Size) // 0 in old files
			}
		}
	}
	return trace.Totals{
		Requested: mem.Stat{Current: max(requested-change.Requested.Current, 0)},
		Reserved:  mem.Stat{Current: max(reserved-change.Reserved.Current, 0)},
	}
}

// trace writes the events of one device.
func (x *timeline) trace(device int, t *trace.Trace) {
	for i, handle := range t.Streams {
		x.begin("M", "thread_name", device, thread(uint32(i)))
		x.add(fmt.Sprintf(`,"args":{"name":"stream %#x"}}`, handle))
	}
	timed := slices.ContainsFunc(t.Events, func(e trace.Event) bool { return e.TimeUS != 0 })
	at := func(i int) int64 {
		if timed {
			return x.since(t.Events[i].TimeUS)
		}
		return int64(i)
	}
	blocks := map[driver.Pointer]spanned{}
	now := x.s.before(t)
	x.marks(device, -1, 0)
	for i := range t.Events {
		e := &t.Events[i]
		now.Add(e.Action, e.Size)
		switch e.Action {
		case mem.ActionAlloc:
			x.end(blocks, e.Ptr, device, at(i)) // its free was not recorded
			x.alloc(blocks, t, e, device, at(i))
		case mem.ActionFreeCompleted:
			x.end(blocks, e.Ptr, device, at(i))
		case mem.ActionFreeRequested:
		default:
			x.instant(t, e, device, at(i))
		}
		x.marks(device, i, at(i))
		if i+1 == len(t.Events) || at(i+1) != at(i) {
			x.begin("C", "memory", device, 0)
			x.number(`,"ts":`, at(i))
			x.number(`,"args":{"requested":`, now.Requested.Current)
			x.number(`,"reserved":`, now.Reserved.Current)
			x.add("}}")
		}
	}
}

// marks writes the marks after an event.
func (x *timeline) marks(device, event int, at int64) {
	for _, m := range x.o.Marks {
		if m.Device == device && m.Event == event {
			x.begin("i", m.Name, device, 0)
			x.number(`,"s":"p","ts":`, at)
			x.add("}")
		}
	}
}

// alloc begins the span of a block.
func (x *timeline) alloc(blocks map[driver.Pointer]spanned, t *trace.Trace, e *trace.Event, device int, at int64) {
	x.spans++
	b := spanned{x.spans, x.name(e)}
	blocks[e.Ptr] = b
	x.begin("b", b.name, device, 0)
	x.number(`,"cat":"block","id":`, b.span)
	x.number(`,"ts":`, at)
	x.number(`,"args":{"size":`, e.Size)
	x.details(t, e)
}

// end ends the span of the block at an address, if one is open.
func (x *timeline) end(blocks map[driver.Pointer]spanned, p driver.Pointer, device int, at int64) {
	b, ok := blocks[p]
	if !ok {
		return
	}
	delete(blocks, p)
	x.begin("e", b.name, device, 0)
	x.number(`,"cat":"block","id":`, b.span)
	x.number(`,"ts":`, at)
	x.add("}")
}

// instant writes an event without a duration.
func (x *timeline) instant(t *trace.Trace, e *trace.Event, device int, at int64) {
	x.begin("i", e.Action.String(), device, thread(e.Stream))
	x.number(`,"s":"t","ts":`, at)
	x.number(`,"args":{"size":`, e.Size)
	x.details(t, e)
}

// details writes the remaining arguments of an event and ends it.
func (x *timeline) details(t *trace.Trace, e *trace.Event) {
	if e.Action == mem.ActionOOM {
		x.number(`,"device_free":`, int64(e.Ptr))
	} else {
		x.handle(`,"addr":"0x`, uint64(e.Ptr))
	}
	x.handle(`,"stream":"0x`, t.Streams[e.Stream])
	if t.PoolsKnown {
		pool := t.Pools[e.Pool]
		b := strconv.AppendUint(append(x.out.buf, `,"pool":"(`...), pool[0], 10)
		x.out.buf = append(strconv.AppendUint(append(b, ", "...), pool[1], 10), `)"`...)
	}
	if tag := t.Metadata[e.Metadata]; tag != "" {
		x.add(`,"tag":`)
		x.out.buf = appendString(x.out.buf, tag)
	}
	x.stack(e.Stack)
	x.add("}}")
}

// stack writes the frames of a stack.
func (x *timeline) stack(id trace.StackID) {
	x.shared += sharedPerItem
	for i, n := range x.s.Stacks.At(id) {
		if i == 0 {
			x.add(`,"stack":[`)
		} else {
			x.add(",")
		}
		if x.lines[n] == "" {
			x.lines[n] = string(appendString(nil, frameText(&x.s.Stacks.Frames[n])))
		} else if x.shared -= int64(len(x.lines[n])); x.shared < 0 {
			x.out.err = cmp.Or(x.out.err, error(&Error{Reason: fmt.Sprintf("in a timeline, stacks that events share "+
				"would take more than %d MiB, and %d KiB for each event", maxShared>>20, sharedPerItem>>10)}))
			return
		}
		x.add(x.lines[n])
		if i+1 == len(x.s.Stacks.At(id)) {
			x.add("]")
		}
	}
}

func frameText(f *trace.Frame) string { return fmt.Sprintf("%s (%s:%d)", f.Name, f.Filename, f.Line) }

// name returns the name of a block.
func (x *timeline) name(e *trace.Event) string {
	refs := x.s.Stacks.At(e.Stack)
	if len(refs) == 0 {
		return bytesize.Format(e.Size)
	}
	name, ok := x.names[e.Stack]
	if !ok {
		if x.o.Name != nil {
			name = x.o.Name(e.Stack)
		}
		name = cmp.Or(name, frameText(&x.s.Stacks.Frames[refs[0]]))
		x.names[e.Stack] = name
	}
	return name
}

// annotations writes a span for each START and the END of the same name. If several are open, an END closes the last
// one.
func (x *timeline) annotations() {
	type named struct {
		device int
		name   string
	}
	open := map[named][]int64{}
	for i := range x.s.Annotations {
		a := &x.s.Annotations[i]
		key := named{a.Device, a.Name}
		phase, span := "b", int64(0)
		if a.Stage == "END" {
			spans := open[key]
			if len(spans) == 0 {
				continue // began before the recording
			}
			phase, span = "e", spans[len(spans)-1]
			open[key] = spans[:len(spans)-1]
		} else {
			x.spans++
			span = x.spans
			open[key] = append(open[key], span)
		}
		x.begin(phase, a.Name, a.Device, 0)
		x.number(`,"cat":"annotation","id":`, span)
		x.number(`,"ts":`, x.since(a.TimeUS))
		x.add("}")
	}
}
