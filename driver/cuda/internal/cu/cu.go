//go:build linux && (amd64 || arm64) && !nocuda

// Package cu calls NVIDIA's driver library, libcuda, without cgo: one thin method for each function that Ashlar uses.
//
// A Lib is a table of addresses, one for each symbol in symbols.go, looked up one by one when it is made. The method of
// a missing symbol returns a Result that names the symbol and maps to driver.ErrUnsupported. Names are the exact
// exported ones, with versions (cuMemAlloc_v2); where a function has several, the newest that this package's signature
// fits comes first.
//
// Calls go through purego.SyscallN. Its arguments are in a frame from a pool, as are the cells into which libcuda
// writes results. Frames are on Go's heap and do not move, so the address of a cell stays valid when the goroutine's
// stack moves, and a call does not allocate. There are two kinds of call:
//
//   - call, get and get2 take integers only. No argument may be the address of Go memory.
//   - callWith takes addresses of Go memory too, converted in the argument list itself. Its directive uintptrescapes
//     keeps the memory on the heap until the call returns. It allocates once.
//
// Handles and device addresses are integers: the garbage collector must not see them, and checkptr would take them for
// stray pointers. No structure is passed by value, with two exceptions, which ipc_amd64.go and ipc_arm64.go explain.
//
// Calls that would break a capture of other code (unsafeInCaptures) are made in the relaxed mode of captures, on one
// thread. Nothing else here knows of contexts, threads or locks: package driver/cuda sees to those. Lib is safe for
// concurrent use.
package cu

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ebitengine/purego"
)

// Handles of libcuda. Zero is no handle, except for Device, which is a number, and Stream.
type (
	// A Device is a GPU, or a slice of one.
	Device int32

	// A Context holds the resources of a process on a device: memory, streams, modules.
	Context uintptr

	// A Stream is a queue of work. Zero is the legacy default stream of the current context.
	Stream uintptr

	// An Event is a point on a stream, once recorded.
	Event uintptr

	// A Module is loaded code.
	Module uintptr

	// A Function is a kernel of a module.
	Function uintptr

	// A Graph is captured work.
	Graph uintptr

	// A GraphExec is a graph that is ready for launch.
	GraphExec uintptr

	// A MemHandle is physical memory without addresses.
	MemHandle uint64
)

// LegacyStream and PerThreadStream are the handles of the two default streams under their own names (cuda.h:
// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD). Zero is the first of them for the functions that this package calls.
const (
	LegacyStream    Stream = 1
	PerThreadStream Stream = 2
)

// libraryNames are possible names of libcuda: the loader's name first, then paths of containers, Debian, Fedora and
// Windows Subsystem for Linux.
var libraryNames = []string{
	"libcuda.so.1",
	"libcuda.so",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
}

// A Lib is libcuda, or its replacement in tests.
type Lib struct {
	functions [symbolCount]uintptr // 0: the symbol is missing
}

// Open loads libcuda. The tries list the attempted names.
func Open() (*Lib, dl.Tries, error) {
	library, tries, err := dl.Open(libraryNames...)
	if err != nil {
		return nil, tries, err
	}
	return New(library.Lookup), tries, nil
}

// New returns a Lib of the functions that lookup finds. Tests pass functions of their own.
func New(lookup func(symbol string) (uintptr, error)) *Lib {
	l := &Lib{}
	for s := range symbolCount {
		for _, name := range names[s] {
			if address, err := lookup(name); err == nil && address != 0 {
				l.functions[s] = address
				break
			}
		}
	}
	return l
}

// Missing returns the symbols that the library lacks, except dispensable ones.
func (l *Lib) Missing() []string {
	var missing []string
	for s := range symbolCount {
		if l.functions[s] == 0 && !dispensable[s] {
			missing = append(missing, names[s][0])
		}
	}
	return missing
}

// A frame holds the arguments and results of one call.
type frame struct {
	args  [16]uintptr
	cells [2]uint64 // zero when the call starts
	keep  unsafe.Pointer
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// invoke calls s with the first n arguments of f.
func (l *Lib) invoke(s symbol, f *frame, n int) Result {
	function := l.functions[s]
	if function == 0 {
		return missing(s)
	}
	if unsafeInCaptures[s] && l.functions[symThreadExchangeCaptureMode] != 0 {
		return l.invokeRelaxed(function, f, n)
	}
	r, _, _ := purego.SyscallN(function, f.args[:n]...)
	return Result(int32(r))
}

// invokeRelaxed calls a function so that captures allow it, which other code may have begun on any thread and stream.
// The thread's mode comes back, whatever it was; a call that fails to bring it back is made again.
func (l *Lib) invokeRelaxed(function uintptr, f *frame, n int) Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mode, entered := l.ExchangeCaptureMode(CaptureRelaxed)
	r, _, _ := purego.SyscallN(function, f.args[:n]...)
	if entered == Success {
		if _, left := l.ExchangeCaptureMode(mode); left != Success {
			_, _ = l.ExchangeCaptureMode(mode)
		}
	}
	return Result(int32(r))
}

// call calls s with integers.
func (l *Lib) call(s symbol, args ...uintptr) Result {
	f := frames.Get().(*frame)
	r := l.invoke(s, f, copy(f.args[:], args))
	frames.Put(f)
	return r
}

// get calls s with the address of a cell and then args, and returns the cell.
func (l *Lib) get(s symbol, args ...uintptr) (uint64, Result) {
	f := frames.Get().(*frame)
	f.cells[0] = 0
	f.args[0] = f.cell(0)
	r := l.invoke(s, f, 1+copy(f.args[1:], args))
	v := f.cells[0]
	frames.Put(f)
	return v, r
}

// get2 is get with two cells.
func (l *Lib) get2(s symbol, args ...uintptr) (a, b uint64, r Result) {
	f := frames.Get().(*frame)
	f.cells = [2]uint64{}
	f.args[0], f.args[1] = f.cell(0), f.cell(1)
	r = l.invoke(s, f, 2+copy(f.args[2:], args))
	a, b = f.cells[0], f.cells[1]
	frames.Put(f)
	return a, b, r
}

// getAfter is get with the cell's address after first.
func (l *Lib) getAfter(s symbol, first uintptr, args ...uintptr) (uint64, Result) {
	f := frames.Get().(*frame)
	f.cells[0] = 0
	f.args[0], f.args[1] = first, f.cell(0)
	r := l.invoke(s, f, 2+copy(f.args[2:], args))
	v := f.cells[0]
	frames.Put(f)
	return v, r
}

func (f *frame) cell(i int) uintptr { return uintptr(unsafe.Pointer(&f.cells[i])) }

// callWith calls s with arguments that may be addresses of Go memory.
//
//go:uintptrescapes
func (l *Lib) callWith(s symbol, args ...uintptr) Result { return l.call(s, args...) }

// text returns the C string at an address in libcuda's memory.
func text(address uintptr) string {
	if address == 0 {
		return ""
	}
	p := *(**byte)(unsafe.Pointer(&address)) // C memory or, in tests, Go memory that is kept alive
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// trim returns the C string in b.
func trim(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func missing(s symbol) Result { return Result(-1 - int32(s)) }

// symbolOf returns the missing symbol of a Result.
func symbolOf(r Result) string {
	if s := -1 - int(r); s < int(symbolCount) {
		return names[s][0]
	}
	return fmt.Sprintf("result %d", int32(r))
}
