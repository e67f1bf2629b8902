//go:build linux && (amd64 || arm64) && !nocuda

package cu

import (
	"bytes"
	"runtime"
	"unsafe"
)

// A FunctionAttribute is a property of a kernel (cuda.h: CUfunction_attribute).
type FunctionAttribute int32

// The attributes that Ashlar asks for.
const (
	FuncMaxThreads       FunctionAttribute = 0
	FuncStaticShared     FunctionAttribute = 1
	FuncRegisters        FunctionAttribute = 4
	FuncMaxDynamicShared FunctionAttribute = 8 // may be set
)

// jitLogBytes is the size of the log buffers of the PTX compiler.
const jitLogBytes = 16 << 10

// A jit holds the options of one load, with the memory to which their values refer.
type jit struct {
	options [4]int32
	values  [4]uintptr
	info    [jitLogBytes]byte
	errors  [jitLogBytes]byte
}

// ModuleLoad loads PTX or a cubin. It returns the messages of the PTX compiler. libcuda does not receive the length of
// the image, so it gets a copy followed by zeros. They end PTX, and libcuda may read them when it checks the header of
// a truncated image.
func (l *Lib) ModuleLoad(image []byte) (m Module, info, errors string, r Result) {
	j := new(jit)
	image = append(bytes.Clone(image), make([]byte, 64)...)
	// cuda.h: CU_JIT_INFO_LOG_BUFFER, its size, CU_JIT_ERROR_LOG_BUFFER, its size. callWith keeps j on the heap, so the
	// addresses in values stay good.
	j.options = [4]int32{3, 4, 5, 6}
	j.values = [4]uintptr{
		uintptr(unsafe.Pointer(&j.info)), jitLogBytes, uintptr(unsafe.Pointer(&j.errors)), jitLogBytes,
	}
	r = l.callWith(symModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
		4, uintptr(unsafe.Pointer(&j.options)), uintptr(unsafe.Pointer(&j.values)))
	return m, trim(j.info[:]), trim(j.errors[:]), r
}

// ModuleUnload unloads code. None of its functions may be in use.
func (l *Lib) ModuleUnload(m Module) Result { return l.call(symModuleUnload, uintptr(m)) }

// ModuleFunction finds a kernel by its name in the code: NotFound if there is none.
func (l *Lib) ModuleFunction(m Module, name string) (Function, Result) {
	var f Function
	c := append([]byte(name), 0)
	r := l.callWith(symModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&c[0])))
	return f, r
}

// FuncAttribute returns a property of a kernel.
func (l *Lib) FuncAttribute(a FunctionAttribute, f Function) (int, Result) {
	v, r := l.get(symFuncGetAttribute, uintptr(a), uintptr(f))
	return int(int32(v)), r
}

// FuncSetAttribute sets an attribute that can be set.
func (l *Lib) FuncSetAttribute(f Function, a FunctionAttribute, value int) Result {
	return l.call(symFuncSetAttribute, uintptr(f), uintptr(a), uintptr(value))
}

// FuncParamCount returns the number of parameters of a kernel. It exists since CUDA 13.2.
func (l *Lib) FuncParamCount(f Function) (int, Result) {
	n, r := l.getAfter(symFuncGetParamCount, uintptr(f))
	return int(n), r
}

// FuncParamInfo returns the offset and the size of parameter i, or InvalidValue if there is no such parameter. It
// exists since CUDA 12.4.
func (l *Lib) FuncParamInfo(f Function, i int) (offset, size int64, r Result) {
	c := frames.Get().(*frame)
	c.cells = [2]uint64{}
	c.args[0], c.args[1], c.args[2], c.args[3] = uintptr(f), uintptr(i), c.cell(0), c.cell(1)
	r = l.invoke(symFuncGetParamInfo, c, 4)
	offset, size = int64(c.cells[0]), int64(c.cells[1])
	frames.Put(c)
	return offset, size, r
}

// LaunchKernel queues f. Params is an array of addresses of the parameters in order (void**), or nil if there are none;
// libcuda has read it and them when this returns. Its elements must be unsafe.Pointers, not integers, so that the
// parameters stay reachable.
func (l *Lib) LaunchKernel(f Function, grid, block [3]uint32, shared uint32, s Stream, params unsafe.Pointer) Result {
	c := frames.Get().(*frame)
	c.keep = params // on the heap, so that its address stays valid
	c.args = [16]uintptr{
		uintptr(f), uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(block[0]), uintptr(block[1]), uintptr(block[2]), uintptr(shared), uintptr(s), uintptr(params), 0,
	}
	r := l.invoke(symLaunchKernel, c, 11)
	runtime.KeepAlive(params)
	c.keep = nil
	frames.Put(c)
	return r
}

// GraphInstantiate makes a graph ready for launch.
func (l *Lib) GraphInstantiate(g Graph) (GraphExec, Result) {
	e, r := l.get(symGraphInstantiate, uintptr(g), 0)
	return GraphExec(e), r
}

// GraphLaunch queues a graph.
func (l *Lib) GraphLaunch(e GraphExec, s Stream) Result {
	return l.call(symGraphLaunch, uintptr(e), uintptr(s))
}

// GraphDestroy destroys a graph; its executable graphs stay.
func (l *Lib) GraphDestroy(g Graph) Result { return l.call(symGraphDestroy, uintptr(g)) }

// GraphExecDestroy destroys an executable graph, after a launch in progress.
func (l *Lib) GraphExecDestroy(e GraphExec) Result { return l.call(symGraphExecDestroy, uintptr(e)) }

// GraphNodes returns the number of nodes of g.
func (l *Lib) GraphNodes(g Graph) (int, Result) {
	f := frames.Get().(*frame)
	f.cells[0] = 0
	f.args[0], f.args[1], f.args[2] = uintptr(g), 0, f.cell(0)
	r := l.invoke(symGraphGetNodes, f, 3)
	n := int(f.cells[0])
	frames.Put(f)
	return n, r
}
