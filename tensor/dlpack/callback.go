//go:build linux && (amd64 || arm64) && !nocuda

package dlpack

import (
	"sync"

	"github.com/ebitengine/purego"
)

// canCall says that C deleters can be called.
const canCall = true

// deleter returns the C function that deletes exports. There is one for all of them: such functions are never given back.
var deleter = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(self uintptr) { deleteExport(self) })
})

func callDeleter(function, address uintptr) { purego.SyscallN(function, address) }
