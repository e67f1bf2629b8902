//go:build !linux || !(amd64 || arm64) || nocuda

package nvtx

import "github.com/ashlar-go/ashlar/internal/dl"

// load fails: there is no dlopen here.
func load(string) (memoryCalls, error) { return nil, dl.ErrNone }
