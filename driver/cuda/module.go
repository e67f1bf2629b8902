//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// A module is a CUmodule with the functions that were requested.
type module struct {
	d *device

	mu        sync.RWMutex // read-locked by launches, locked by Function and Close; taken after a stream's mu
	handle    cu.Module
	closed    bool
	functions map[string]*function
}

// A function is a CUfunction.
type function struct {
	m      *module
	name   string
	handle cu.Function
	limits driver.Limits

	mu     sync.Mutex // a leaf, held during calls of libcuda
	shared int64      // the enabled dynamic shared memory in bytes
}

// isBinary reports whether code is a cubin or a fat binary rather than text.
func isBinary(code []byte) bool {
	return bytes.HasPrefix(code, []byte("\x7fELF")) || bytes.HasPrefix(code, []byte("\x50\xed\x55\xba"))
}

// Load makes libcuda compile PTX for the device. If that fails, the error contains the compiler's messages.
func (k kernels) Load(code []byte) (driver.Module, error) {
	const call = "Kernels.Load"
	if err := k.d.enter(call); err != nil {
		return nil, err
	}
	defer k.d.leave()
	if len(code) == 0 {
		return nil, invalidError(call, "no code")
	}
	image := code
	if !isBinary(code) && code[len(code)-1] != 0 {
		image = append(bytes.Clone(code), 0)
	}
	handle, _, said, r := k.d.lib.ModuleLoad(image)
	if r != cu.Success {
		what := fmt.Sprintf("%d bytes of code", len(code))
		if said = strings.TrimSpace(said); said != "" {
			what += ": " + said
		}
		return nil, k.d.fail(call, r, "%s", what)
	}
	m := &module{d: k.d, handle: handle, functions: map[string]*function{}}
	k.d.modules.add(m)
	return m, nil
}

// Function returns the same value for the same name.
func (m *module) Function(name string) (driver.Function, error) {
	const call = "Module.Function"
	if err := m.d.enter(call); err != nil {
		return nil, err
	}
	defer m.d.leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, closedError(call, "the module")
	}
	if f := m.functions[name]; f != nil {
		return f, nil
	}
	if name == "" || strings.ContainsRune(name, 0) {
		return nil, invalidError(call, "%q is not the name of a kernel", name)
	}
	handle, r := m.d.lib.ModuleFunction(m.handle, name)
	if r != cu.Success {
		return nil, m.d.fail(call, r, "%q", name)
	}
	f := &function{m: m, name: name, handle: handle}
	if err := f.measure(call); err != nil {
		return nil, err
	}
	m.functions[name] = f
	return f, nil
}

// measure queries the function's limits.
func (f *function) measure(call string) error {
	d := f.m.d
	values := map[cu.FunctionAttribute]int{}
	for _, a := range []cu.FunctionAttribute{
		cu.FuncMaxThreads, cu.FuncRegisters, cu.FuncStaticShared, cu.FuncMaxDynamicShared,
	} {
		v, r := d.lib.FuncAttribute(a, f.handle)
		if r != cu.Success {
			return d.fail(call, r, "attribute %d of %q", a, f.name)
		}
		values[a] = v
	}
	f.shared = int64(values[cu.FuncMaxDynamicShared])
	static := int64(values[cu.FuncStaticShared])
	f.limits = driver.Limits{
		Threads: values[cu.FuncMaxThreads], Registers: values[cu.FuncRegisters],
		StaticShared: static, DynamicShared: max(d.info.SharedMemory-static, f.shared),
	}
	var err error
	f.limits.Params, err = f.params(call)
	return err
}

// params queries the sizes of the parameters; it returns nil if the driver does not know them. Before CUDA 13.2 the
// driver does not know their number, so params queries until a parameter does not exist. Tools that watch libcuda's
// results see that as an error.
func (f *function) params(call string) ([]int, error) {
	d := f.m.d
	n, r := d.lib.FuncParamCount(f.handle)
	known := r.Missing() == ""
	if known && r != cu.Success {
		return nil, d.fail(call, r, "number of parameters of %q", f.name)
	}
	params := []int{}
	for !known || len(params) < n {
		_, size, r := d.lib.FuncParamInfo(f.handle, len(params))
		switch {
		case r == cu.InvalidValue && !known: // after the last parameter
			return params, nil
		case r.Missing() != "" || r == cu.NotSupported: // before CUDA 12.4
			return nil, nil
		case r != cu.Success:
			return nil, d.fail(call, r, "parameter %d of %q", len(params), f.name)
		}
		params = append(params, int(size))
	}
	return params, nil
}

func (f *function) Name() string { return f.name }

// Limits shares its slice with all callers.
func (f *function) Limits() driver.Limits { return f.limits }

// Close unloads the code. Closing twice is not an error, nor is closing after the device.
func (m *module) Close() error {
	const call = "Module.Close"
	if err := m.d.enter(call); err != nil {
		return ignoreClosed(err)
	}
	defer m.d.leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	if r := m.d.lib.ModuleUnload(m.handle); r != cu.Success {
		return m.d.fail(call, r, "unload")
	}
	m.closed = true
	m.d.modules.remove(m)
	return nil
}
