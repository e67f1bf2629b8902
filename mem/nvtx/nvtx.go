// Package nvtx tells NVIDIA's tools which parts of an allocator's segments are blocks.
//
// A memory checker such as compute-sanitizer knows what the driver allocated: segments. An access past a block, or to
// one that was freed, mostly hits the same segment and goes unseen. NVTX, NVIDIA's tools extension, has calls that say
// more (nvToolsExtMem.h, NVTX 3.2): a heap is memory that may not be touched, a region a part of a heap that may. An
// Observer makes those calls from an allocator's events: a segment, or a run of pages mapped into one, is a heap from
// the moment the driver gave it; a block is a region until it may be reused.
//
//   - A region has the size that was asked for, not the block's. The bytes that rounding adds are closed, because a
//     program that touches them is wrong by its own figures and right by luck, and because events do not tell them. A
//     program that uses mem.Block.Size to the last byte has to ask for it.
//   - Two blocks may lie side by side. An access past the first that lands in the second is to memory that may be
//     touched, and no checker of addresses sees it.
//   - A block that crosses from one run of mapped pages to the next is a region in each. When a part of a run is
//     unmapped, the rest of it becomes a heap anew, with its regions.
//   - A block is closed when its free is complete on the host, in stream order: kernels that were queued before may
//     still be running. A checker that looks at a kernel's accesses while they happen must wait for each launch
//     (compute-sanitizer --force-blocking-launches), or report them.
//   - A segment's heap ends with the segment, and the tool is not told: the event comes when the driver has the memory
//     back, and compute-sanitizer, which watches the driver, unregisters the heap at cudaFree (NVTX API for Compute
//     Sanitizer, "Pools Management") and reports an error when that is asked of it again. A tool that does not watch the
//     driver keeps such heaps, until the same addresses are registered anew.
//   - The heap of a run of pages is unregistered when the pages are unmapped: nothing promises that a tool does so itself.
//   - Memory that the tool does not take for a heap stays open, as without this package, and is counted by
//     Tool.Refused: compute-sanitizer of CUDA 13.0 takes no mapped pages, so expandable segments are whole to it. So does memory of segments that are older than the observer: give it to the allocator first.
//
// NVTX is a header without a library. A tool is a shared library that NVTX looks for under the environment variable
// NVTX_INJECTION64_PATH; libraries of this module read no environment, so Open is given the path. The tool's entry
// InitializeInjectionNvtxExtension fills a table of functions (inject.go); before that, as NVTX does, its entry
// InitializeInjectionNvtx2 gets the table of the older calls, of which one is needed, to make a domain (core.go).
// compute-sanitizer wants CUDA initialised first: open the device, then the tool.
//
// Locks: an observer's mutex is a leaf, held while the tool is called; it is free unless one observer serves several
// allocators. It never waits for a device itself; what the tool does in a call is the tool's.
//
// It does not name blocks, restrict them to reading or writing, or mark them as initialised, and it unloads no tool. It
// works on Linux on amd64 and arm64 without the build tag nocuda; elsewhere Open fails.
package nvtx

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// ErrNoTool is matched by every error of Open: errors.Is(err, nvtx.ErrNoTool). The program runs as well without one.
var ErrNoTool = errors.New("nvtx: no tool")

// A Tool is a tool that was loaded into this process and takes NVTX's calls about memory. It stays until the program
// ends. Safe for concurrent use.
type Tool struct {
	calls   memoryCalls
	refused atomic.Int64
}

// memoryCalls are the functions of NVTX's memory extension, as the tool has them.
type memoryCalls interface {
	// heapRegister makes a range a heap. The handle is 0 or noTool if the tool did not take it.
	heapRegister(r region) (handle uintptr)
	// heapUnregister ends a heap and every region in it.
	heapUnregister(handle uintptr)
	// regionsRegister opens parts of a heap.
	regionsRegister(handle uintptr, regions []region)
	// regionsUnregister closes the regions that start at these addresses.
	regionsUnregister(starts []driver.Pointer)
}

// noTool is NVTX_MEM_HEAP_HANDLE_NO_TOOL.
const noTool = ^uintptr(0)

var opened struct {
	sync.Mutex
	tools map[string]*Tool
}

// Open loads the tool whose library is at path, which is what NVTX_INJECTION64_PATH says. Each path is loaded once: a
// second Open returns the same Tool. The error matches ErrNoTool and says what is missing: a path, the library, an
// entry for extensions, or functions of the memory extension.
func Open(path string) (*Tool, error) {
	opened.Lock()
	defer opened.Unlock()
	if t := opened.tools[path]; t != nil {
		return t, nil
	}
	if path == "" {
		return nil, fmt.Errorf("%w: the path of its library is empty (a tool sets NVTX_INJECTION64_PATH)", ErrNoTool)
	}
	calls, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoTool, path, err)
	}
	if opened.tools == nil {
		opened.tools = map[string]*Tool{}
	}
	t := &Tool{calls: calls}
	opened.tools[path] = t
	return t, nil
}

// Observer returns an observer for one allocator, to be given to it before its first Alloc and left there: what it has
// not seen made it cannot open or close. Safe for concurrent use.
func (t *Tool) Observer() mem.Observer {
	return (&observer{tool: t}).observe
}

// Refused returns how many segments, or runs of pages, the tool has not taken for heaps. Blocks in them are not
// checked.
func (t *Tool) Refused() int64 { return t.refused.Load() }
