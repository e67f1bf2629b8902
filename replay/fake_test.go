package replay_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A device with memory that a Go slice is, and streams that do everything at once.
type device struct {
	memory  []byte
	streams []*stream
	closed  bool
}

func newDevice(size int) *device {
	d := &device{memory: make([]byte, size)}
	d.streams = []*stream{{d: d}}
	return d
}

const deviceBase = 0x1000

func (d *device) at(p driver.Pointer, n int64) []byte { return d.memory[p-deviceBase:][:n] }

func (d *device) Info() driver.Info                   { return driver.Info{Driver: "fake"} }
func (d *device) Available() (int64, int64, error)    { return 0, int64(len(d.memory)), nil }
func (d *device) Alloc(int64) (driver.Pointer, error) { panic("not used") }
func (d *device) Free(driver.Pointer) error           { panic("not used") }
func (d *device) DefaultStream() driver.Stream        { return d.streams[0] }
func (d *device) VirtualMemory() driver.VirtualMemory { return nil }
func (d *device) Kernels() driver.Kernels             { return nil }
func (d *device) Pinned() driver.Pinned               { return nil }
func (d *device) Timing() driver.Timing               { return nil }
func (d *device) Graphs() driver.Graphs               { return nil }
func (d *device) Peers() driver.Peers                 { return nil }
func (d *device) Sharing() driver.Sharing             { return nil }
func (d *device) Visible() driver.Visible             { return nil }
func (d *device) Close() error                        { d.closed = true; return nil }
func (d *device) Processes() ([]driver.ProcessMemory, error) {
	return nil, &driver.Error{Call: "Processes", Code: driver.ErrUnsupported}
}

func (d *device) NewStream(driver.StreamOptions) (driver.Stream, error) {
	s := &stream{d: d, id: driver.StreamID(len(d.streams))}
	d.streams = append(d.streams, s)
	return s, nil
}

type stream struct {
	d  *device
	id driver.StreamID
}

func (s *stream) ID() driver.StreamID { return s.id }
func (s *stream) Copy(dst, src driver.Pointer, n int64) error {
	copy(s.d.at(dst, n), s.d.at(src, n))
	return nil
}

func (s *stream) CopyIn(dst driver.Pointer, src []byte) error {
	copy(s.d.at(dst, int64(len(src))), src)
	return nil
}

func (s *stream) CopyOut(dst []byte, src driver.Pointer) error {
	copy(dst, s.d.at(src, int64(len(dst))))
	return nil
}

func (s *stream) Fill(p driver.Pointer, pattern byte, n int64) error {
	for i := range s.d.at(p, n) {
		s.d.at(p, n)[i] = pattern
	}
	return nil
}

func (s *stream) Mark() (driver.Mark, error)               { return driver.Mark{Stream: s.id, Tick: 1}, nil }
func (s *stream) Reached(driver.Mark) (bool, error)        { return true, nil }
func (s *stream) WaitFor(driver.Stream, driver.Mark) error { return nil }
func (s *stream) Sync(context.Context) error               { return nil }
func (s *stream) Close() error                             { return nil }

// An allocator that is first fit in 512-byte units, waits for marks as caching allocators do, and writes down its
// calls.
type allocator struct {
	d       *device
	live    []span // by address, pending ones too
	waiting []waiting
	limit   int64
	log     []string
	quiet   bool
	empty   error // of EmptyCache

	stale bool // allocates pending blocks too: a bug for Contents to find
}

type span struct{ ptr, end driver.Pointer }

type waiting struct {
	b     mem.Block
	used  []driver.Stream
	marks []driver.Mark
}

func newAllocator(d *device) *allocator { return &allocator{d: d, limit: int64(len(d.memory))} }

func (a *allocator) note(format string, args ...any) {
	if !a.quiet {
		a.log = append(a.log, fmt.Sprintf(format, args...))
	}
}

// poll completes the pending frees that are done, in order on each stream.
func (a *allocator) poll() {
	blocked := map[driver.StreamID]bool{}
	a.waiting = slices.DeleteFunc(a.waiting, func(w waiting) bool {
		all := true
		for i, s := range w.used {
			done, _ := s.Reached(w.marks[i])
			blocked[s.ID()] = blocked[s.ID()] || !done
			all = all && !blocked[s.ID()]
		}
		if !all {
			return false
		}
		a.note("done %#x", w.b.Ptr)
		a.release(w.b)
		return true
	})
}

func (a *allocator) find(size int64) (driver.Pointer, int, bool) {
	at := driver.Pointer(deviceBase)
	for i, s := range a.live {
		if s.ptr-at >= driver.Pointer(size) {
			return at, i, true
		}
		at = s.end
	}
	return at, len(a.live), int64(at-deviceBase)+size <= a.limit
}

func (a *allocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size == 0 {
		return mem.Block{}, nil
	}
	a.poll()
	rounded := (size + 511) / 512 * 512
	at, i, ok := a.find(rounded)
	if !ok {
		for _, w := range a.waiting {
			for _, s := range w.used {
				_ = s.Sync(context.Background())
			}
		}
		a.poll()
		if at, i, ok = a.find(rounded); !ok {
			a.note("s%d full %d", s.ID(), size)
			return mem.Block{}, fmt.Errorf("fake: %w", mem.ErrNoMemory)
		}
	}
	a.live = slices.Insert(a.live, i, span{at, at + driver.Pointer(rounded)})
	a.note("s%d alloc %d at %#x", s.ID(), size, at)
	return mem.Block{Ptr: at, Size: rounded}, nil
}

func (a *allocator) release(b mem.Block) {
	i := slices.IndexFunc(a.live, func(s span) bool { return s.ptr == b.Ptr })
	if i < 0 {
		panic(fmt.Sprintf("fake: free of %#x", b.Ptr))
	}
	a.live = slices.Delete(a.live, i, i+1)
}

func (a *allocator) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	if len(used) == 0 || a.stale {
		a.note("free %#x", b.Ptr)
		a.release(b)
		return
	}
	a.note("free %#x used by %d", b.Ptr, len(used))
	w := waiting{b: b, used: slices.Clone(used)}
	for _, s := range used {
		m, _ := s.Mark()
		w.marks = append(w.marks, m)
	}
	a.waiting = append(a.waiting, w)
}

func (a *allocator) EmptyCache() error {
	a.note("empty cache")
	return a.empty
}

func (a *allocator) SetLimit(n int64) { a.limit = n }

func (a *allocator) BeginAllocateToPool(id mem.PoolID, filter func(driver.Stream) bool) {
	a.note("begin %v %v", id, filter(a.d.streams[0]))
}
func (a *allocator) EndAllocateToPool(id mem.PoolID) { a.note("end %v", id) }
func (a *allocator) ReleasePool(id mem.PoolID)       { a.note("release %v", id) }

func (a *allocator) Stats() (s mem.Stats) {
	s.ReservedBytes.All.Peak = 12345
	s.NumOOMs = 3
	return s
}
func (a *allocator) ResetPeakStats()        {}
func (a *allocator) ResetAccumulatedStats() {}

func (a *allocator) Snapshot() []mem.SegmentInfo {
	seg := mem.SegmentInfo{Ptr: deviceBase, TotalSize: a.limit, Pool: mem.PoolID{1, 0}, Large: true}
	for _, s := range a.live {
		size := int64(s.end - s.ptr)
		seg.AllocatedSize += size
		seg.ActiveSize += size
		seg.RequestedSize += size
		seg.Blocks = append(seg.Blocks, mem.BlockInfo{Ptr: s.ptr, Size: size, RequestedSize: size, State: mem.ActiveAllocated})
	}
	return []mem.SegmentInfo{seg}
}
