// Package rendezvous is how ranks find each other, and how they learn that one of them is gone. It knows numbers, names
// and connections; what the ranks do together is its caller's affair.
//
// # Structure
//
// The ranks make a star. Rank 0 listens at the meeting point, the others come there (come.go), and each connection
// stays for as long as the ranks belong together (conn.go): it carries messages (wire.go), one at least in every
// quarter of the time that a rank may be silent. A meeting (meet.go, meeting.go) is rank 0's list of who has come; when
// all have, it tells them about each other, and a hub (hub.go) takes over: it counts barriers and departures, and
// decides who is lost. A Member (member.go) is what one rank knows of that; the hub tells it, over a connection or, of
// rank 0 itself and of ranks in one process (NewLocal), by a call. The ranks then may connect to one another directly
// (links.go).
//
// # States of a rank
//
//	comes -> accepted -> begun -> closing -> leaving -> left      Leave returned nil
//	   \---------\----------\---------\--------\-----> lost      Err says why, Lost is closed
//
// A rank that closes still waits for work that the others have a part in; one that leaves needs them no more. So if
// leaving takes too long it is a rank that does not even close whom the others wait for (Member.Overdue).
//
// # Invariants
//
// The hub decides once, and its first decision is that of every member: each rank names the same lost rank (but a rank
// that failed by itself keeps its own error, and one that cannot hear the hub names rank 0). A barrier is released when
// every rank has come to as many.
//
// # What is trusted
//
// Nothing that comes over a connection until it has proved the run's name and its size, and little afterwards: lengths
// are bounded before memory is taken, numbers are checked before they index, and a connection that is slow, silent or
// speaks another protocol is closed without delaying others. This does not protect against a process that knows the
// run's name: connections are in the clear.
//
// # Locks
//
// meeting.mu, then hub.mu, then Member.mu or conn.mu. None is held while a connection is written to or read from.
package rendezvous

import (
	"fmt"
	"strings"
	"time"
)

// Limits of what a run may be.
const (
	MaxSize = 1 << 16 // ranks
	MaxID   = 256     // bytes of a run's name

	// handshake is how long a stranger may take to say who he is, or rank 0 to answer: nothing but the network is
	// waited for.
	handshakeTimeout = 5 * time.Second

	// strangers is how many connections that have not said who they are rank 0 keeps, beside one for each rank.
	strangers = 64
)

// Options say who comes to which meeting.
type Options struct {
	Rank, Size int
	Host       string        // rank 0's, as the others know it
	Port       int           // the first that is tried
	Ports      int           // how many are tried; at least 1
	ID         string        // the run's name
	Limit      time.Duration // of silence; rank 0's counts
	Me         Peer          // what the others learn; Rank, IP and Port are filled in

	// Decide is called on rank 0 when all ranks have come. What it returns is Member.Shared on every rank; its error
	// ends the meeting.
	Decide func([]Peer) ([]byte, error)
}

// A Peer is what ranks learn of each other.
type Peer struct {
	Rank    int
	Host    string // the name of its machine
	Driver  string // of its device
	Device  string // as the driver names it
	UUID    string // of the device; empty if it has none
	Backend string // what it was told to use
	Library string // the version of the library that it has for that; empty if none, and Lacks says why
	Lacks   string

	IP   string // where it listens for links, as rank 0 sees it; empty if that is rank 0's own machine
	Port int
}

// A MeetError says why ranks did not meet.
type MeetError struct {
	Address string
	Missing []int
	Refused []string
	Err     error
}

func (e *MeetError) Error() string {
	return fmt.Sprintf("meeting at %s: %v (missing %v; refused: %s)", e.Address, e.Err, e.Missing, strings.Join(e.Refused, "; "))
}

func (e *MeetError) Unwrap() error { return e.Err }

// A LostError says which rank is lost.
type LostError struct {
	Rank int
	Host string
	Code string // what the rank itself gave to Fail
	Err  error
}

func (e *LostError) Error() string { return fmt.Sprintf("rank %d on %s: %v", e.Rank, e.Host, e.Err) }

func (e *LostError) Unwrap() error { return e.Err }
