//go:build !linux || !(amd64 || arm64) || nocuda

package cuda

import (
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// There is no cuBLAS: this program has no dlopen.
type blas struct{ options Options }

func (l *blas) open() bool { return false }

func (l *blas) gemm(uintptr, *gemmArguments) error { return dl.ErrNone }

func (l *blas) close(*Backend) error { return nil }

// BLASHandle returns a handle of cuBLAS. The error matches driver.ErrUnsupported: there is no cuBLAS.
func (b *Backend) BLASHandle() (uintptr, error) {
	return 0, &driver.Error{Call: "BLASHandle", Code: driver.ErrUnsupported, Detail: dl.ErrNone.Error()}
}

// Library returns the name of cuBLAS as it was opened, or "" and why there is none: then matrix products are computed
// by kernels of this package.
func (b *Backend) Library() (name, why string) { return "", dl.ErrNone.Error() }
