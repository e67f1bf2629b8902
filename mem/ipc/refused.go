//go:build linux

package ipc

import (
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// maxRefused is the number of refused connections that a server keeps.
const maxRefused = 64

// refusedConns are connections that get the reason why they are refused as the answer to their first request: a message
// sent unasked is lost if the socket closes. One more ends the oldest, so those that ask nothing are few.
type refusedConns struct {
	mu    sync.Mutex
	conns []*net.UnixConn // oldest first
}

func (r *refusedConns) add(c *net.UnixConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) >= maxRefused {
		r.conns[0].Close()
		r.conns = r.conns[1:]
	}
	r.conns = append(r.conns, c)
}

func (r *refusedConns) remove(c *net.UnixConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.conns, c); i >= 0 {
		r.conns = slices.Delete(r.conns, i, i+1)
	}
}

// effectiveUser returns the user of this process: only its processes are served, and only its servers are trusted.
func effectiveUser() int { return os.Geteuid() + int(otherUser.Load()) }

var otherUser atomic.Int32 // set by tests

// checkUser returns the process at the other end of a connection to this server, and the reason why the server refuses
// it: it belongs to another user, or to an unknown one. The reason is "" for a process of this user.
func checkUser(c *net.UnixConn) (Peer, string) {
	peer, err := peerOf(c)
	switch {
	case err != nil:
		return peer, "its credentials are unknown: " + err.Error()
	case peer.UID != effectiveUser():
		return peer, "it is another user's process"
	}
	return peer, ""
}
