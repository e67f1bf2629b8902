//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ebitengine/purego"
)

const (
	nvtxVersion = 3 // NVTX_VERSION
	moduleMem   = 1 // NVTX_EXT_MODULEID_MEM
	segmentMem  = 1
	slotCount   = 63 // NVTX_EXT_MEM_SLOT_COUNT
	disabled    = 1  // NVTX_EXTENSION_DISABLED: a slot without a function may hold this instead of 0
)

// A callID is a function of the memory extension (NvtxExtMemCallbackId). There is no function 0.
type callID int

const (
	heapRegister      callID = 1
	heapUnregister    callID = 2
	regionsRegister   callID = 4
	regionsUnregister callID = 6
)

var needed = [...]struct {
	id   callID
	name string
}{
	{heapRegister, "nvtxMemHeapRegister"},
	{heapUnregister, "nvtxMemHeapUnregister"},
	{regionsRegister, "nvtxMemRegionsRegister"},
	{regionsUnregister, "nvtxMemRegionsUnregister"},
}

// A module is the argument of a tool's InitializeInjectionNvtxExtension (nvtxExtModuleInfo_t), with the data that it
// points to. The tool may keep all of it, so it is pinned and never freed.
type module struct {
	info    moduleInfo
	segment moduleSegment
	slots   [slotCount]uintptr
	pin     runtime.Pinner
}

type moduleInfo struct { // nvtxExtModuleInfo_t
	nvtxVersion       uint16
	structSize        uint16
	moduleID          uint16
	compatID          uint16
	segmentsCount     uintptr
	segments          *moduleSegment
	getExportFunction uintptr // none
	extInfo           uintptr // none
}

type moduleSegment struct { // nvtxExtModuleSegment_t
	segmentID     uintptr
	slotCount     uintptr
	functionSlots *[slotCount]uintptr
}

// A library is a tool's memoryCalls.
type library struct {
	domain uintptr
	module *module
	first  callID // the function of slot 0
}

// load opens a tool's library and attaches it.
func load(path string) (memoryCalls, error) {
	l, _, err := dl.Open(path)
	if err != nil {
		return nil, err
	}
	attached, err := attach(l.Lookup)
	if err != nil {
		return nil, err
	}
	return attached, nil
}

// attaching holds the modules passed to tools; its lock lets one tool at a time fill its slots.
var attaching struct {
	sync.Mutex
	modules []*module
}

// attach passes the slots of the memory extension to the tool whose symbols lookup finds.
func attach(lookup func(symbol string) (uintptr, error)) (*library, error) {
	initialize, err := lookup("InitializeInjectionNvtxExtension")
	if err != nil {
		return nil, fmt.Errorf("the tool takes no extensions of NVTX: %w", err)
	}
	attaching.Lock()
	defer attaching.Unlock()
	domain := createDomain(lookup)
	m := &module{}
	m.pin.Pin(m)
	attaching.modules = append(attaching.modules, m)
	m.segment = moduleSegment{segmentMem, slotCount, &m.slots}
	m.info = moduleInfo{
		nvtxVersion: nvtxVersion, structSize: uint16(unsafe.Sizeof(m.info)), moduleID: moduleMem, compatID: compatMem,
		segmentsCount: 1, segments: &m.segment,
	}
	if r, _, _ := purego.SyscallN(initialize, uintptr(unsafe.Pointer(&m.info))); int32(r) == 0 {
		return nil, errors.New("the tool declined NVTX's memory extension")
	}
	l := &library{domain: domain, module: m}
	if m.slots[0] > disabled {
		// There is no function 0. The tool was built for NVTX before 3.2, whose slots begin with function 1
		// (nvtxExtImplMem1.h) under the same compatibility ID.
		l.first = 1
	}
	var missing []string
	for _, n := range needed {
		if l.function(n.id) == 0 {
			missing = append(missing, n.name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("the tool has no %s", strings.Join(missing, ", no "))
	}
	return l, nil
}

// function returns the address of a function, or 0. It reads the slot at each call, as NVTX does, because a tool may
// remove its functions.
func (l *library) function(id callID) uintptr {
	if f := atomic.LoadUintptr(&l.module.slots[id-l.first]); f > disabled {
		return f
	}
	return 0
}

// call calls a function with the domain and an argument, or a pointer to it. Without the function it does nothing and
// returns 0.
func (l *library) call(id callID, arg uintptr) uintptr {
	f := l.function(id)
	if f == 0 {
		return 0
	}
	r, _, _ := purego.SyscallN(f, l.domain, arg)
	return r
}

func (l *library) heapRegister(r region) uintptr {
	var pin runtime.Pinner
	defer pin.Unpin()
	d := &struct {
		heap   heapDesc
		memory virtualRange
	}{memory: rangeOf(r)}
	pin.Pin(d)
	d.heap = heapDesc{
		compatID: compatMem, structSize: uint16(unsafe.Sizeof(d.heap)), usage: usageSubAllocator,
		memoryType:           virtualAddress,
		typeSpecificDescSize: unsafe.Sizeof(d.memory), typeSpecificDesc: &d.memory,
	}
	return l.call(heapRegister, uintptr(unsafe.Pointer(&d.heap)))
}

func (l *library) heapUnregister(handle uintptr) { l.call(heapUnregister, handle) }

func (l *library) regionsRegister(handle uintptr, regions []region) {
	var pin runtime.Pinner
	defer pin.Unpin()
	ranges := make([]virtualRange, len(regions))
	for i, r := range regions {
		ranges[i] = rangeOf(r)
	}
	d := &regionsRegisterBatch{
		compatID: compatMem, structSize: uint16(unsafe.Sizeof(regionsRegisterBatch{})), regionType: virtualAddress,
		heap: handle, regionCount: uintptr(len(ranges)), regionDescElementSize: unsafe.Sizeof(virtualRange{}),
		regionDescElements: unsafe.SliceData(ranges),
	}
	pin.Pin(d)
	pin.Pin(d.regionDescElements)
	l.call(regionsRegister, uintptr(unsafe.Pointer(d)))
}

func (l *library) regionsUnregister(starts []driver.Pointer) {
	var pin runtime.Pinner
	defer pin.Unpin()
	d := &regionsUnregisterBatch{
		compatID: compatMem, structSize: uint16(unsafe.Sizeof(regionsUnregisterBatch{})), refType: refPointer,
		refCount: uintptr(len(starts)), refElementSize: unsafe.Sizeof(starts[0]), refElements: unsafe.SliceData(starts),
	}
	pin.Pin(d)
	pin.Pin(d.refElements)
	l.call(regionsUnregister, uintptr(unsafe.Pointer(d)))
}
