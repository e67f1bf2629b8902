// Package engine is what a program opens: an Engine owns devices with their memory, and each Session works on them.
//
//	eng, err := engine.Open(ctx, engine.Config{}) // the best device there is; the host where there is no GPU
//	defer eng.Close(ctx)
//	s, err := eng.NewSession()
//	defer s.Close()
//	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4}, 2, 2)
//	y, err := compute.MatMul(s.Place(), x, x)
package engine

import (
	"errors"
	"log/slog"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda" // found at run time: a program runs without a GPU, too
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/bfc" // for DeviceConfig.Allocator, as are mem/arena and mem/caching
	_ "github.com/ashlar-go/ashlar/mem/direct"
	_ "github.com/ashlar-go/ashlar/mem/paged"
)

// # Structure
//
// An Engine has devices, numbered from 0 in the order of Config.Devices. Each has a stack of allocators (what
// DeviceConfig.Allocator names, over the device or over what MemoryLimit leaves of it; on it the engine's layer of
// caches (caches.go), which serves a session's requests from the cache that it reserved; and what DeviceConfig.Wrap
// puts on top), a backend, a pool of streams and a recorder of events. On top of the stack lie the engine's own lanes
// (lanes.go): they count what each session has on loan, and refuse requests after Close.
//
// A Session is one line of work: on each of its devices a stream of its own and a scope, which Close releases. It is
// used by one goroutine at a time (guard.go): whoever is inside one of its scopes (WithDevice, OnDevice, WithDebug,
// UseCache) owns it, a call from another goroutine panics and names the place of both, and so do two calls that
// overlap. While no scope is open a session may be handed on. Events are no scopes: a session does the same whether
// they are recorded or not.
//
// # States
//
// An engine is open, closing, then closed. Close lets what is inside a scope go on and finish, and calls of EachDevice
// that have begun on some device; all else is refused with ErrClosed from its first moment on. A Close whose context
// ends leaves the engine closing, nothing lost, and may be called again. A session is open or closed.
//
// # Invariants
//
// A session's used memory is the sum of what was asked for in the blocks that were handed out through its streams and
// did not come back, caches and scratch memory of computations included. Nothing is asked of a device after its Close.
// Every stream that a session holds is its own until it is closed. Queued tasks of EachDevice begin in the same order
// on all devices.
//
// # Locks
//
// ranks.mu, held while communicators are made, then Engine.mu, then a session's guard. workers.mu, copies.mu and a
// device's mu are leaves; openEvents.mu comes before a recorder's. Those of lanes come after the locks of tensors and
// before those of the allocators below; a lane's own is a leaf. So do caches.mu, which is held while a cache is
// reserved or given back, and a Hold's, after that. But for ranks.mu, and the life of lanes (for reading), none is held
// while a device is waited for, and none while caller code runs.
//
// It reads no environment and prints nothing but to Config.Log. Its goroutines are one for each device, from the first
// EachDevice until Close, and those of communicators.

// A Config says what an engine is made of. The zero value is the best device there is, with default settings.
type Config struct {
	// Devices are opened in this order. If there are none, it is the CUDA device with the most free memory or, where
	// there is no such device, the host; of several ranks on one machine each takes the CUDA device of its local rank.
	Devices []DeviceConfig

	// Distribution, if not nil, says which of several ranks this process is: collective.FromEnv makes one of what a
	// launcher set. A rank has one device, and Open meets the others.
	Distribution *collective.Config

	// NCCL are names or paths of the library to try before the usual ones, where GPUs of this engine work together. A
	// Distribution has its own.
	NCCL []string

	// EventLevel is what events sessions record from the start: those of this level and below. Levels count from 1; 0
	// records none, and then they cost nothing. See Session.SetEventLevel.
	EventLevel int

	// MaxEvents is how many events a device keeps: timeline.Options.Max, which says which those are. 0 is
	// timeline.DefaultMax; Open refuses a negative number.
	MaxEvents int

	// Log, if not nil, is told what sessions do inside of Session.WithDebug, as its level says. The engine writes
	// nowhere else.
	Log *slog.Logger

	// Compute is what places are made of: the allocator of devices that name none, libraries, and whether the places in
	// the program that make tensors are recorded, so that Close can name those that were not released.
	Compute compute.Options
}

// A DeviceConfig says how one device is opened.
type DeviceConfig struct {
	Spec string // "cuda:0", "host", "sim:total=1GiB": as driver.Open takes it; empty is what Config takes without Devices

	// MemoryLimit is how many bytes the allocator may have of the device, whatever it does with them: on loan, cached,
	// or lost to rounding. 0 is no limit but the device's. Beyond it the allocator is told that the device is full: it
	// gives back what it caches, or compacts, and then the error names the limit. See layer.NewLimitedDevice. What the backend
	// (cuBLAS, say) and the driver take for themselves does not count.
	MemoryLimit int64

	Allocator string // "arena:size=8GiB", "bfc", "caching", "direct", "paged": as mem.Open takes it; empty is Config.Compute's

	// Wrap, if not nil, returns what is to stand on top of the device's allocator and of the caches that sessions
	// reserve of it: layer.NewLeakTracker, say. What it returns must unwrap to what it was given. A layer that keeps free blocks
	// for itself (mem/magazine) keeps those of caches with the others, and so is not for engines whose sessions use
	// caches.
	Wrap func(mem.Allocator) mem.Allocator
}

// ErrClosed is what every call on an engine or a session that is closed returns. It matches driver.ErrClosed, too.
var ErrClosed error = closed{}

type closed struct{}

func (closed) Error() string { return "engine: the engine or the session is closed" }

func (closed) Is(target error) bool { return target == driver.ErrClosed }

// ErrAlive is matched by the error of a Close that found something alive.
var ErrAlive = errors.New("engine: still alive")
