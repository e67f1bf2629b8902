//go:build !amd64

package host

import (
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
)

// There is no vector code for this processor. Callers check hasAVX2 first, so these functions are never called.
const hasAVX2 = false

func vectorized[T float](backend.BinaryOp, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer, int, bool) {
}

func widenF16(*float32, *uint16, int)  {}
func roundF16(*uint16, *float32, int)  {}
func widenBF16(*float32, *uint16, int) {}
func roundBF16(*uint16, *float32, int) {}
