//go:build linux && (amd64 || arm64) && !nocuda

package dl

import (
	"errors"
	"strings"

	"github.com/ebitengine/purego"
)

// open resolves everything at once: a library with parts missing fails here and not in the middle of a call. Its
// symbols stay its own.
func open(name string) (uintptr, error) {
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), name+": ")) // the try has the name
	}
	return handle, err
}

func lookup(handle uintptr, symbol string) (uintptr, error) { return purego.Dlsym(handle, symbol) }
