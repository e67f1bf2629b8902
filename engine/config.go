// Package engine opens devices and runs sessions on them. An [Engine] owns devices, each with its allocator, compute
// backend and streams. A [Session] is one goroutine's use of them: tensors made at its place are released by its Close.
//
//	eng, err := engine.Open(ctx, engine.Config{}) // the GPU with the most free memory, or the host
//	defer eng.Close(ctx)
//	s, err := eng.NewSession()
//	defer s.Close()
//	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4}, 2, 2)
//	y, err := compute.MatMul(s.Place(), x, x)
//
// An Engine is safe for concurrent use; a Session is used by one goroutine at a time. After Close calls return
// [ErrClosed]. Sizes are bytes.
package engine

import (
	"errors"
	"log/slog"

	"github.com/ashlar-go/ashlar/collective"
	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda" // loaded at run time: programs also run without a GPU
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	_ "github.com/ashlar-go/ashlar/mem/bfc" // for DeviceConfig.Allocator, as are mem/arena and mem/caching
	_ "github.com/ashlar-go/ashlar/mem/direct"
	_ "github.com/ashlar-go/ashlar/mem/paged"
)

// # Structure
//
// An Engine has devices, numbered from 0 in the order of Config.Devices. Each has a backend, a pool of streams, a
// recorder of events, and a stack of allocators. From the bottom these are: the allocator that DeviceConfig.Allocator
// names, over the device or over the part that MemoryLimit allows; with Tenants, the layer that routes requests to
// tenants (tenants.go); the layer of caches (caches.go), which serves a session's requests from the cache it reserved;
// the wrappers of DeviceConfig.Wrap; and the session allocator (sessionallocator.go), which counts each session's
// memory and refuses requests after Close.
//
// A Session has on each of its devices a stream of its own and a scope of tensors, which Close releases. One goroutine
// at a time uses it (guard.go): the goroutine inside one of its scopes (WithDevice, OnDevice, WithDebug, UseCache) owns
// it. A call from another goroutine, and two calls at once, panic and name both call sites. While no scope is open
// another goroutine may take over. Events are no scopes: a session behaves the same whether events are recorded or not.
//
// # States
//
// An engine is open, closing, then closed. While it is closing, goroutines inside a scope and calls of EachDevice of
// which a task has begun continue; all other calls fail with ErrClosed. If the context of Close ends, the engine stays
// closing and Close may be called again. A session is open or closed.
//
// # Invariants
//
// A session's used memory is the sum of the requested bytes of live blocks that were allocated through its streams,
// including caches and scratch memory of computations. The engine makes no call on a device after its Close. Each
// stream of a session belongs to it alone until the session returns it. Queued tasks of EachDevice begin in the same
// order on all devices.
//
// # Locks
//
// In order: communicators.mu, held while communicators are made; Engine.mu; a session's guard. workers.mu, copies.mu
// and device.mu are leaves; openEvents.mu comes before a recorder's. The locks of the session allocator come after
// those of tensors and before those of the allocators below. Among them are caches.mu, held while a cache is reserved
// or freed, and then Hold.mu; streamState.mu is a leaf. Only communicators.mu, and sessionAllocator.closeMu for
// reading, are held while a device is waited for. No lock is held while code of the caller runs.
//
// The engine reads no environment and writes only to Config.Log. Its goroutines are one for each device, from the first
// EachDevice until Close, and those of communicators.

// A Config describes an engine. The zero value opens the default device with default settings.
type Config struct {
	// Devices are opened in this order. If there are none, the default device is opened: the CUDA device with the most
	// free memory, or the host if there is no CUDA device. With a Distribution it is the CUDA device of the local rank.
	Devices []DeviceConfig

	// Distribution, if not nil, makes this process one of several ranks: collective.FromEnv reads it from the variables
	// that launchers set. A rank has one device, and Open connects it to the other ranks.
	Distribution *collective.Config

	// NCCL lists names or paths of the NCCL library to try before the default ones, for communication between GPUs of
	// this engine. A Distribution has a list of its own.
	NCCL []string

	// Tenants divides the memory of each device among tenants that cannot read each other's bytes: see NewTenant and
	// layer.NewIsolatedQuotas. Memory of sessions without a tenant, and of the default streams, is that of one more
	// tenant, the engine's own.
	Tenants bool

	// EventLevel is the initial event level of sessions: events of this level and below are recorded. Levels count from
	// 1; 0 records none and costs nothing. See Session.SetEventLevel.
	EventLevel int

	// MaxEvents is the maximum number of events that a device keeps: see timeline.Options.Max. 0 is
	// timeline.DefaultMax. Open returns an error if it is negative.
	MaxEvents int

	// Log, if not nil, receives the records of Session.WithDebug. The engine writes to nothing else.
	Log *slog.Logger

	// Compute configures places: the allocator of devices that name none, libraries, and whether places record the call
	// sites that make tensors, so that Close can name those of unreleased tensors.
	Compute compute.Options
}

// A DeviceConfig describes how a device is opened.
type DeviceConfig struct {
	// Spec is a specification for driver.Open: "cuda:0", "host", "sim:total=1GiB". If it is empty, the default device
	// of Config.Devices is opened.
	Spec string

	// MemoryLimit is the maximum number of bytes that the allocator may have of the device, for live blocks, cached
	// memory and rounding together. 0 is no limit. At the limit the allocator frees cached memory or compacts, as if
	// the device were full, and then fails with an error that names the limit: see layer.NewLimitedDevice. Memory of
	// the backend (cuBLAS, for example) and of the driver does not count.
	MemoryLimit int64

	// Allocator is a specification for mem.Open: "arena:size=8GiB", "bfc", "caching", "direct", "paged". If it is
	// empty, Config.Compute's is used.
	Allocator string

	// Wrap, if not nil, returns a wrapper of the device's allocator, caches of sessions included: layer.NewLeakTracker,
	// for example. The wrapper must unwrap to its argument. With Config.Tenants it must not reuse memory. Do not use a
	// wrapper that keeps free blocks (mem/magazine) in an engine whose sessions reserve caches: it mixes blocks of
	// caches with others.
	Wrap func(mem.Allocator) mem.Allocator
}

// ErrClosed is the error of every call on a closed engine or session. It matches driver.ErrClosed.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "engine: the engine or the session is closed" }

func (closedError) Is(target error) bool { return target == driver.ErrClosed }

// ErrAlive is matched by the error of a Close that found open sessions or unreleased tensors.
var ErrAlive = errors.New("engine: still alive")
