// Package nccl makes a comm.Transport of NVIDIA's NCCL, which it loads at run time: collectives between GPUs without
// cgo.
//
// Structure. A library is a table of addresses, one for each function of symbols, looked up when it is opened. A
// transport is one communicator of NCCL, which is one rank on one GPU, with a stream of its own for the calls that
// queue nothing (init, finalize, destroy, abort): they need the device current on the thread and must never wait for
// queued work that hangs.
//
// Communicators are non-blocking (NCCL 2.14): a call may return "in progress", and then NCCL accepts no other call of
// this communicator except the query of its state. So the caller polls until the call is done, first without pause and
// then with a ticker. A wait for a rank that never joins ends with a context or Abort and does not hang.
//
// A group of Queue is issued in one driver.Kernel.Call, between ncclGroupStart and ncclGroupEnd, which keep their state
// in the thread. NCCL queues it on the stream later, from a thread of its own, and Queue waits for that without locks.
// Then Queue queues an empty call, because marks that were taken in the meantime do not cover the group. NCCL needs
// some 70 us to queue a group. It needs longer the first time that ranks use an algorithm or a pair of ranks sends:
// then NCCL connects the ranks, and all of them must take part. So ranks of one process need a goroutine each, and
// Queue returns without waiting for other ranks only once they are connected. Abort ends that wait, too.
//
// States of a transport: open; closing, from Close until NCCL has finalized; over, from Abort or the end of Close, with
// the reason. The transition to over takes NCCL's handle out of the transport, so it is destroyed exactly once, and no
// call uses a destroyed handle.
//
// Locks. transport.mu is held during each call with the communicator; none of these waits. It is taken after a stream's
// lock (inside Kernel.Call) or alone. ncclCommAbort and ncclCommDestroy wait, and are called without the lock, after
// the handle was taken out of the transport.
//
// This package aborts only when Abort is called, except that New aborts a communicator that it could not complete. NCCL
// does not detect a lost peer while GPUs of one host communicate directly. So package collective, which detects lost
// ranks, calls Abort. Until then streams and Close wait.
//
// The package sets none of NCCL's environment variables. It does not choose algorithms, register memory, or split
// communicators. Captures of streams are not tested; they work as far as NCCL's non-blocking communicators support
// them.
package nccl

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
)

// ErrAbsent is matched by the error if NCCL is not found or the program cannot load it.
var ErrAbsent = errors.New("no NCCL")

// Options select the NCCL library.
type Options struct {
	// Libraries are names or paths of NCCL to try before the default ones, such as that of Python's nvidia-nccl
	// package.
	Libraries []string
}

// An ID names a communicator. One rank makes it and sends it to the others.
type ID = [128]byte

// Find returns the name or path of the NCCL library that is used, and its version ("2.28.9"). The error matches
// ErrAbsent and lists the tried names, or matches driver.ErrUnsupported if NCCL is older than 2.14, the first version
// with non-blocking communicators that can be finalized.
func Find(o Options) (name, version string, err error) {
	l, err := open(o)
	if err != nil {
		return "", "", err
	}
	return l.name, versionText(l.version), nil
}

// NewID makes an ID. NCCL then listens on a port of this process until the ranks have connected. The error is one of
// Find, or an *Error, for example if NCCL found no network interface.
func NewID(o Options) (ID, error) {
	l, err := open(o)
	if err != nil {
		return ID{}, err
	}
	return l.newID()
}

// New makes the transport of a rank in the communicator id, on a GPU that no other rank uses. It returns when all size
// ranks have called it, or when ctx ends; then the error wraps ctx's cause. Other errors are those of Find, an *Error,
// or those of the device; they match driver.ErrUnsupported if the device is not an NVIDIA GPU. If a rank fails, the
// others wait until their contexts end.
//
// The transport must be closed or aborted before the device is closed. All ranks of one process must be closed before
// any of their devices, because the last one to close frees the memory of all.
func New(ctx context.Context, dev driver.Device, o Options, id ID, rank, size int) (comm.Transport, error) {
	l, err := open(o)
	if err != nil {
		return nil, err
	}
	t, err := l.connect(ctx, dev, id, rank, size)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// An Error reports a call of NCCL that failed, or that was in progress when NCCL detected an error.
type Error struct {
	Call string // "ncclAllReduce"
	Code int    // an ncclResult_t
	Text string // NCCL's text for the code
	Last string // NCCL's last error message in this process, which may be of another call; may be empty
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
	if e.Last != "" {
		text += ": " + e.Last
	}
	return text
}

// aborted is the error of a transport after Abort.
type aborted struct{ cause error }

func (e *aborted) Error() string { return fmt.Sprintf("nccl: aborted: %v", e.cause) }

func (e *aborted) Unwrap() error { return e.cause }

var errClosed error = &driver.Error{Call: "nccl", Code: driver.ErrClosed, Detail: "the transport"}

// versionText formats the number of ncclGetVersion. The major number counts thousands up to 2.8 and ten thousands
// since.
func versionText(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}
