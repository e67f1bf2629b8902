//go:build linux && (amd64 || arm64) && !nocuda

package host

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ebitengine/purego"
)

// OpenBLAS, if it is installed, found at run time. Its Fortran interface takes every argument by address, so that no
// number has to go in a register for floats, which SyscallN does not do.
//
// How many threads it uses is left to it: as many as there are processors, or what OPENBLAS_NUM_THREADS said when it
// was loaded. They are its own, not the Backend's. It cuts products by rows and columns, not by k, and gives the same
// bits each time on one machine with one number of threads; another number, processor or version may round differently.
//
// A fault in its code ends the program: what Go code turns into an error cannot be caught there.

// blasNames are where OpenBLAS may be: what the loader knows, then where distributions put it. Builds with 64-bit
// integers (libopenblas64) are left alone: their functions have the same or other names, depending on who built them.
var blasNames = []string{
	"libopenblas.so.0",
	"libopenblas.so",
	"/usr/lib/x86_64-linux-gnu/libopenblas.so.0",
	"/usr/lib/aarch64-linux-gnu/libopenblas.so.0",
	"/usr/lib64/libopenblas.so.0",
	"/usr/local/lib/libopenblas.so",
	"/opt/OpenBLAS/lib/libopenblas.so",
}

// blasFunctions are the addresses of sgemm_ and dgemm_; 0: there is none.
type blasFunctions struct{ sgemm, dgemm uintptr }

var openBLAS = sync.OnceValue(func() blasFunctions {
	library, _, err := dl.Open(blasNames...)
	if err != nil {
		return blasFunctions{}
	}
	find := func(symbol string) uintptr {
		address, err := library.Lookup(symbol)
		if err != nil {
			return 0
		}
		return address
	}
	return blasFunctions{sgemm: find("sgemm_"), dgemm: find("dgemm_")}
})

// blasCalls are taken while calls run: OpenBLAS ends the program if more threads call it at once than it has memory
// for.
var blasCalls = make(chan struct{}, 16)

// blasArguments are what a call's arguments point to. They lie on the heap, where nothing moves.
type blasArguments struct {
	transA, transB byte
	m, n, k        int32
	lda, ldb, ldc  int32
	alpha, beta    float64 // or a float32 in its place
}

var blasFrames = sync.Pool{New: func() any { return new(blasArguments) }}

// blasFunction returns the function that multiplies matrices of T, or 0.
func blasFunction[T number]() uintptr {
	switch any(*new(T)).(type) {
	case float32:
		return openBLAS().sgemm
	case float64:
		return openBLAS().dgemm
	}
	return 0
}

// blas computes c = a*b by the function of T, which there is. c's rows are contiguous. It reports false, and has done
// nothing, if BLAS does not know these layouts or sizes.
func blas[T number](a, b, c *matrix[T]) bool {
	transA, lda := blasLayout(a)
	transB, ldb := blasLayout(b)
	transC, ldc := blasLayout(c)
	if transA == 0 || transB == 0 || transC != 'N' {
		return false
	}
	f := blasFrames.Get().(*blasArguments)
	defer blasFrames.Put(f)
	// Fortran's matrices are ours transposed: it is asked for c^T = b^T*a^T.
	*f = blasArguments{
		transA: transB, transB: transA, m: int32(c.cols), n: int32(c.rows), k: int32(a.cols), lda: ldb, ldb: lda,
		ldc: ldc,
	}
	*(*T)(unsafe.Pointer(&f.alpha)) = 1
	blasCalls <- struct{}{}
	defer func() { <-blasCalls }()
	purego.SyscallN(blasFunction[T](),
		uintptr(unsafe.Pointer(&f.transA)), uintptr(unsafe.Pointer(&f.transB)),
		uintptr(unsafe.Pointer(&f.m)), uintptr(unsafe.Pointer(&f.n)), uintptr(unsafe.Pointer(&f.k)),
		uintptr(unsafe.Pointer(&f.alpha)),
		uintptr(unsafe.Pointer(&b.own[b.at])), uintptr(unsafe.Pointer(&f.lda)),
		uintptr(unsafe.Pointer(&a.own[a.at])), uintptr(unsafe.Pointer(&f.ldb)),
		uintptr(unsafe.Pointer(&f.beta)),
		uintptr(unsafe.Pointer(&c.own[c.at])), uintptr(unsafe.Pointer(&f.ldc)),
		1, 1) // the lengths of the two strings
	runtime.KeepAlive(f)
	runtime.KeepAlive(a.own)
	runtime.KeepAlive(b.own)
	runtime.KeepAlive(c.own)
	return true
}

// blasLayout returns 'N' and the distance between rows if rows are contiguous, 'T' and that between columns if these
// are, and 0 if neither, or if BLAS has no number as great.
func blasLayout[T number](m *matrix[T]) (trans byte, distance int32) {
	const most = 1<<31 - 1
	plain := func(rows, cols, rs, cs int) int {
		if cols == 1 {
			cs = 1
		}
		if rows == 1 {
			rs = cols
		}
		if cs != 1 || rs < cols || max(rs, rows) > most {
			return 0
		}
		return rs
	}
	if d := plain(m.rows, m.cols, m.rs, m.cs); d > 0 {
		return 'N', int32(d)
	}
	if d := plain(m.cols, m.rows, m.cs, m.rs); d > 0 {
		return 'T', int32(d)
	}
	return 0, 0
}
