//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"fmt"
	"strings"
	"unsafe"
)

// A module is loaded PTX. Only its entries are parsed.
type module struct {
	ctx     *primary
	entries map[string]entry
	given   map[string]uint64 // handles of the functions that callers requested, by name

	unloaded bool
}

// A function is an entry of a module.
type function struct {
	module *module
	entry
	dynamic int32 // bytes of dynamic shared memory that a launch may request
}

// Options of cuModuleLoadDataEx.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

func (c *call) moduleLoadDataEx(h *uint64, image *byte, n uint32, options *int32, values *uint64) Result {
	if h == nil || image == nil || (n > 0 && (options == nil || values == nil)) {
		return InvalidValue
	}
	text := cString(image)
	if strings.HasPrefix(text, "\x7fELF") || strings.HasPrefix(text, "\x50\xed\x55\xba") {
		return NoBinaryForGPU // compiled code is not supported
	}
	entries, err := readPTX(text, int(10*c.ctx.dev.attributes[75]+c.ctx.dev.attributes[76]))
	if err != nil {
		log, size := uint64(0), -1
		for i, o := range arrayOf(options, uint64(n)) {
			switch o {
			case jitErrorLog:
				log = arrayOf(values, uint64(n))[i]
			case jitErrorLogSize:
				size = i
			}
		}
		if log != 0 && size >= 0 {
			room := &arrayOf(values, uint64(n))[size]
			*room = uint64(putText(bytesAt(log, int64(uint32(*room))), fmt.Sprintf("ptxas fatal   : %v", err)))
		}
		return InvalidPTX
	}
	return out(h, c.newHandle(&module{ctx: c.ctx, entries: entries, given: map[string]uint64{}}))
}

// putText writes a C string, truncated to fit, and returns how many bytes it wrote.
func putText(to []byte, text string) int {
	if len(to) == 0 {
		return 0
	}
	n := copy(to[:len(to)-1], text)
	to[n] = 0
	return n + 1
}

// cString returns the text before the first zero byte.
func cString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// module finds a module of the current context.
func (c *call) module(h uint64) (*module, Result) {
	m, ok := lookup[*module](c.Machine, h)
	if !ok || m.ctx != c.ctx {
		return nil, c.misuse(InvalidHandle, "no such module here: %#x", h)
	}
	return m, Success
}

func (c *call) moduleUnload(h uint64) Result {
	m, r := c.module(h)
	if r != Success {
		return r
	}
	m.unloaded = true
	delete(c.handles, h)
	for _, f := range m.given {
		delete(c.handles, f)
	}
	return Success
}

func (c *call) moduleGetFunction(h *uint64, moduleHandle uint64, name *byte) Result {
	m, r := c.module(moduleHandle)
	if r != Success {
		return r
	}
	if h == nil || name == nil {
		return InvalidValue
	}
	e, ok := m.entries[cString(name)]
	if !ok {
		return NotFound
	}
	if m.given[e.name] == 0 {
		m.given[e.name] = c.newHandle(&function{module: m, entry: e, dynamic: max(0, 48<<10-e.shared)})
	}
	return out(h, m.given[e.name])
}

// function finds a function of the current context.
func (c *call) function(h uint64) (*function, Result) {
	f, ok := lookup[*function](c.Machine, h)
	if !ok || f.module.ctx != c.ctx {
		return nil, c.misuse(InvalidHandle, "no such function here: %#x", h)
	}
	return f, Success
}

// Attributes of functions.
const (
	funcMaxThreads = 0
	funcShared     = 1
	funcRegisters  = 4
	funcPTXVersion = 5
	funcBinary     = 6
	funcDynamic    = 8
	funcCarveout   = 9
)

func (c *call) funcGetAttribute(value *int32, attribute uint32, h uint64) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	binary := 10*c.ctx.dev.attributes[75] + c.ctx.dev.attributes[76]
	switch attribute {
	case funcMaxThreads:
		return out(value, f.threads)
	case funcShared:
		return out(value, f.shared)
	case 2, 3, 7: // constants, local memory, cache mode
		return out(value, 0)
	case funcRegisters:
		return out(value, 16)
	case funcPTXVersion, funcBinary:
		return out(value, binary)
	case funcDynamic:
		return out(value, f.dynamic)
	case funcCarveout:
		return out(value, -1)
	}
	return InvalidValue
}

func (c *call) funcSetAttribute(h uint64, attribute uint32, value int32) Result {
	f, r := c.function(h)
	switch {
	case r != Success:
		return r
	case attribute == funcCarveout && value >= -1 && value <= 100:
		return Success
	case attribute != funcDynamic || value < 0 || value > c.ctx.dev.attributes[97]-f.shared:
		return InvalidValue
	}
	f.dynamic = value
	return Success
}

func (c *call) funcGetParamCount(h uint64, n *uint64) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	return out(n, uint64(len(f.params)))
}

func (c *call) funcGetParamInfo(h, i uint64, offset, size *uint64) Result {
	f, r := c.function(h)
	switch {
	case r != Success:
		return r
	case offset == nil || i >= uint64(len(f.params)):
		return InvalidValue
	}
	*offset = uint64(f.params[i].offset)
	if size != nil {
		*size = uint64(f.params[i].size)
	}
	return Success
}
