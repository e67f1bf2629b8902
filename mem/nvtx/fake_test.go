//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ebitengine/purego"
)

// A fakeTool is a tool whose library consists of Go functions. It reads its arguments at the offsets of the C headers,
// keeps heaps and regions as NVTX describes them, and records forbidden calls.
type fakeTool struct {
	// The tool's properties.
	lacks     []string // entries that its library lacks
	omit      []callID // functions that it does not provide
	old       bool     // built for NVTX before 3.2
	declines  bool     // it declines the memory extension
	coreFails bool     // InitializeInjectionNvtx2 returns 0
	noDomain  bool     // it has no nvtxDomainCreateA
	refuse    func(r region) (handle uintptr, refused bool)

	symbols map[string]uintptr

	// The tool's observations.
	mu       sync.Mutex
	info     [8]uint16 // the head of the module, segment count, segment ID, slot count, what must be null
	slots    *[63]uintptr
	name     string // of the domain
	heaps    map[uintptr]region
	regions  []fakeRegion // by address
	next     uintptr
	calls    []string
	problems []string
}

type fakeRegion struct {
	region
	heap uintptr
}

// The domain that the fake creates.
const fakeDomain = 0xd0

// playing is the fake that the C functions belong to.
var playing atomic.Pointer[fakeTool]

// play makes f the tool and attaches it. It checks at the end of the test that no forbidden call was made.
func (f *fakeTool) play(t testing.TB) (*Tool, error) {
	t.Helper()
	f.symbols, f.heaps, f.next = entries(), map[uintptr]region{}, 0x1000
	playing.Store(f)
	l, err := attach(f.lookup)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for _, p := range f.problems {
			t.Error(p)
		}
	})
	return &Tool{calls: l}, nil
}

func (f *fakeTool) lookup(symbol string) (uintptr, error) {
	if address := f.symbols[symbol]; address != 0 && !slices.Contains(f.lacks, symbol) {
		return address, nil
	}
	return 0, errors.New("no symbol " + symbol)
}

// entries creates the C functions, once per process, since they cannot be freed.
var entries = sync.OnceValue(func() map[string]uintptr {
	return map[string]uintptr{
		"InitializeInjectionNvtx2": purego.NewCallback(func(getExportTable uintptr) int {
			return playing.Load().startCore(getExportTable)
		}),
		"InitializeInjectionNvtxExtension": purego.NewCallback(func(m *cModule) int {
			return playing.Load().startExtension(m)
		}),
		"nvtxDomainCreateA": purego.NewCallback(func(name *[7]byte) uintptr {
			playing.Load().name = string(name[:6])
			return fakeDomain
		}),
		"nvtxMemHeapRegister": purego.NewCallback(func(domain uintptr, d *cHeap) uintptr {
			return playing.Load().heapRegister(domain, d)
		}),
		"nvtxMemHeapUnregister": purego.NewCallback(func(domain, handle uintptr) {
			playing.Load().heapUnregister(domain, handle)
		}),
		"nvtxMemRegionsRegister": purego.NewCallback(func(domain uintptr, d *cRegister) {
			playing.Load().regionsRegister(domain, d)
		}),
		"nvtxMemRegionsUnregister": purego.NewCallback(func(domain uintptr, d *cUnregister) {
			playing.Load().regionsUnregister(domain, d)
		}),
	}
})

// The structures with C's 64-bit layout: bytes, except for the pointers.
type (
	cModule struct {
		head     [8]byte
		count    [8]byte
		segments *cSegment
		null     [16]byte
	}
	cSegment struct {
		head  [16]byte
		slots *[63]uintptr
	}
	cHeap struct {
		head [24]byte
		desc *cRange
		tail [16]byte
	}
	cRange    [16]byte
	cRegister struct {
		head     [32]byte
		elements *[1 << 16]cRange
		handles  [8]byte
	}
	cUnregister struct {
		head     [24]byte
		elements *[1 << 16][8]byte
	}
)

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func (r *cRange) region() region {
	return region{Ptr: driver.Pointer(u64(r[8:])), Size: int64(u64(r[:]))}
}

// startCore does what NVIDIA's sample injection does: asks for the callbacks, then for the table of a module.
func (f *fakeTool) startCore(getExportTable uintptr) int {
	disturb()
	var export func(id uint32) *struct{ size, getModuleFunctionTable uintptr }
	purego.RegisterFunc(&export, getExportTable)
	callbacks := export(1)
	if callbacks == nil || callbacks.size != 16 || export(2) != nil || export(99) != nil {
		f.problem("export tables: 1 is %v, or 2 and 99 are there", callbacks)
		return 0
	}
	if version := export(3); version == nil || version.size != 24 || uint32(version.getModuleFunctionTable) != 3 {
		f.problem("version table: %v", version)
	}
	var table func(module uint32, out **[17]*uintptr, size *uint32) int32
	purego.RegisterFunc(&table, callbacks.getModuleFunctionTable)
	for module, want := range []uint32{0, 16, 9, 15, 7, 16, 7, 0} {
		var slots *[17]*uintptr
		var size uint32
		ok := table(uint32(module), &slots, &size)
		if size != want || (ok != 0) != (want != 0) {
			f.problem("module %d: %d slots, result %d, want %d", module, size, ok, want)
		}
		if slots == nil {
			continue
		}
		for i := range size + 1 {
			if (slots[i] == nil) != (i == 0 || i == size) {
				f.problem("module %d of %d: slot %d at %v", module, size, i, slots[i])
			}
		}
		if module == 5 && !f.noDomain {
			*slots[12] = f.symbols["nvtxDomainCreateA"]
		}
	}
	if f.coreFails {
		return 0
	}
	return 1
}

func (f *fakeTool) startExtension(m *cModule) int {
	disturb()
	f.slots = m.segments.slots
	f.info = [8]uint16{
		u16(m.head[0:]), u16(m.head[2:]), u16(m.head[4:]), u16(m.head[6:]), uint16(u64(m.count[:])),
		uint16(u64(m.segments.head[0:])), uint16(u64(m.segments.head[8:])), uint16(u64(m.null[:8]) | u64(m.null[8:])),
	}
	if f.declines {
		return 0
	}
	var first callID
	if f.old {
		first = 1
	}
	for _, n := range needed {
		if !slices.Contains(f.omit, n.id) {
			f.slots[n.id-first] = f.symbols[n.name]
		}
	}
	return 1
}

func (f *fakeTool) heapRegister(domain uintptr, d *cHeap) uintptr {
	defer f.enter("heapRegister", domain)()
	head := [...]uint32{
		uint32(u16(d.head[0:])), uint32(u16(d.head[2:])), u32(d.head[4:]), u32(d.head[8:]), u32(d.head[12:]),
		uint32(u64(d.head[16:])),
	}
	if want := [...]uint32{0x0102, 48, 0, 1, 1, 16}; head != want || d.tail != [16]byte{} {
		f.problem("heap: %#x %#x, want %#x and zeros", head, d.tail, want)
	}
	r := d.desc.region()
	if f.refuse != nil {
		if handle, refused := f.refuse(r); refused {
			f.note("refuse %s", text(r))
			return handle
		}
	}
	for handle, other := range f.heaps {
		if overlap(r, other) {
			f.problem("heap %s overlaps heap %#x, %s", text(r), handle, text(other))
		}
	}
	f.next++
	f.heaps[f.next] = r
	f.note("heap %s", text(r))
	return f.next
}

func (f *fakeTool) heapUnregister(domain, handle uintptr) {
	defer f.enter("heapUnregister", domain)()
	r, ok := f.heaps[handle]
	if !ok {
		f.problem("unregister of heap %#x, which is none", handle)
	}
	delete(f.heaps, handle)
	f.regions = slices.DeleteFunc(f.regions, func(r fakeRegion) bool { return r.heap == handle })
	f.note("no heap %s", text(r))
}

// watch returns o for a tool that watches the driver, as compute-sanitizer does. Such a tool ends the heaps of a freed
// segment before o learns of the free, and reports an error if they are ended again.
func (f *fakeTool) watch(o mem.Observer) mem.Observer {
	return func(e mem.Event) {
		if e.Action == mem.ActionSegmentFree {
			f.mu.Lock()
			for handle, h := range f.heaps {
				if overlap(h, region{Ptr: e.Ptr, Size: e.Size}) {
					delete(f.heaps, handle)
					f.regions = slices.DeleteFunc(f.regions, func(r fakeRegion) bool { return r.heap == handle })
				}
			}
			f.mu.Unlock()
		}
		o(e)
	}
}

func (f *fakeTool) regionsRegister(domain uintptr, d *cRegister) {
	defer f.enter("regionsRegister", domain)()
	head := [...]uint64{uint64(u16(d.head[0:])), uint64(u16(d.head[2:])), uint64(u32(d.head[4:])), u64(d.head[24:])}
	if want := [...]uint64{0x0102, 48, 1, 16}; head != want || d.handles != [8]byte{} {
		f.problem("regions: %#x, handles at %#x, want %#x and none", head, d.handles, want)
	}
	handle := uintptr(u64(d.head[8:]))
	heap, ok := f.heaps[handle]
	if !ok {
		f.problem("regions of heap %#x, which is none", handle)
	}
	for i := range u64(d.head[16:]) {
		r := d.elements[i].region()
		if r.Size <= 0 || r.Ptr < heap.Ptr || end(r) > end(heap) {
			f.problem("region %s is not in its heap %s", text(r), text(heap))
		}
		at, _ := slices.BinarySearchFunc(f.regions, r.Ptr, func(g fakeRegion, p driver.Pointer) int {
			return int(int64(g.Ptr) - int64(p))
		})
		for _, g := range f.regions[max(at-1, 0):min(at+1, len(f.regions))] {
			if overlap(r, g.region) {
				f.problem("region %s overlaps %s", text(r), text(g.region))
			}
		}
		f.regions = slices.Insert(f.regions, at, fakeRegion{r, handle})
		f.note("region %s", text(r))
	}
}

func (f *fakeTool) regionsUnregister(domain uintptr, d *cUnregister) {
	defer f.enter("regionsUnregister", domain)()
	head := [...]uint64{uint64(u16(d.head[0:])), uint64(u16(d.head[2:])), uint64(u32(d.head[4:])), u64(d.head[16:])}
	if want := [...]uint64{0x0102, 32, 1, 8}; head != want {
		f.problem("unregister: %#x, want %#x", head, want)
	}
	for i := range u64(d.head[8:]) {
		p := driver.Pointer(u64(d.elements[i][:]))
		at := slices.IndexFunc(f.regions, func(r fakeRegion) bool { return r.Ptr == p })
		if at < 0 {
			f.problem("unregister of a region at %#x, where there is none", p)
			continue
		}
		f.note("no region %s", text(f.regions[at].region))
		f.regions = slices.Delete(f.regions, at, at+1)
	}
}

// enter begins a call of the tool. Every call has the domain that the tool created.
func (f *fakeTool) enter(call string, domain uintptr) (leave func()) {
	disturb()
	f.mu.Lock()
	if want := uintptr(fakeDomain); f.name != "" && domain != want || f.name == "" && domain != 0 {
		f.problem("%s: domain %#x, made for %q", call, domain, f.name)
	}
	return f.mu.Unlock
}

func (f *fakeTool) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeTool) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

var disturbed atomic.Int64

// disturb moves the stack of the tool's caller, and sometimes collects garbage: addresses of unpinned values become
// invalid.
func disturb() {
	deep(64)
	if disturbed.Add(1)%64 == 1 {
		runtime.GC()
	}
}

//go:noinline
func deep(depth int) byte {
	var frame [1024]byte
	frame[depth] = byte(depth)
	if depth == 0 {
		return frame[0]
	}
	return deep(depth-1) + frame[depth]
}

func text(r region) string           { return fmt.Sprintf("%#x+%#x", r.Ptr, r.Size) }
func end(r region) driver.Pointer    { return r.Ptr + driver.Pointer(r.Size) }
func overlap(a, b driver.Range) bool { return a.Ptr < end(b) && b.Ptr < end(a) }
