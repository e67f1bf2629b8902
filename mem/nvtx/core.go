//go:build linux && (amd64 || arm64) && !nocuda

package nvtx

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The interface that a tool's InitializeInjectionNvtx2 expects of NVTX (nvtxDetail/nvtxTypes.h, nvtxImpl.h). It
// receives a function that returns export tables by number. One of them has a function that returns, for a module, a
// table of the addresses of function slots, into which the tool writes its functions.

// NvtxExportTableID.
const (
	tableCallbacks   = 1
	tableVersionInfo = 3
)

// NvtxCallbackModule, and the slot of nvtxDomainCreateA (NvtxCallbackIdCore2).
const (
	modules           = 7 // number of modules, plus 1
	moduleCore2       = 5
	core2DomainCreate = 12
)

// slotsOf holds the sizes of the modules' tables (NVTX_CBID_*_SIZE): CORE, CUDA, OPENCL, CUDART, CORE2, SYNC. Slot 0 of
// each is unused.
var slotsOf = [modules]uint32{0, 16, 9, 15, 7, 16, 7}

// exported holds the tables for tools. It is a global variable, so it never moves and is never freed: a tool may keep
// addresses in it.
var exported struct {
	callbacks struct { // NvtxExportTableCallbacks
		size                   uintptr
		getModuleFunctionTable uintptr
	}
	versionInfo struct { // NvtxExportTableVersionInfo
		size                    uintptr
		version                 uint32
		reserved                uint32
		setInjectionNvtxVersion uintptr
	}
	slots  [modules][16]uintptr
	tables [modules][17]*uintptr // addresses of the slots, from 1, and a nil after the last
}

// exportTables fills exported and makes nvtxGetExportTable. The functions are made once, because C callbacks are never
// freed.
var exportTables = sync.OnceValue(func() uintptr {
	e := &exported
	e.callbacks.size = unsafe.Sizeof(e.callbacks)
	e.callbacks.getModuleFunctionTable = purego.NewCallback(func(module uint32, table **[17]*uintptr,
		size *uint32,
	) int {
		if module == 0 || module >= modules {
			return 0
		}
		if size != nil {
			*size = slotsOf[module]
		}
		if table != nil {
			*table = &e.tables[module]
		}
		return 1
	})
	e.versionInfo.size = unsafe.Sizeof(e.versionInfo)
	e.versionInfo.version = nvtxVersion
	e.versionInfo.setInjectionNvtxVersion = purego.NewCallback(func(uint32) {})
	for m := range e.tables {
		for i := uint32(1); i < slotsOf[m]; i++ {
			e.tables[m][i] = &e.slots[m][i]
		}
	}
	return purego.NewCallback(func(id uint32) uintptr {
		switch id {
		case tableCallbacks:
			return uintptr(unsafe.Pointer(&e.callbacks))
		case tableVersionInfo:
			return uintptr(unsafe.Pointer(&e.versionInfo))
		}
		return 0
	})
})

var domainName = [...]byte{'A', 's', 'h', 'l', 'a', 'r', 0}

// createDomain starts the tool as NVTX does before any extension, and makes a domain. For a tool without that entry, or
// without domains, it returns the default domain, 0. The caller holds attaching, because the slots serve one tool at a
// time.
func createDomain(lookup func(string) (uintptr, error)) uintptr {
	initialize, err := lookup("InitializeInjectionNvtx2")
	if err != nil || initialize == 0 {
		return 0
	}
	getExportTable := exportTables()
	clear(exported.slots[:])
	if r, _, _ := purego.SyscallN(initialize, getExportTable); int32(r) == 0 {
		return 0
	}
	create := exported.slots[moduleCore2][core2DomainCreate]
	if create == 0 {
		return 0
	}
	domain, _, _ := purego.SyscallN(create, uintptr(unsafe.Pointer(&domainName)))
	return domain
}
