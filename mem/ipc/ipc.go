//go:build linux

// Package ipc lets memory of one process be used in others on the same machine: an Exporter allocates blocks that can
// be shared and serves them over a Unix socket, an Importer opens them elsewhere by their tickets.
//
//	// one process                                 // another
//	e, err := ipc.NewExporter(dev, l, nil)         i, err := ipc.Dial(dev, path)
//	b, err := e.Alloc(s, size)                     b, err := i.Open(ticket)
//	send(e.Ticket(b))                              ... work on b.Ptr ...
//	...                                            i.Close(b, s)
//	e.Free(b, s)
//
// # What is shared
//
// Each block has its memory to itself, whole pages, so that nothing lies beside it that was not asked for. A Ticket is
// 16 random bytes: who does not know it cannot open the block. The socket answers only processes of the exporter's own
// user, by the credentials that the kernel vouches for (SO_PEERCRED), and of them those that Options.Allow allows.
//
// Where the device's pages can be exported, a page's file descriptor is sent over the socket (SCM_RIGHTS); where they
// cannot, or with Options.Handles, a handle of driver.Sharing.Export, which any process of the same user could open that
// learns it, is sent to those that ask with a ticket.
//
// # Counts and deaths
//
// The exporter counts the users of each block: the Importers that have it open, each as often as it opened it. Users
// tells how many, and Wait waits for none: then the memory may be written anew. A connection that ends, because its
// process closed it or died, takes its users with it. The importers' word is taken for what they close: processes of one
// user can do each other worse. Free makes the ticket void. Pages live on in the importers that
// still have them; memory of handles is given back once the last user has left. If the exporter dies, importers learn it
// by Lost; blocks of pages stay what they are, blocks of handles too on devices that keep such memory (the host does;
// CUDA promises nothing), so that nobody should rely on their contents.
//
// The one order that crosses processes is the caller's: work that writes a block must be done (Stream.Sync, or a mark
// that is reached) before another process is told that it may read.
//
// # Wire
//
// One request, one answer, each a message of a socket that keeps messages apart (SOCK_SEQPACKET), at most 512 bytes, with
// at most one descriptor: wire.go. Neither side trusts the other's figures: sizes are checked against the file.
//
// # Locks
//
// Exporter.mu guards the tables and the users, Importer.mu its table; devices are called without either. Each connection
// has a goroutine at either end. Importer.asking is held from a request to its answer, and taken first.
package ipc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// A Ticket names a block of an Exporter and is the right to open it. The zero Ticket is the empty block's.
type Ticket [16]byte

// String is the ticket in hexadecimal digits, which ParseTicket reads.
func (t Ticket) String() string { return hex.EncodeToString(t[:]) }

// ParseTicket reads what Ticket.String wrote.
func ParseTicket(text string) (Ticket, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(Ticket{}) {
		return Ticket{}, fmt.Errorf("mem/ipc: %q is no ticket: want %d hexadecimal digits", text, 2*len(Ticket{}))
	}
	return Ticket(b), nil
}

// Options are what an Exporter may be told. The zero value is right for most.
type Options struct {
	// Allow decides about a process of the same user that connects. It may be called by several goroutines at once, and
	// Close waits for it. Nil allows all of them.
	Allow func(Peer) bool
	// Handles shares handles of whole allocations, although the device's pages could be exported.
	Handles bool
	// Rand is where tickets come from, read by several goroutines at once if Alloc is called by them; nil is crypto/rand.
	Rand io.Reader
}

// A Peer is the process at the other end of a connection, as the kernel tells.
type Peer struct {
	PID int // when it connected
	UID int
	GID int
}

// ErrTicket is matched by the error of a ticket that names no block: it was never given out, or the block is freed.
var ErrTicket = errors.New("no block has this ticket")

// ErrRefused is matched by the error of a connection that the exporter refused, or that is not to an exporter of the
// same device.
var ErrRefused = errors.New("refused by the exporter")

// ErrGone is matched by the error of a call that needs an exporter that has closed or died, or that had no descriptors
// left to take a connection.
var ErrGone = errors.New("the exporter is gone")
