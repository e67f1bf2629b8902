//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "slices"

// A Kernel is the Go implementation of a PTX entry. It runs under the machine's lock and must not call the machine. An
// error breaks the context.
type Kernel func(Launch) Result

// A Launch is one launch of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	Shared      uint32
	Params      [][]byte

	// Memory returns n bytes of device memory, or an error for an illegal address, which the kernel must return.
	Memory func(address uint64, n int64, write bool) ([]byte, Result)
}

// Kernel sets the implementation of the entries with a name, in all modules.
func (m *Machine) Kernel(name string, k Kernel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kernels[name] = k
}

// The keys of cuLaunchKernel's extra argument, which replaces the array of parameters.
const (
	extraEnd    = 0
	extraBuffer = 1
	extraSize   = 2
)

func (c *call) launchKernel(
	h uint64, gx, gy, gz, bx, by, bz, shared uint32, streamHandle uint64, params, extra *uint64,
) Result {
	f, r := c.function(h)
	if r != Success {
		return r
	}
	s, r := c.stream(streamHandle)
	if r != Success {
		return r
	}
	grid, block := [3]uint32{gx, gy, gz}, [3]uint32{bx, by, bz}
	threads := uint64(1)
	for i := range 3 {
		threads *= uint64(block[i])
		if grid[i] == 0 || block[i] == 0 || grid[i] > uint32(c.ctx.dev.attributes[int32(5+i)]) ||
			block[i] > uint32(c.ctx.dev.attributes[int32(2+i)]) {
			return InvalidValue
		}
	}
	switch {
	case threads > uint64(c.ctx.dev.attributes[1]), shared > uint32(f.dynamic):
		return InvalidValue
	case threads > uint64(f.threads):
		return LaunchOutOfResources
	}
	values, r := c.params(f, params, extra)
	if r != Success {
		return r
	}
	m, p := c.Machine, c.ctx
	_, r = c.submit(s, nodeKernel, 5000, func() Result {
		k := m.kernels[f.name]
		if k == nil {
			return m.misuse(LaunchFailed, "no function is registered for kernel %s", f.name)
		}
		if f.module.unloaded {
			return m.misuse(LaunchFailed, "kernel %s runs after its module was unloaded", f.name)
		}
		return k(Launch{grid, block, shared, values, func(address uint64, n int64, write bool) ([]byte, Result) {
			how := reading
			if write {
				how = writing
			}
			return m.view(p, address, n, how, false)
		}})
	})
	return r
}

// params copies the parameters of a launch, from an array of their addresses or from a buffer with the function's
// layout.
func (c *call) params(f *function, params, extra *uint64) ([][]byte, Result) {
	var values [][]byte
	switch {
	case params != nil && extra != nil, params == nil && extra == nil && len(f.entry.params) > 0:
		return nil, InvalidValue
	case params != nil:
		for i, at := range arrayOf(params, uint64(len(f.entry.params))) {
			if at == 0 {
				return nil, InvalidValue
			}
			values = append(values, slices.Clone(bytesAt(at, f.entry.params[i].size)))
		}
	case extra != nil:
		var buffer, size uint64
		for i := uint64(0); arrayOf(extra, i+1)[i] != extraEnd; i += 2 {
			switch pair := arrayOf(extra, i+2)[i:]; pair[0] {
			case extraBuffer:
				buffer = pair[1]
			case extraSize:
				size = *(*uint64)(pointer(pair[1]))
			default:
				return nil, InvalidValue
			}
		}
		for _, p := range f.entry.params {
			if buffer == 0 || uint64(p.offset+p.size) > size {
				return nil, InvalidValue
			}
			values = append(values, slices.Clone(bytesAt(buffer+uint64(p.offset), p.size)))
		}
	}
	return values, Success
}
