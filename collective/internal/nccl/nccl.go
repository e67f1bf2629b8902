// Package nccl is NVIDIA's NCCL, found at run time, as a comm.Transport: collectives between GPUs without cgo.
//
// Structure. A library is a table of addresses, one for each function of symbols, looked up when it is opened. A
// transport is one communicator of NCCL, which is one rank on one GPU, with a stream of its own for the calls that
// queue nothing (init, finalize, destroy, abort): they need the device current on the thread and must never wait for
// queued work that hangs.
//
// Communicators are non-blocking (NCCL 2.14): each call returns, perhaps with "in progress", and then NCCL takes no
// other call of this communicator but the question for its state. So the caller asks until the call is done, for a
// moment without pause and then with a ticker, and a rank that never comes ends as a context or an Abort does, not as a
// hang.
//
// A group of Queue is issued in one driver.Kernel.Call, between ncclGroupStart and ncclGroupEnd, which keep their state
// in the thread. NCCL hands it to the stream later, from a thread of its own, and Queue waits for that with nothing
// locked. Then it queues a call that does nothing: marks that others took before that do not count for what came after
// them. Handing over takes some 70 us, but for the first time that ranks work together in some way (an algorithm of
// NCCL's, a pair that sends): NCCL connects them then, and that takes both. So ranks of one process are driven by a
// goroutine each, and Queue returns without waiting for other ranks only once they are connected. Abort ends that wait
// too.
//
// States of a transport: open; closing, from Close until NCCL has finalized; over, from Abort or the end of Close, with
// the reason. NCCL's handle is taken out of the transport when it becomes over, so it is given up exactly once, and no
// call gets a handle that was given up.
//
// Locks. transport.mu is held over each call that names the communicator, none of which waits, and is taken after a
// stream's order (inside Kernel.Call) or alone. ncclCommAbort and ncclCommDestroy wait, and are called without it, when
// the handle is out of everybody's reach.
//
// This package aborts only if it is told to, except that New aborts a communicator that it could not finish. NCCL does
// not notice a peer that is gone while GPUs of one host talk directly, so package collective, which hears of ranks that
// die, calls Abort. Until then streams, and Close, wait.
//
// It sets nothing of NCCL's environment. It does not choose algorithms, register memory, split communicators, or
// capture (a capture of a stream works as far as NCCL's non-blocking communicators do, which no test here shows).
package nccl

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
)

// ErrAbsent is matched by the errors of programs and machines without NCCL.
var ErrAbsent = errors.New("no NCCL")

// Options say where NCCL is.
type Options struct {
	// Libraries are names or paths of NCCL to try before the usual ones: that of the nvidia-nccl package of Python,
	// say.
	Libraries []string
}

// An ID names a communicator that is to be made. One rank makes it, and tells the others.
type ID = [128]byte

// Find reports which NCCL is used, by the name or path that opened it, and its version ("2.28.9"). The error matches
// ErrAbsent and lists what was tried, or driver.ErrUnsupported if NCCL is older than 2.14, the first with non-blocking
// communicators that can be finalized.
func Find(o Options) (name, version string, err error) {
	l, err := open(o)
	if err != nil {
		return "", "", err
	}
	return l.name, versionText(l.version), nil
}

// NewID makes an ID. NCCL then listens on a port of this process until the ranks have met. The error is one of Find's,
// or an *Error: NCCL found no network interface, say.
func NewID(o Options) (ID, error) {
	l, err := open(o)
	if err != nil {
		return ID{}, err
	}
	return l.newID()
}

// New makes rank's transport of the communicator that id names, on a GPU that no other rank has. It returns when all of
// the size ranks have called it, or when ctx ends: then the error wraps ctx's cause. Other errors are those of Find, an
// *Error, or the device's; they match driver.ErrUnsupported if the device is not a GPU of NVIDIA's. Once any rank has
// failed, the others wait until their contexts end.
//
// The transport must be closed, or aborted, before the device is. Ranks of one process are closed before any of their
// devices is: the last one to close gives back what all of them had.
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

// An Error is a call of NCCL that failed, or that was under way when NCCL found something wrong.
type Error struct {
	Call string // "ncclAllReduce"
	Code int    // an ncclResult_t
	Text string // what NCCL says of the code
	Last string // the last thing that NCCL found wrong in this process, which need not be of this call; may be empty
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

// versionText is ncclGetVersion's number as people write it: thousands of the major number until 2.8, ten thousands
// since.
func versionText(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}
