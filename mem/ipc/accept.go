//go:build linux

package ipc

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// An acceptor accepts connections. When the process has no descriptors left, it closes a spare one to accept the next
// connection, and closes that connection at once: the importer gets ErrGone instead of waiting forever.
type acceptor struct {
	listener *net.UnixListener
	spare    *os.File
}

func newAcceptor(l *net.UnixListener) *acceptor {
	a := &acceptor{listener: l}
	a.getSpare()
	return a
}

func (a *acceptor) getSpare() { a.spare, _ = os.Open(os.DevNull) }

func (a *acceptor) close() { a.spare.Close() }

// accept returns the next connection. The error is that of the listener, or the lack of even a spare descriptor.
func (a *acceptor) accept() (*net.UnixConn, error) {
	for {
		if a.spare == nil {
			a.getSpare()
		}
		conn, err := a.listener.AcceptUnix()
		if a.spare != nil && (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
			a.spare.Close()
			conn, err = a.listener.AcceptUnix()
			if a.getSpare(); err == nil && a.spare == nil { // not enough for both
				conn.Close()
				continue
			}
		}
		return conn, err
	}
}
