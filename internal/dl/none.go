//go:build !linux || !(amd64 || arm64) || nocuda

package dl

func open(string) (uintptr, error) { return 0, ErrNone }

func lookup(uintptr, string) (uintptr, error) { return 0, ErrNone }
