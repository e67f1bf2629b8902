//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ebitengine/purego"
)

// blas is cuBLAS, found at run time, and its handle for the device's context. The library keeps the state of a call in
// the handle, so calls are made one at a time; they queue work and return.
//
// A call works on a stream, with a workspace that is scratch memory of that stream, so that work on several streams
// does not share it. The handle keeps both, and is given only what changed: an allocator that caches gives the same
// workspace to one call after the other. The first call makes the handle, which takes memory of the device: no capture
// may be under way then.
type blas struct {
	options Options

	once      sync.Once
	name      string // what was opened, or ""
	reason    string // why nothing was
	functions blasFunctions

	mu         sync.Mutex // handles, and calls with handle; after a stream's order
	handle     uintptr
	userHandle uintptr // by BLASHandle
	state      *blasState
	current    handleSettings
	args       [23]uintptr // of the call that is being made: here they need no memory of their own
}

// handleSettings are the settings that a handle was given last. Their zero value is that of none, as no workspace has
// size 0.
type handleSettings struct {
	stream        uintptr
	workspace     driver.Pointer
	workspaceSize int64
}

// blasFunctions are the addresses of cuBLAS's functions.
type blasFunctions struct {
	create, destroy, setStream, setWorkspace, setMathMode, gemm uintptr
}

// blasState is what cuBLAS gets addresses of. It lies on the heap, where nothing moves.
type blasState struct {
	handle, made  uintptr
	one, zero     float32
	one64, zero64 float64
}

// Names of cuBLAS: what the loader knows, then where the toolkit puts it.
var blasNames = []string{
	"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so",
	"/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12",
	"/usr/local/cuda/lib64/libcublas.so.11",
}

// open reports whether cuBLAS is there, and looks for it when first asked.
func (l *blas) open() bool {
	l.once.Do(func() {
		if l.options.NoLibrary {
			l.reason = "not asked for"
			return
		}
		for _, name := range l.options.Libraries {
			if dir, file := path.Split(name); dir != "" {
				// without it, the loader looks
				_, _, _ = dl.Open(dir + strings.Replace(file, "libcublas", "libcublasLt", 1))
			}
		}
		library, tries, err := dl.Open(append(append([]string{}, l.options.Libraries...), blasNames...)...)
		if err != nil {
			l.reason = err.Error()
			return
		}
		f := &l.functions
		for _, s := range []struct {
			to     *uintptr
			symbol string
		}{
			{&f.create, "cublasCreate_v2"},
			{&f.destroy, "cublasDestroy_v2"},
			{&f.setStream, "cublasSetStream_v2"},
			{&f.setWorkspace, "cublasSetWorkspace_v2"},
			{&f.setMathMode, "cublasSetMathMode"},
			{&f.gemm, "cublasGemmStridedBatchedEx"},
		} {
			if *s.to, err = library.Lookup(s.symbol); err != nil {
				l.reason = err.Error()
				return
			}
		}
		l.name = tries.Opened()
	})
	return l.name != ""
}

// Numbers of cublas_api.h and library_types.h.
const (
	blasTranspose        = 1
	blasCompute32F       = 68
	blasCompute32FTF32   = 77
	blasCompute64F       = 70
	blasDefaultAlgorithm = 0xffffffff // -1
	blasNoLessPrecision  = 16         // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums stay float32
	blasReal32F          = 0
	blasReal64F          = 1
	blasReal16F          = 2
	blasReal16BF         = 14
)

// check makes an error of a result of cuBLAS.
func (l *blas) check(call string, status uintptr) error {
	if status := uint32(status); status != 0 {
		return &driver.Error{
			Call: call, Code: fmt.Errorf("cuBLAS status %d: %s", status, blasStatus[status]), Detail: l.name,
		}
	}
	return nil
}

var blasStatus = map[uint32]string{
	1: "not initialized", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch", 11: "mapping error",
	13: "execution failed", 14: "internal error", 15: "not supported", 16: "license error",
}

// ready makes the handle, if there is none. The device is current on the thread, and mu is held.
func (l *blas) ready() error {
	if l.handle != 0 {
		return nil
	}
	handle, err := l.create("cublasSetMathMode", l.functions.setMathMode, blasNoLessPrecision)
	if err != nil {
		return err
	}
	l.state.handle, l.handle = handle, handle
	return nil
}

// create makes a handle, of which set, a function of cuBLAS, is called with an argument. The device is current on the
// thread, and mu is held.
func (l *blas) create(name string, set, argument uintptr) (uintptr, error) {
	if l.state == nil {
		l.state = &blasState{one: 1, one64: 1}
	}
	r, _, _ := purego.SyscallN(l.functions.create, uintptr(unsafe.Pointer(&l.state.made)))
	if err := l.check("cublasCreate", r); err != nil {
		return 0, err
	}
	r, _, _ = purego.SyscallN(set, l.state.made, argument)
	if err := l.check(name, r); err != nil {
		purego.SyscallN(l.functions.destroy, l.state.made)
		return 0, err
	}
	return l.state.made, nil
}

// BLASHandle returns a handle of cuBLAS, a cublasHandle_t, for calls of cuBLAS that this package does not make: made by
// the first call, on the device's default stream, with cuBLAS's own workspace and settings, and apart from the one that
// matrix products here are made with. It is the backend's, which destroys it in Close. As cuBLAS keeps the state of a
// call in the handle, one goroutine at a time uses it, with the device current on the thread (driver.Kernel's Call).
// The error matches driver.ErrUnsupported if there is no cuBLAS.
func (b *Backend) BLASHandle() (handle uintptr, err error) {
	l := &b.blas
	if !l.open() {
		return 0, &driver.Error{Call: "BLASHandle", Code: driver.ErrUnsupported, Detail: "no cuBLAS: " + l.reason}
	}
	err = b.kernels.Launch(b.dev.DefaultStream(), driver.Kernel{
		Name: "cublasCreate",
		Call: func(stream uintptr) (err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.userHandle == 0 {
				l.userHandle, err = l.create("cublasSetStream", l.functions.setStream, stream)
			}
			handle = l.userHandle
			return err
		},
	})
	return handle, err
}

// gemm queues c on a stream.
func (l *blas) gemm(stream uintptr, c *gemmArguments) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if err := l.configure(handleSettings{stream, c.workspace, c.workspaceSize}); err != nil {
		return err
	}
	one, zero := unsafe.Pointer(&l.state.one), unsafe.Pointer(&l.state.zero)
	var typ, compute uintptr = blasReal32F, blasCompute32F
	switch c.d {
	case dtype.Float32:
		if l.options.TF32 {
			compute = blasCompute32FTF32
		}
	case dtype.Float16:
		typ = blasReal16F
	case dtype.BFloat16:
		typ = blasReal16BF
	case dtype.Float64:
		typ, compute = blasReal64F, blasCompute64F
		one, zero = unsafe.Pointer(&l.state.one64), unsafe.Pointer(&l.state.zero64)
	}
	l.args = [...]uintptr{
		l.handle, transpose(c.transA), transpose(c.transB), uintptr(c.m), uintptr(c.n), uintptr(c.k), uintptr(one),
		uintptr(c.a), typ, uintptr(c.lda), uintptr(c.strideA), uintptr(c.b), typ, uintptr(c.ldb), uintptr(c.strideB),
		uintptr(zero),
		uintptr(c.c), typ, uintptr(c.ldc), uintptr(c.strideC), uintptr(c.count), compute, blasDefaultAlgorithm,
	}
	r, _, _ := purego.SyscallN(l.functions.gemm, l.args[:]...)
	return l.check("cublasGemmStridedBatchedEx", r)
}

// configure sets the handle's stream and workspace. A new stream makes it forget its workspace.
func (l *blas) configure(now handleSettings) error {
	if l.current == now {
		return nil
	}
	before := l.current
	l.current = handleSettings{} // until both are set
	if before.workspaceSize == 0 || before.stream != now.stream {
		r, _, _ := purego.SyscallN(l.functions.setStream, l.handle, now.stream)
		if err := l.check("cublasSetStream", r); err != nil {
			return err
		}
	}
	r, _, _ := purego.SyscallN(l.functions.setWorkspace, l.handle, uintptr(now.workspace), uintptr(now.workspaceSize))
	if err := l.check("cublasSetWorkspace", r); err != nil {
		return err
	}
	l.current = now
	return nil
}

func transpose(yes bool) uintptr {
	if yes {
		return blasTranspose
	}
	return 0
}

// close destroys the handles, which waits for the device.
func (l *blas) close(b *Backend) error {
	l.mu.Lock()
	none := l.handle == 0 && l.userHandle == 0
	l.mu.Unlock()
	if none {
		return nil
	}
	return b.kernels.Launch(b.dev.DefaultStream(), driver.Kernel{Name: "cublasDestroy", Call: func(uintptr) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		var errs []error
		for _, handle := range []uintptr{l.handle, l.userHandle} {
			if handle != 0 {
				r, _, _ := purego.SyscallN(l.functions.destroy, handle)
				errs = append(errs, l.check("cublasDestroy", r))
			}
		}
		l.handle, l.userHandle, l.current = 0, 0, handleSettings{}
		return errors.Join(errs...)
	}})
}

// Library returns the name of cuBLAS as it was opened, or "" and why there is none: then matrix products are computed
// by kernels of this package.
func (b *Backend) Library() (name, why string) {
	b.blas.open()
	return b.blas.name, b.blas.reason
}
