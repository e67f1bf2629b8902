// Package snapshot reads and writes PyTorch's memory snapshots: the segments and blocks of an allocator at one instant,
// and the trace of events before it.
//
//	s, err := snapshot.ReadFile("snapshot.pickle.zst")
//	...
//	for _, segment := range s.Segments {
//		fmt.Println(segment.TotalSize, segment.AllocatedSize)
//	}
//
// Read accepts the files of torch.cuda.memory._dump_snapshot, pickled results of torch.cuda.memory._snapshot and
// memory_snapshot, and the files of the C++ writer, of any PyTorch version: keys that older versions did not write may
// be missing. Unknown keys and actions are counted in Snapshot.Skipped, kept as Extra and written again. Known parts
// must be valid: a wrong type, a negative size or a block outside its segment is an *Error with its place.
//
// Of takes a snapshot of any allocator of Ashlar. ReportOOM writes one when memory runs out. WritePickle, WriteJSON
// and WriteTimeline write a snapshot for other tools; holders/export writes profiles, flame graphs and tables.
//
// Limits bound the cost of a hostile file, in memory in proportion to the size of the file. A Snapshot is plain data
// without locks; functions may be called from several goroutines at once. Sizes are bytes; times are microseconds since
// 1970.
package snapshot

// Reading. The pickle's dicts for trace entries and stack frames are folded (see package pickle) as soon as they are
// complete: an entry becomes an event in trace.Columns, a frame becomes an index into trace.Stacks.Frames. Until the
// end an event's Stack, Stream, Pool and Metadata are provisional numbers, because the tables that they index are
// complete only then; the columns of a device get tables of the final ones (trace.Numbers), or are made anew if the
// tables would be larger. For ReadCompact, lifetimes are derived at the same time as if all entries were of one device,
// and used if they are. An entry that cannot be folded (an unknown action, a wrong
// type) stays a dict, and is read again when its device and index are known, for the error message. All other parts are
// small and are read from the pickle's document afterwards. No container is read twice into the result, so sharing in
// the file cannot multiply anything.
//
// Writing is one pass over the Snapshot, in the structure of PyTorch's dicts (write.go), to one of two sinks, pickle or
// JSON; timelines are events of their own.
//
// Parts that Skipped lists as dropped are not kept: bytes after the pickle, and unknown keys of parts that only Ashlar
// writes (memory_stats, out_of_memory). Read does not check that the trace and the segments agree; Check checks the
// segments only.

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// A Snapshot is the content of one file. It shares no data with another Snapshot.
type Snapshot struct {
	Segments []Segment // by device, then by address

	// Traces has one entry per device of the recording machine; nil for a device without events. It is empty if the
	// file has no device_traces: no history was recorded, or the file is that of torch.cuda.memory_snapshot().
	Traces []*trace.Trace

	// Stats are the statistics by the keys of torch.cuda.memory_stats(), in files that Ashlar wrote for an allocator
	// with statistics. They were read shortly after Segments, see Of. Nil if the file has none.
	Stats map[string]int64

	// Limits are the maximum reserved bytes of the allocator of each device, in files that Ashlar wrote: see
	// mem.LimitOf. 0 means that there is none, or that it is unknown; Limits may be shorter than Traces.
	Limits []int64

	// OutOfMemory is the failed request, in files that a Reporter wrote; otherwise nil.
	OutOfMemory *OutOfMemory

	Settings    Settings
	Annotations []Annotation  // in the order of the file
	Stacks      *trace.Stacks // of traces, segments and blocks; nil if there are none

	Extra      *Extra            // keys of the file itself
	TraceExtra []TraceExtra      // of each of Traces; it may be shorter
	FrameExtra map[uint32]*Extra // of frames, by their index in Stacks.Frames
	Skipped    []Skip            // unknown parts of the file, sorted

	lifetimes map[int]*trace.Lifetimes // by device, of those that ReadCompact derived
}

// NumDevices returns the number of devices that the snapshot can have something of: 1 plus the highest ordinal.
func (s *Snapshot) NumDevices() int {
	n := len(s.Traces)
	for i := range s.Segments {
		n = max(n, s.Segments[i].Device+1)
	}
	return n
}

// SegmentsOf returns the segments of a device, by address: a subslice of Segments.
func (s *Snapshot) SegmentsOf(device int) []Segment {
	at := func(device int) int {
		i, _ := slices.BinarySearchFunc(s.Segments, device, func(seg Segment, device int) int {
			return cmp.Compare(seg.Device, device)
		})
		return i
	}
	return s.Segments[at(device):at(device+1)]
}

// A Segment is memory that an allocator received from the driver in one piece, or a contiguous range of mapped pages of
// an expandable segment.
type Segment struct {
	Device        int // ordinal
	Ptr           driver.Pointer
	TotalSize     int64
	AllocatedSize int64  // bytes in allocated blocks
	ActiveSize    int64  // AllocatedSize, plus blocks whose free waits for other streams
	RequestedSize int64  // requested bytes of the active blocks; 0 in old files that lack it
	Stream        uint64 // the recorded handle
	Pool          mem.PoolID
	Large         bool // in the pool for blocks over 1 MiB
	Expandable    bool
	Stack         trace.StackID // where it was allocated
	Blocks        []Block       // in the order of their addresses, without overlap
	Extra         *Extra
}

// A Block is a part of a segment.
type Block struct {
	Ptr           driver.Pointer
	Size          int64
	RequestedSize int64 // of an inactive block: that of its last user, or 0; 0 in old files
	State         mem.BlockState
	Stack         trace.StackID // where it was allocated
	Extra         *Extra
}

// An Annotation marks the start or the end of a named section of work.
type Annotation struct {
	Device int
	TimeUS int64 // microseconds since 1970
	Name   string
	Stage  string // "START" or "END"

	// Metadata is additional text, in files that Ashlar wrote.
	Metadata string
	Extra    *Extra
}

// A Skip counts unknown parts of one kind.
type Skip struct {
	What    string // `key "host_segments"`, `frame key "fx_node_op"`
	Count   int
	Dropped bool // not in the Snapshot, so not written again; other parts are in an Extra
}

// Limits bound the cost of reading a file. A zero field means the default.
type Limits struct {
	Pickle pickle.Limits

	// Ratio is the maximum number of bytes that each byte of a compressed file may decompress to, after the first Free
	// bytes. Defaults 1000 and 64 MiB; traces compress by 10 to 100.
	Ratio, Free int64

	// MemoryPerByte is the number of bytes of memory that each byte of the file, as given, may cost during reading,
	// after the first MemoryFree bytes. It is counted as for Pickle.Memory, with the events and frames that were read;
	// the process may use about twice as much. Defaults 1024 and 64 MiB. Reading a trace takes 1 to 3 bytes for each
	// byte of the plain pickle. The recorded traces of this repository compress by a factor of 13 to 19, and take up to
	// 17 bytes for each byte of the file. So the default has room for files that compress by a factor of 200, but a
	// file of 60 kB cannot use gigabytes. A plain pickle never reaches it. Pickle.Memory applies too; its default here
	// is 64 GiB, enough for a trace of a thousand million events.
	MemoryPerByte, MemoryFree int64

	// Window is the maximum history of a decompressor in bytes. Default 128 MiB, which zstd and xz need at their
	// highest levels.
	Window int64
}

func (l Limits) withDefaults() Limits {
	l.Ratio = cmp.Or(max(l.Ratio, 0), 1000)
	l.Free = cmp.Or(max(l.Free, 0), 64<<20)
	l.Window = cmp.Or(max(l.Window, 0), 128<<20)
	l.Pickle.Memory = cmp.Or(max(l.Pickle.Memory, 0), 64<<30)
	l.MemoryPerByte = cmp.Or(max(l.MemoryPerByte, 0), 1024)
	l.MemoryFree = cmp.Or(max(l.MemoryFree, 0), 64<<20)
	return l
}

// Read reads a snapshot: a pickle, plain or compressed with gzip, zstd or xz. It reads r to its end. The error is an
// *Error for a pickle that is not a valid snapshot, or wraps a *pickle.Error, an error of the decompressor or an error
// of r.
func Read(r io.Reader) (*Snapshot, error) { return ReadLimited(r, Limits{}) }

// ReadFile is Read for a file. Errors contain the path.
func ReadFile(path string) (*Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer f.Close()
	s, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ReadLimited is Read with other limits.
func ReadLimited(r io.Reader, limits Limits) (*Snapshot, error) {
	s, err := read(r, limits, readOptions{})
	if err != nil {
		return nil, err
	}
	for _, t := range s.Traces {
		if t != nil {
			t.Events, t.Columns = t.Columns.Events(), nil
		}
	}
	return s, nil
}

// ReadCompact is ReadLimited for traces with Columns in place of Events: about 10 bytes an event, which takes a quarter
// of the memory. It derives Lifetimes while it reads, where it can. The methods of a Snapshot, and packages holders,
// replay and view, take such a snapshot, too; Expanded returns one that has Events.
func ReadCompact(r io.Reader, limits Limits) (*Snapshot, error) {
	return read(r, limits, readOptions{compact: true})
}

// Expanded returns a snapshot whose traces have Events, which is s if they do. It shares all other parts with s.
func (s *Snapshot) Expanded() *Snapshot {
	if !slices.ContainsFunc(s.Traces, func(t *trace.Trace) bool { return t != nil && t.Columns != nil }) {
		return s
	}
	x := *s
	x.Traces = slices.Clone(s.Traces)
	for i, t := range x.Traces {
		if t != nil {
			x.Traces[i] = t.Expanded()
		}
	}
	return &x
}

// readOptions say how the events are kept.
type readOptions struct {
	compact bool
	scan    *scanning // nil if they are kept
}

// read reads a snapshot whose traces have Columns.
func read(r io.Reader, limits Limits, o readOptions) (*Snapshot, error) {
	limits = limits.withDefaults()
	plain, format, source, err := decompress(r, limits)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	im := newImporter(limits, source, o)
	read := &countio.Reader{R: plain}
	doc, err := pickle.Read(read, pickle.Options{
		Limits: limits.Pickle, Fold: im.foldDict,
		Allow: func() (int64, error) { return limits.memory(source.N), ErrMemory },
	})
	im.columns = im.events.Columns()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s%w", format, err)
	}
	// The decompressor verifies its checksums only when it is read to the end.
	if _, err := io.Copy(io.Discard, read); err != nil {
		return nil, fmt.Errorf("snapshot: %safter the pickle: %w", format, err)
	}
	if rest := read.N - doc.Size(); rest > 0 {
		im.skipped.drop("bytes after the pickle", int(rest))
	}
	im.doc = doc
	return im.snapshot()
}

// ReadBytes is Read for a file in memory.
func ReadBytes(b []byte) (*Snapshot, error) { return Read(bytes.NewReader(b)) }
