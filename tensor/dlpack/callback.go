//go:build linux && (amd64 || arm64) && !nocuda

package dlpack

import (
	"sync"

	"github.com/ebitengine/purego"
)

// canCall reports whether this build can call C deleters.
const canCall = true

// deleter returns the C function that deletes exports. One function serves all of them, since such functions are never
// freed.
var deleter = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(self uintptr) { deleteExport(self) })
})

func callDeleter(function, address uintptr) { purego.SyscallN(function, address) }
