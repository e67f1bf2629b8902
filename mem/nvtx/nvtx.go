// Package nvtx tells NVIDIA's tools which parts of an allocator's segments are blocks.
//
// A memory checker such as compute-sanitizer knows only the driver's allocations, which are segments. An access past a
// block, or to a freed block, is usually within the same segment and is not detected. NVTX, NVIDIA's tools extension,
// has calls with more detail (nvToolsExtMem.h, NVTX 3.2): a heap is memory that must not be accessed, except for its
// regions. An Observer makes these calls from an allocator's events: a segment, or a run of mapped pages, is a heap
// from its allocation on; a block is a region until it may be reused.
//
//   - A region has the requested size, not the size of the block: events do not contain the rounded size, and an access
//     to the bytes that rounding adds is a bug of the program. A program that uses all of mem.Block.Size must request
//     that size.
//   - Two blocks may be adjacent. An access past the first one that hits the second one is not detected.
//   - A block that crosses from one run of mapped pages to the next is a region in each. When a part of a run is
//     unmapped, the rest becomes a new heap with its regions.
//   - A region ends when the free of its block completes on the host, in stream order: kernels that were queued before
//     may still be running. A checker that examines accesses while a kernel runs must wait for each launch
//     (compute-sanitizer --force-blocking-launches); otherwise it reports such accesses.
//   - The heap of a segment ends with the segment, without a call to the tool: compute-sanitizer, which observes the
//     driver, unregisters the heap at cudaFree (NVTX API for Compute Sanitizer, "Pools Management") and reports an
//     error if it is unregistered again. A tool that does not observe the driver keeps such a heap until the same
//     addresses are registered again.
//   - The heap of a run of pages is unregistered when the pages are unmapped, because tools are not documented to do so
//     themselves.
//   - Memory that the tool refuses as a heap remains accessible, as without this package, and is counted by
//     Tool.Refused: compute-sanitizer of CUDA 13.0 refuses mapped pages, so it does not check blocks in expandable
//     segments. The same holds for segments that are older than the observer: set the observer first.
//
// NVTX is a header without a library. A tool is a shared library at the path in the environment variable
// NVTX_INJECTION64_PATH. This package does not read the environment: pass the path to Open. compute-sanitizer requires
// that CUDA is initialised first: open the device, then the tool.
//
// An Observer never waits for a device; the tool may.
//
// The package does not name blocks, restrict them to reads or writes, or mark them as initialised, and it never unloads
// a tool. It works on Linux on amd64 and arm64 without the build tag nocuda; elsewhere Open returns an error.
package nvtx

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// The tool's entry InitializeInjectionNvtxExtension fills a table of functions (inject.go). Before that, as in NVTX, its
// entry InitializeInjectionNvtx2 gets the table of the older calls, one of which is needed to make a domain (core.go).
//
// Locks: an observer's mutex is a leaf, held while the tool is called. It is uncontended unless one observer serves
// several allocators.

// ErrNoTool is matched by every error of Open: errors.Is(err, nvtx.ErrNoTool). The program works without a tool.
var ErrNoTool = errors.New("nvtx: no tool")

// A Tool is a tool that was loaded into this process and supports NVTX's memory calls. It is never unloaded. It is safe
// for concurrent use.
type Tool struct {
	calls   memoryCalls
	refused atomic.Int64
}

// memoryCalls are the tool's functions of NVTX's memory extension.
type memoryCalls interface {
	// heapRegister makes a range a heap. The handle is 0 or noTool if the tool refused it.
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

// Open loads the tool whose library is at path, the value of NVTX_INJECTION64_PATH. Each path is loaded once: a second
// Open returns the same Tool. The error matches ErrNoTool and says what is missing: a path, the library, an entry for
// extensions, or functions of the memory extension.
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

// Observer returns an observer for one allocator. Set it before the allocator's first Alloc and do not remove it: it
// ignores blocks and segments that it has not seen allocated. It is safe for concurrent use.
func (t *Tool) Observer() mem.Observer {
	return (&observer{tool: t}).observe
}

// Refused returns the number of segments and runs of pages that the tool refused as heaps. Blocks in them are not
// checked.
func (t *Tool) Refused() int64 { return t.refused.Load() }
