// Package rendezvous connects ranks, and tells them when one of them is lost. It knows their numbers, names and
// connections, and nothing about the work they do together.
//
// # Structure
//
// The connections form a star. Rank 0 listens at its address, and the others join there (join.go). Each connection
// stays open (conn.go) and carries messages (wire.go), at least one in every quarter of the time that a rank may be
// silent. A meeting (meet.go, meeting.go) is rank 0's list of the ranks that joined. When all have, it sends them the
// list, and a hub (hub.go) takes over: it counts barriers and departures, and decides which rank is lost. A Member
// (member.go) is one rank's view of that. The hub sends it messages over a connection, or by a call for rank 0 and for
// ranks of one process (NewLocal). Then ranks may connect to each other directly (links.go).
//
// # States of a rank
//
//	joins -> accepted -> begun -> closing -> leaving -> left      Leave returned nil
//	   \---------\----------\---------\--------\-----> lost      Err says why, Lost is closed
//
// A closing rank still waits for work in which others take part; a leaving rank does not need them any more. So if
// leaving takes too long, the lost rank is one that is not even closing (Member.Overdue).
//
// # Invariants
//
// The hub decides once, and every member gets its decision: each rank names the same lost rank. The exceptions are a
// rank that failed by itself, which keeps its own error, and a rank that cannot reach the hub, which names rank 0. A
// barrier is released when every rank has reached it.
//
// # Trust
//
// Both ends of every connection prove that they have the run's key (package auth), before either sends or keeps
// anything else. A connection that has not is a stranger: strangers are few, have little time, and cannot delay ranks
// (strangers.go). Links have a key that is made anew for each meeting, so a rank of an earlier one cannot join them.
// Ranks are trusted little: lengths are bounded before memory is allocated, numbers are checked before they index, and
// texts are printable before they reach an error.
//
// A rank listens at one address: rank 0 at Options.Host, the others at the address that connects them to rank 0.
//
// # Locks
//
// meeting.mu, then hub.mu, then Member.mu or conn.mu. None is held while a connection is written to or read from.
package rendezvous

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// Limits of a run.
const (
	MaxSize = 1 << 16 // ranks

	// handshakeTimeout is the time limit for a new connection to prove and identify itself, or for rank 0 to answer.
	// Only the network delays this.
	handshakeTimeout = 5 * time.Second
)

// Options describe a rank and its meeting.
type Options struct {
	Rank, Size int
	Host       string        // of rank 0, as the others know it
	Port       int           // the first port to try
	Ports      int           // number of ports to try; at least 1
	Listen     string        // the address to listen at; empty: see Trust
	Key        *auth.Key     // of the run
	Limit      time.Duration // of silence; that of rank 0 counts
	Me         Peer          // sent to the others; Rank, IP and Port are filled in

	// Decide is called on rank 0 when all ranks have joined. Its result is Member.Shared on every rank; its error ends
	// the meeting.
	Decide func([]Peer) ([]byte, error)
}

// A Peer holds the properties of a rank that the others receive.
type Peer struct {
	Rank    int
	Host    string // the name of its machine
	Driver  string // of its device
	Device  string // the driver's name of it
	UUID    string // of the device; empty if it has none
	Backend string // the configured backend
	Library string // the version of its library for the backend; empty if missing: Lacks has the reason
	Lacks   string

	IP   string // its address for links, as seen by rank 0; empty if it is on rank 0's machine
	Port int
}

// A MeetError reports why the ranks did not meet.
type MeetError struct {
	Address string
	Missing []int
	Refused []string
	Err     error
}

func (e *MeetError) Error() string {
	return fmt.Sprintf("meeting at %s: %v (missing %v; refused: %s)", e.Address, e.Err, e.Missing,
		strings.Join(e.Refused, "; "))
}

func (e *MeetError) Unwrap() error { return e.Err }

// A LostError names the lost rank.
type LostError struct {
	Rank int
	Host string
	Code string // the code that the rank itself passed to Fail
	Err  error
}

func (e *LostError) Error() string { return fmt.Sprintf("rank %d on %s: %v", e.Rank, e.Host, e.Err) }

func (e *LostError) Unwrap() error { return e.Err }
