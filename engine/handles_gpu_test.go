//go:build gpu

package engine

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A GPU's handles are those of cuBLAS and of NCCL: each twice the same, until Close.
func TestGPUHandles(t *testing.T) {
	e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "cuda:0"}}})
	testkit.Must(t, err)
	h, err := e.Handles(0)
	testkit.Must(t, err)
	if h.BLAS == "" {
		t.Error("no cuBLAS on this machine")
	}
	c, err := h.Communicator()
	testkit.Must(t, err)
	for what, f := range map[string]func() (uintptr, error){"cublasHandle_t": h.BLASHandle, "ncclComm_t": c.Handle} {
		first, err := f()
		if err != nil || first == 0 {
			t.Errorf("%s: %#x, %v", what, first, err)
		}
		if again, err := f(); err != nil || again != first {
			t.Errorf("%s: %#x and then %#x, %v", what, first, again, err)
		}
	}
	testkit.Must(t, e.Close(t.Context()))
	if _, err := h.BLASHandle(); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

// A limit on a GPU bounds what it gives up, and caches there are compacted, on every allocator.
func TestGPULimitAndCaches(t *testing.T) {
	for _, allocator := range []string{"caching", "arena", "paged", "bfc"} {
		const limit = 256 << 20
		e, err := Open(t.Context(), Config{Devices: []DeviceConfig{{Spec: "cuda:0", Allocator: allocator, MemoryLimit: limit}}})
		testkit.Must(t, err)
		s, err := e.NewSession()
		testkit.Must(t, err)
		for size := int64(1 << 20); size <= limit/2; size *= 2 {
			x, err := s.Place().Alloc(size)
			testkit.Must(t, err)
			x.Release()
		}
		if info, err := e.DeviceInfo(0); err != nil || info.Reserved > limit {
			t.Errorf("%s: %d bytes reserved under a limit of %d, %v", allocator, info.Reserved, limit, err)
		}
		testkit.Must(t, s.ReserveCache(16<<20))
		stream, err := s.BorrowStream()
		testkit.Must(t, err)
		testkit.Must(t, s.UseCache(func() error {
			low, high := floats(t, s.Place(), 1<<20), floats(t, s.Place().On(stream), 1<<20)
			low.Release()
			testkit.Must(t, s.Collect(t.Context()))
			b, err := s.Place().Alloc(12<<20 - 1<<10) // wants the free memory in one piece
			if err != nil {
				return err
			}
			b.Release()
			high.Release()
			return nil
		}))
		testkit.Must(t, s.Close())
		testkit.Must(t, e.Close(t.Context()))
	}
}
