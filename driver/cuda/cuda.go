//go:build linux && (amd64 || arm64) && !nocuda

// Package cuda opens NVIDIA GPUs as devices. It loads libcuda, the driver's library, at run time, without cgo and
// without the CUDA toolkit.
//
//	dev, err := driver.Open("cuda:0") // import _ "github.com/ashlar-go/ashlar/driver/cuda"
//
// It is registered as "cuda". Open takes nothing (the first GPU), a number ("cuda:1"), or a UUID as nvidia-smi prints
// it ("cuda:GPU-5c1f…", "cuda:MIG-…"), and after a comma the maximum that Alloc and Create may allocate
// ("cuda:0,total=1GiB"): beyond it they return driver.ErrNoMemory, and Available and Info().TotalMemory are within it.
// Each opening of a device has a budget of its own. The oldest supported driver is CUDA 12.0.
//
// A device uses the GPU's primary context, as the CUDA runtime does, so that memory, streams and modules of other code
// in the process can be used here. Each call leaves the current context of its thread as it was, also none. Other code
// may capture on its own streams, in any mode and on any thread: calls here neither fail for that nor break the
// capture, where libcuda has cuThreadExchangeStreamCaptureMode.
//
// Results of libcuda become a *driver.Error with libcuda's text. After an error that destroys the context (an illegal
// address, an uncorrectable memory error) every call returns driver.ErrLost with the first cause; only a new process
// can use the device again. A device is safe for concurrent use.
package cuda

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/nvml"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// # Structure
//
//   - A call to libcuda is made by a goroutine that is locked to its thread, with the context pushed: see context.go.
//   - A block from Alloc is one of cuMemAlloc, a page a handle of cuMemCreate. The usable addresses are in one
//     table (ranges.go). An address that is not in it may be other code's: libcuda is asked. Any other address is
//     driver.ErrInvalid before work is queued, because on the device it would destroy the context.
//   - A stream is a CUstream that does not wait for the legacy default stream, and that stream is StreamID 0. A stream of
//     other code can be used too (StreamOptions.Foreign), but the per-thread default stream cannot: goroutines move from
//     thread to thread.
//   - A mark is an event, recorded only if there was new work: see mark.go. Waiting that a context may end is a goroutine
//     asleep in libcuda: see sync.go. libcuda never calls Go.
//
// Invariants: no libcuda call but between enter and leave, or by Open and Close. Ticks passed <= ticks marked, and the
// ring of a stream holds exactly those between. Every event is in the device's pool, in one ring, or in use by a call.
//
// A function that the machine's driver lacks is driver.ErrUnsupported when it is needed.
//
// Locks: copying (peers.go), device.life (read), a stream's ending, its mu or virtual.mu, capture.mu; ranges.mu,
// marks.mu and, under that, events.mu are leaves. A stream's mu is held while libcuda queues, which blocks if the
// stream's queue is full; no call that waits for the device is made with it, or with any lock that another stream needs
// but copying.
//
// Nothing is freed when a program ends: the operating system does so, and libcuda may be unloaded by then. A process
// that was forked after cuInit cannot use CUDA; Go programs do not fork without starting another program.
//
// On other systems, and with the build tag nocuda, Open fails with driver.ErrUnsupported. CGO_ENABLED=0 and nocuda
// together make a static program.

// minimum is the oldest driver, as cuDriverGetVersion writes it: CUDA 12.0.
const minimum = 12000

// cudaDriver is the driver, with what it needs of the machine.
type cudaDriver struct {
	load   func() (*cu.Lib, dl.Tries, error)
	nvml   func() (*nvml.Lib, dl.Tries, error)
	exists func(path string) bool
}

func init() {
	driver.Register("cuda", &cudaDriver{
		load:   onceLoaded(openLibrary),
		nvml:   onceLoaded(nvml.Open),
		exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
	})
}

// onceLoaded loads a library at the first call, and returns what came of it at every call.
func onceLoaded[L any](open func() (*L, dl.Tries, error)) func() (*L, dl.Tries, error) {
	var once sync.Once
	var lib *L
	var tries dl.Tries
	var err error
	return func() (*L, dl.Tries, error) {
		once.Do(func() { lib, tries, err = open() })
		return lib, tries, err
	}
}

// Open opens the device "" (the first), "N" or UUID, with ",total=SIZE" behind it.
func (c *cudaDriver) Open(args string) (driver.Device, error) {
	o, err := parseOpening(args)
	if err != nil {
		return nil, err
	}
	lib, n, err := c.start("Open")
	if err != nil {
		return nil, err
	}
	ordinal, err := find(lib, n, o.device)
	if err != nil {
		return nil, err
	}
	d := &device{lib: lib, nvml: c.nvml}
	d.budget.total = o.total
	if err := d.open(ordinal); err != nil {
		return nil, err
	}
	return d, nil
}

// start loads and initialises libcuda and counts the devices. The error says what is missing and what to do.
func (c *cudaDriver) start(call string) (*cu.Lib, int, error) {
	lib, tries, err := c.load()
	if err != nil {
		return nil, 0, absentError(call, "NVIDIA's driver library is not here: %v. %s", tries, c.adviceLibrary())
	}
	version, r := lib.DriverVersion()
	if r != cu.Success {
		return nil, 0, absentError(call, "version of the driver: %s", lib.Describe(r))
	}
	if version < minimum {
		return nil, 0, &driver.Error{
			Call: call, Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("NVIDIA's driver here is for CUDA %s, and CUDA %s is the oldest that works: %s",
				versionText(version), versionText(minimum), adviceOld),
		}
	}
	if r := lib.Init(); r != cu.Success {
		e := absentError(call, "cuInit: %s. %s", lib.Describe(r), c.adviceInit(r))
		if r.Code() == driver.ErrUnsupported {
			e.Code = driver.ErrUnsupported
		}
		return nil, 0, e
	}
	n, r := lib.DeviceCount()
	if r != cu.Success {
		return nil, 0, absentError(call, "number of devices: %s", lib.Describe(r))
	}
	if n == 0 {
		return nil, 0, absentError(call, "the driver works and has no device. %s", c.adviceInit(cu.NoDevice))
	}
	return lib, n, nil
}

// find returns the number of the device of that name.
func find(lib *cu.Lib, n int, name string) (int, error) {
	switch ordinal, err := strconv.Atoi(name); {
	case name == "":
		return 0, nil
	case err == nil && ordinal >= 0 && ordinal < n:
		return ordinal, nil
	case err == nil:
		return 0, absentError("Open", "device %d: there are %d, from 0", ordinal, n)
	case !strings.HasPrefix(name, "GPU-") && !strings.HasPrefix(name, "MIG-"):
		return 0, invalidError("Open", "%q: want nothing, the number of a device, or a UUID (GPU-… or MIG-…)", name)
	}
	var have []string
	for i := range n {
		_, info, err := describe(lib, i)
		if err != nil {
			return 0, err
		}
		if strings.EqualFold(info.UUID, name) {
			return i, nil
		}
		have = append(have, info.UUID)
	}
	return 0, absentError("Open", "%s: there are %s", name, strings.Join(have, ", "))
}

// Devices lists the GPUs. Free is -1 where NVML cannot tell it.
func (c *cudaDriver) Devices() ([]driver.Listing, error) {
	lib, n, err := c.start("Devices")
	if err != nil {
		return nil, err
	}
	watch, _, _ := c.nvml()
	var all []driver.Listing
	for i := range n {
		_, info, err := describe(lib, i)
		if err != nil {
			return nil, err
		}
		l := driver.Listing{Spec: "cuda:" + strconv.Itoa(i), Info: info, Free: -1}
		if free, err := watch.Free(info.UUID); err == nil {
			l.Free = free
		}
		all = append(all, l)
	}
	return all, nil
}

func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

func absentError(call, format string, args ...any) *driver.Error {
	return &driver.Error{Call: call, Code: driver.ErrAbsent, Detail: fmt.Sprintf(format, args...)}
}
