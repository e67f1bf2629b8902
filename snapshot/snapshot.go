// Package snapshot reads and writes PyTorch's memory snapshots: what an allocator held at an instant, segment by segment,
// and the trace of how it came to that. Of makes one of any allocator of Ashlar's; WriteJSON, WriteProfile and
// WriteTimeline write one for other tools.
//
// torch.cuda.memory._dump_snapshot writes them, as do torch.cuda.memory._snapshot and memory_snapshot when their
// result is pickled, and the C++ writer that works without Python. Files of any age are read as far as they go: keys
// that older PyTorch did not write may be absent. Keys and actions that are not known here are counted in
// Snapshot.Skipped, kept as Extra and written again. What is there must make sense: a wrong type, a negative size or a block outside its segment is an
// *Error that says where.
//
// # Data structures
//
// The pickle's dicts for trace entries and stack frames are folded (see package pickle) as soon as they are complete:
// an entry becomes a trace.Event in one growing list, a frame becomes an index into trace.Stacks.Frames. Until the
// end an event's Stack, Stream, Pool and Metadata are provisional numbers, since the tables that they index are only
// known then; one pass per device replaces them. An entry that cannot be folded (an unknown action, a wrong type)
// stays a dict, and is looked at again when its device and place are known, for the sake of the message. Everything
// else is small, and read from the pickle's document afterwards.
//
// What is written is written in one pass over the Snapshot, in the structure of PyTorch's dicts (write.go) to one of two
// sinks, pickle or JSON; profiles and timelines are sums and events of their own.
//
// # Bounds
//
// Limits bound what a hostile file can cost, in memory in proportion to the bytes of the file as it is given. No
// container is read twice into the result, so sharing in the file cannot multiply anything.
//
// # What it does not do
//
// It does not keep what Skipped lists as dropped: bytes after the pickle, and unknown keys of what Ashlar itself adds
// (memory_stats, out_of_memory). It does not judge whether the trace and the segments agree; Check judges
// the segments alone.
package snapshot

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// A Snapshot is what one file holds. Nothing in it is shared with another Snapshot.
type Snapshot struct {
	Segments []Segment // by device, then by address

	// Traces has one entry per device of the recording machine; nil where the device has no events. It is empty if the
	// file has no device_traces at all: then no history was recorded, or the file is torch.cuda.memory_snapshot().
	Traces []*trace.Trace

	// Stats are the statistics by the keys of torch.cuda.memory_stats(), in files that Ashlar wrote, from an allocator that
	// has some. They are of about the instant of Segments, see Of. Nil if the file has none.
	Stats map[string]int64

	// Limits are the bytes that the allocator of each device may reserve at most, in files that Ashlar wrote: see
	// mem.LimitOf. 0 is none, or not known; it may be shorter than Traces.
	Limits []int64

	// OutOfMemory is the request that found no room, in files that a Reporter wrote; else nil.
	OutOfMemory *OutOfMemory

	Settings    Settings
	Annotations []Annotation  // in the order of the file
	Stacks      *trace.Stacks // of traces, segments and blocks; nil if there are none

	Extra      *Extra            // keys of the file itself
	TraceExtra []TraceExtra      // of each of Traces; it may be shorter
	FrameExtra map[uint32]*Extra // of frames, by their index in Stacks.Frames
	Skipped    []Skip            // what the file has and this package does not know, sorted
}

// SegmentsOf returns the segments of a device: a part of Segments, by address.
func (s *Snapshot) SegmentsOf(device int) []Segment {
	at := func(device int) int {
		i, _ := slices.BinarySearchFunc(s.Segments, device, func(seg Segment, device int) int { return cmp.Compare(seg.Device, device) })
		return i
	}
	return s.Segments[at(device):at(device+1)]
}

// A Segment is memory that an allocator got from the driver in one piece, or one contiguous range of mapped pages of
// an expandable segment.
type Segment struct {
	Device        int // ordinal
	Ptr           driver.Pointer
	TotalSize     int64
	AllocatedSize int64  // bytes in blocks that are allocated
	ActiveSize    int64  // and in blocks whose free waits for other streams
	RequestedSize int64  // what was asked for, of the active blocks; 0 in files from before it was recorded
	Stream        uint64 // the recorded handle
	Pool          mem.PoolID
	Large         bool // of the pool of blocks over 1 MiB
	Expandable    bool
	Stack         trace.StackID // where it was allocated
	Blocks        []Block       // in the order of their addresses, without overlap
	Extra         *Extra
}

// A Block is a part of a segment.
type Block struct {
	Ptr           driver.Pointer
	Size          int64
	RequestedSize int64 // of an inactive block: what its last user asked for, or 0; 0 in old files
	State         mem.BlockState
	Stack         trace.StackID // where it was allocated
	Extra         *Extra
}

// An Annotation marks the start or the end of a named stretch of work.
type Annotation struct {
	Device int
	TimeUS int64 // microseconds since 1970
	Name   string
	Stage  string // "START" or "END"

	// Metadata says more of the work, in files that Ashlar wrote.
	Metadata string
	Extra    *Extra
}

// A Skip counts one kind of thing that this package does not know.
type Skip struct {
	What    string // `key "host_segments"`, `frame key "fx_node_op"`
	Count   int
	Dropped bool // it is not in the Snapshot, and so not in what is written of it; other things are, as Extra
}

// Limits bound what reading a file may cost. A field that is zero means the default.
type Limits struct {
	Pickle pickle.Limits

	// Ratio is how many bytes each byte of a compressed file may become, beyond the first Free bytes. Defaults 1000 and
	// 64 MiB; traces compress by 10 to 100.
	Ratio, Free int64

	// MemoryPerByte is how many bytes of memory each byte of the file, as it is given, may cost while it is read, beyond
	// the first MemoryFree bytes. It is counted as for Pickle.Memory, with the events and frames that were read; the
	// process may take about twice that. Defaults 1024 and 64 MiB. A trace costs 2 to 5 bytes for each byte of the plain
	// pickle; compressed by 13 to 19, as the recorded traces of this repository are, it costs up to 31 for each byte of
	// the file. So the default leaves room for files that compress by 200, yet a file of 60 kB cannot take gigabytes.
	// A plain pickle never reaches it. Pickle.Memory holds besides; its default here is 64 GiB, enough for a trace of
	// 200 million events.
	MemoryPerByte, MemoryFree int64

	// Window is how many bytes of what went before a decompressor may keep. Default 128 MiB, which zstd and xz
	// need at their highest levels.
	Window int64
}

func (l Limits) withDefaults() Limits {
	if l.Ratio <= 0 {
		l.Ratio = 1000
	}
	if l.Free <= 0 {
		l.Free = 64 << 20
	}
	if l.Window <= 0 {
		l.Window = 128 << 20
	}
	if l.Pickle.Memory <= 0 {
		l.Pickle.Memory = 64 << 30
	}
	if l.MemoryPerByte <= 0 {
		l.MemoryPerByte = 1024
	}
	if l.MemoryFree <= 0 {
		l.MemoryFree = 64 << 20
	}
	return l
}

// Read reads a snapshot: a pickle, plain or compressed with gzip, zstd or xz. It reads r to its end. The error is an
// *Error for a pickle that is no sound snapshot, or wraps a *pickle.Error or what the decompressor or r returned.
func Read(r io.Reader) (*Snapshot, error) { return ReadLimited(r, Limits{}) }

// ReadFile reads the snapshot in a file, as Read does. Errors name the path.
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

// ReadLimited is Read with limits of the caller's.
func ReadLimited(r io.Reader, limits Limits) (*Snapshot, error) {
	limits = limits.withDefaults()
	plain, format, source, err := decompress(r, limits)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	im := newImporter(limits, source)
	read := &counter{r: plain}
	doc, err := pickle.Read(read, pickle.Options{
		Limits: limits.Pickle, Fold: im.foldDict,
		Allow: func() (int64, error) { return limits.memory(source.n), ErrMemory },
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s%w", format, err)
	}
	// Reading on to the end makes the decompressor check its checksums.
	if _, err := io.Copy(io.Discard, read); err != nil {
		return nil, fmt.Errorf("snapshot: %safter the pickle: %w", format, err)
	}
	if rest := read.n - doc.Size(); rest > 0 {
		im.skipped.drop("bytes after the pickle", int(rest))
	}
	im.doc = doc
	return im.snapshot()
}

// ReadBytes is Read on a file that is in memory.
func ReadBytes(b []byte) (*Snapshot, error) { return Read(bytes.NewReader(b)) }
