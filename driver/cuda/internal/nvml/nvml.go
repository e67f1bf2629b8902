//go:build linux && (amd64 || arm64) && !nocuda

// Package nvml queries NVIDIA's management library for data that libcuda does not provide: the free memory of a device
// without a context on it, and the processes that use its memory.
//
// The library is optional. It may be missing, denied (to processes inside a slice of a GPU, or a container), or too old
// for some functions; then the data is unknown, and every method returns an error with the reason. A nil Lib is a
// missing library. It is safe for concurrent use.
package nvml

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ebitengine/purego"
)

// ErrAbsent is the error of a nil Lib.
var ErrAbsent = errors.New("NVML is not here")

// libraryNames are possible names of the library. In all known cases it is beside libcuda.
var libraryNames = []string{
	"libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib64/libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
}

// A Lib is the library.
type Lib struct {
	lookup func(symbol string) (uintptr, error)

	init sync.Once // nvmlInit; there is no shutdown, as for all libraries that dl opens
	err  error
}

// Open loads the library. The tries list the attempted names.
func Open() (*Lib, dl.Tries, error) {
	library, tries, err := dl.Open(libraryNames...)
	if err != nil {
		return nil, tries, err
	}
	return New(library.Lookup), tries, nil
}

// New returns a Lib of the functions that lookup finds. Tests pass functions of their own.
func New(lookup func(symbol string) (uintptr, error)) *Lib { return &Lib{lookup: lookup} }

// A Process is a process that uses memory of a device.
type Process struct {
	PID  int
	Used int64 // bytes; -1 if NVML does not report it
}

const (
	success          = 0
	insufficientSize = 7 // nvml.h: NVML_ERROR_INSUFFICIENT_SIZE
)

// call calls a function. Addresses of Go memory are converted in the argument list.
//
//go:uintptrescapes
func (l *Lib) call(symbol string, args ...uintptr) (int32, error) {
	if l == nil {
		return 0, ErrAbsent
	}
	function, err := l.lookup(symbol)
	if err != nil {
		return 0, err
	}
	r, _, _ := purego.SyscallN(function, args...)
	if int32(r) != success && int32(r) != insufficientSize {
		return int32(r), fmt.Errorf("%s: NVML error %d", symbol, int32(r))
	}
	return int32(r), nil
}

// start initialises the library once.
func (l *Lib) start() error {
	if l == nil {
		return ErrAbsent
	}
	l.init.Do(func() { _, l.err = l.call("nvmlInit_v2") })
	return l.err
}

// Version returns the driver's version as nvidia-smi shows it: "580.159.04".
func (l *Lib) Version() (string, error) {
	if err := l.start(); err != nil {
		return "", err
	}
	b := make([]byte, 96)
	_, err := l.call("nvmlSystemGetDriverVersion", uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), err
		}
	}
	return "", err
}

// device returns the handle of the device with a UUID in nvidia-smi's notation.
func (l *Lib) device(uuid string) (uintptr, error) {
	if err := l.start(); err != nil {
		return 0, err
	}
	var handle uintptr
	c := append([]byte(uuid), 0)
	_, err := l.call("nvmlDeviceGetHandleByUUID", uintptr(unsafe.Pointer(&c[0])), uintptr(unsafe.Pointer(&handle)))
	return handle, err
}

// Free returns the unused bytes of the device.
func (l *Lib) Free(uuid string) (int64, error) {
	handle, err := l.device(uuid)
	if err != nil {
		return 0, err
	}
	var memory struct{ total, free, used uint64 } // nvml.h: nvmlMemory_t
	_, err = l.call("nvmlDeviceGetMemoryInfo", handle, uintptr(unsafe.Pointer(&memory)))
	return int64(memory.free), err
}

// processInfo is nvml.h's nvmlProcessInfo_t, of nvmlDeviceGetComputeRunningProcesses_v3.
type processInfo struct {
	pid              uint32
	used             uint64
	gpuInstance, sub uint32
}

// Processes lists the processes that use memory of the device for computing, including this one if it does. In a
// container their IDs are those of the host.
func (l *Lib) Processes(uuid string) ([]Process, error) {
	handle, err := l.device(uuid)
	if err != nil {
		return nil, err
	}
	for room := 64; ; room *= 2 {
		n := uint32(room)
		infos := make([]processInfo, room)
		r, err := l.call("nvmlDeviceGetComputeRunningProcesses_v3", handle,
			uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&infos[0])))
		if err != nil {
			return nil, err
		}
		if r == insufficientSize && room < 1<<16 {
			continue
		}
		var all []Process
		for _, p := range infos[:min(int(n), room)] {
			all = append(all, Process{int(p.pid), int64(p.used)}) // all bits set: not available
		}
		return all, nil
	}
}
