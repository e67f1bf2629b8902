//go:build linux

// Package ipc shares memory of one process with others on the same machine. An [Exporter] allocates blocks and serves
// them over a Unix socket; an [Importer] in another process opens them by their tickets.
//
//	// one process                                 // another
//	e, err := ipc.NewExporter(dev, l, nil)         i, err := ipc.Dial(ctx, dev, path)
//	b, err := e.Alloc(s, size)                     b, err := i.Open(ctx, ticket)
//	send(e.Ticket(b))                              ... work on b.Ptr ...
//	...                                            i.Close(b, s)
//	e.Free(b, s)
//
// Each block occupies whole pages of its own. A [Ticket] is 16 random bytes and the right to open one block. The socket
// answers only processes of the exporter's user, by the credentials that the kernel attests (SO_PEERCRED), and of those
// the ones that Options.Allow permits.
//
// The exporter counts the users of each block: every Importer that has it open, as often as it opened it.
// [Exporter.Users] returns the count, and [Exporter.Wait] waits until it is zero. A connection that ends, because its
// process closed it or died, releases its users. Free makes the ticket void; importers keep their pages, and memory
// shared by handle is returned to the device when its last user has left. If the exporter dies, [Importer.Lost] is
// closed. Importers then keep the contents of pages. Contents of memory shared by handle depend on the device: the host
// keeps them, CUDA makes no promise.
//
// Ordering between processes is the caller's task: work that writes a block must be done (Stream.Sync, or a reached
// mark) before another process is told to read it. All types are safe for concurrent use. Package ipc needs Linux.
package ipc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Design:
//
// Where the device's pages can be exported, a page's file descriptor goes over the socket (SCM_RIGHTS). Elsewhere, or
// with Options.Handles, the answer to a ticket holds a handle of driver.Sharing.Export, which any process of the same
// user could open if it learned the handle.
//
// The exporter trusts an importer that closes a block: processes of one user have other means to harm each other.
//
// Wire: one request, one answer, each a message of a socket that preserves message boundaries (SOCK_SEQPACKET), of at
// most 512 bytes, with at most one descriptor; see wire.go. Neither side trusts the sizes that the other sends: it
// checks them against the file.
//
// Locks: Exporter.mu guards the tables and the users, Importer.mu its table; devices are called without either. Each
// connection has a goroutine at either end. Importer.asking is taken before Importer.mu, and held from a request to its
// answer. If the context of a call ends first, a goroutine takes over: it receives the answer and undoes the request.

// A Ticket names a block of an Exporter and is the right to open it. The zero Ticket names the empty block.
type Ticket [16]byte

// String returns the ticket in hexadecimal digits, for ParseTicket.
func (t Ticket) String() string { return hex.EncodeToString(t[:]) }

// ParseTicket parses the result of Ticket.String.
func ParseTicket(text string) (Ticket, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(Ticket{}) {
		return Ticket{}, fmt.Errorf("mem/ipc: %q is not a ticket: want %d hexadecimal digits", text, 2*len(Ticket{}))
	}
	return Ticket(b), nil
}

// Options configure an Exporter. The zero value suits most programs.
type Options struct {
	// Allow decides whether to serve a process of the same user. Several goroutines may call it at once, and Close
	// waits for it. Nil allows every process of the user.
	Allow func(Peer) bool
	// Handles shares handles of whole allocations even where the device can export pages.
	Handles bool
	// Wipe zeroes each block before it has a ticket. Its memory is new from the device, which may return memory that
	// this process freed before, with its contents. Alloc then waits for the device.
	Wipe bool
	// Rand is the source of tickets; concurrent calls of Alloc read it concurrently. Nil means crypto/rand.
	Rand io.Reader
}

// A Peer is the process at the other end of a connection, as the kernel reports it.
type Peer struct {
	PID int // when it connected
	UID int
	GID int
}

// ErrTicket is matched by the error for a ticket that names no live block.
var ErrTicket = errors.New("no block has this ticket")

// ErrRefused is matched by the error of a connection that the exporter refused, or that is not to an exporter of the
// same device.
var ErrRefused = errors.New("refused by the exporter")

// ErrGone is matched by the error of a call whose exporter has closed or died, or had no descriptors left for a
// connection.
var ErrGone = errors.New("the exporter is gone")
