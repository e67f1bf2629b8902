//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import "github.com/ashlar-go/ashlar/driver"

// The structures and constants of nvToolsExtMem.h (NVTX 3.2; the same since the extension's first version, of 2020).
// Device addresses are integers, so that the garbage collector does not treat them as pointers.

const (
	compatMem         = 0x0102 // NVTX_EXT_COMPATID_MEM
	usageSubAllocator = 0x1    // NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR
	virtualAddress    = 0x1    // NVTX_MEM_TYPE_VIRTUAL_ADDRESS
	refPointer        = 0x1    // NVTX_MEM_REGION_REF_TYPE_POINTER
)

type virtualRange struct { // nvtxMemVirtualRangeDesc_t
	size uintptr
	ptr  driver.Pointer
}

func rangeOf(r region) virtualRange { return virtualRange{uintptr(r.Size), r.Ptr} }

type heapDesc struct { // nvtxMemHeapDesc_t
	compatID             uint16
	structSize           uint16
	reserved             uint32
	usage                uint32
	memoryType           uint32
	typeSpecificDescSize uintptr
	typeSpecificDesc     *virtualRange
	category             uint32
	messageType          uint32 // NVTX_MESSAGE_UNKNOWN
	message              uintptr
}

type regionsRegisterBatch struct { // nvtxMemRegionsRegisterBatch_t
	compatID                uint16
	structSize              uint16
	regionType              uint32
	heap                    uintptr
	regionCount             uintptr
	regionDescElementSize   uintptr
	regionDescElements      *virtualRange
	regionHandleElementsOut uintptr // nil: addresses identify regions
}

type regionsUnregisterBatch struct { // nvtxMemRegionsUnregisterBatch_t
	compatID       uint16
	structSize     uint16
	refType        uint32
	refCount       uintptr
	refElementSize uintptr
	refElements    *driver.Pointer // nvtxMemRegionRef_t, a union of two addresses
}
