//go:build linux && (amd64 || arm64) && !nocuda

// Package fakecuda is a libcuda made of Go functions, so that what calls CUDA's driver is tested without a GPU.
//
// Lookup gives C addresses of the functions by their exported names, made once a process: they act on the one Machine
// that is open. A machine is as strict as the real driver or stricter. Where CUDA leaves something undefined it fails,
// and where work may run late it runs as late as it can.
//
// Structures. The address space is one range of the process, reserved and without memory; a sorted list of regions says
// what lies where: a block (cuMemAlloc) or a reservation with its mappings (cuMemMap). Physical memory is a memfd for
// each device, or one of its own where another process may see it, mapped where the driver would map it: copies are
// copies of bytes, and one page shows at several addresses. A stream is a queue of work; a piece of work names what it
// comes after. Events point at work.
//
// When work runs is the Pace: by default only once a call waits for it, and a query runs one piece after it has said
// "not ready". Hold stops a stream until Release. The clock of the events is the sum of what work was said to cost.
//
// What a thread's current context is, and which captures it began, are kept by its kernel thread number: goroutines
// move between threads, and a caller that forgets it is told so. A range is checked against the lists before it is
// touched: nothing that callers do crashes the process, but an address of host memory that is not there.
//
// Locks: one, Machine.mu. Every call holds it but while it waits for work. Work runs under it, kernels too.
//
// Not here: textures, managed memory, green contexts, host functions, cubins, contexts other than the primary ones, the
// cost of anything, and races between streams (driver/sim finds them).
package fakecuda

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options say what a Machine is like. The zero value is a machine with two linked devices of 256 MiB.
type Options struct {
	Devices     int               // how many; 0 means 2
	Memory      int64             // bytes of each; 0 means 256 MiB
	Addresses   int64             // bytes of the address space; 0 means 64 GiB
	Granularity int64             // of virtual memory, in bytes; 0 means 2 MiB, and a page of the host is the least
	Version     int32             // what cuDriverGetVersion says; 0 means 13000
	Name        string            // of every device; "" means "Fake H200"
	Unlinked    bool              // devices cannot use each other's memory
	NoVirtual   bool              // no virtual memory
	NoFD        bool              // pages cannot be exported as files
	Attributes  map[int32]int32   // further device attributes, or other values of those there are
	Missing     []string          // symbols that Lookup does not find
	Init        Result            // what cuInit answers
	Pace        Pace              // when work runs
	Held        bool              // streams are made held: work waits for Release or Step
	Harsh       bool              // every call collects garbage and moves the caller's stack first
	Kernels     map[string]Kernel // as if given to Machine.Kernel
	Called      func(Call)        // told of each call as it returns, under the machine's lock; nil: not called
}

// A Pace says when work runs that is not held.
type Pace int

const (
	// Late runs work once a call waits for it, and one piece after each query that found it not done.
	Late Pace = iota
	// AtOnce runs work while it is queued, as a device would that is faster than its host.
	AtOnce
	// Background runs work on a goroutine of its own, at any time.
	Background
)

// A Machine is a host with devices, as libcuda shows it. Safe for concurrent use.
type Machine struct {
	opts    Options
	missing map[string]bool
	page    int64 // bytes, of the host

	mu        sync.Mutex
	changed   *sync.Cond // work was done, a stream released, the machine closed
	closed    bool
	inited    bool
	devices   []*device
	threads   map[int]*thread
	handles   map[uint64]any // whatever calls name by a handle
	base, end uint64
	space     []*region         // sorted by address
	host      []*pinned         // sorted by address
	shared    map[ipcKey]*pages // with files of their own, that other processes may know
	clock     int64             // ns
	kernels   map[string]Kernel
	captures  []*capture

	observed
}

// A thread is what CUDA keeps for each thread of the operating system.
type thread struct {
	contexts []*primary // the last is current; nil stands for none
	mode     uint32     // of captures: what this thread must not do while others capture
}

// The machine that calls act on.
var installed atomic.Pointer[Machine]

// Handles are numbers that no other machine of the process gave out: a stale one is never taken for another.
var lastHandle atomic.Uint64

// New makes a machine, on which all calls act until Close. There can be one at a time: another one panics.
func New(opts Options) *Machine {
	m := &Machine{
		opts:    opts.withDefaults(),
		missing: map[string]bool{},
		page:    int64(os.Getpagesize()),
		threads: map[int]*thread{},
		handles: map[uint64]any{},
		shared:  map[ipcKey]*pages{},
		kernels: map[string]Kernel{},
	}
	m.changed = sync.NewCond(&m.mu)
	m.calls = map[string]int{}
	for _, name := range opts.Missing {
		m.missing[name] = true
	}
	for name, k := range opts.Kernels {
		m.kernels[name] = k
	}
	if m.opts.Granularity%m.page != 0 {
		panic(fmt.Sprintf("fakecuda: granularity %d is no multiple of the host's pages of %d", m.opts.Granularity,
			m.page))
	}
	if !installed.CompareAndSwap(nil, m) {
		panic("fakecuda: another machine is open")
	}
	m.reserveSpace()
	for i := range m.opts.Devices {
		m.devices = append(m.devices, m.newDevice(i))
	}
	if m.opts.Pace == Background {
		go m.work()
	}
	return m
}

func (o Options) withDefaults() Options {
	o.Devices = cmp.Or(o.Devices, 2)
	o.Memory = cmp.Or(o.Memory, 256<<20)
	o.Addresses = cmp.Or(o.Addresses, 64<<30)
	o.Granularity = cmp.Or(o.Granularity, 2<<20)
	o.Version = cmp.Or(o.Version, 13000)
	o.Name = cmp.Or(o.Name, "Fake H200")
	return o
}

// Close ends the machine, with all that its callers have left (see Leaks), and calls that wait fail. Addresses of
// Lookup stay good for the next machine.
func (m *Machine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.changed.Broadcast()
	for _, p := range m.shared {
		must(unix.Close(p.fd))
	}
	for _, x := range m.handles {
		if e, ok := x.(*event); ok && e.shared != nil {
			e.shared.destroy()
		}
	}
	for _, r := range m.space {
		if r.block != nil && r.block.pages.own {
			must(unix.Close(r.block.pages.fd))
		}
	}
	for _, d := range m.devices {
		must(unix.Close(d.fd))
	}
	for _, h := range m.host {
		if !h.registered {
			must(unix.MunmapPtr(pointer(h.start), uintptr(h.mapped)))
		}
	}
	must(unix.MunmapPtr(pointer(m.base), uintptr(m.end-m.base)))
	installed.CompareAndSwap(m, nil)
}

// Lookup returns the C address of a function by its exported name, or an error if the machine has none.
func (m *Machine) Lookup(name string) (uintptr, error) {
	address, ok := addresses()[name]
	if !ok || m.missing[name] {
		return 0, fmt.Errorf("fakecuda: undefined symbol: %s", name)
	}
	return address, nil
}

// newHandle gives a number to x, by which calls name it.
func (m *Machine) newHandle(x any) uint64 {
	h := 0x5ca1_ab1e_0000 + 16*lastHandle.Add(1)
	m.handles[h] = x
	return h
}

// lookup returns what a handle names, if it is a T.
func lookup[T any](m *Machine, h uint64) (T, bool) {
	x, ok := m.handles[h].(T)
	return x, ok
}

// must takes errors that only a broken fake, or a host without memory, can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("fakecuda: %v", err))
	}
}

// pointer makes a pointer of an address that a C caller gave, or that mmap did.
func pointer(address uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// bytesAt is the memory at an address that was checked.
func bytesAt(address uint64, n int64) []byte {
	return unsafe.Slice((*byte)(pointer(address)), n)
}
