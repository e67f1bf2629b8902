//go:build linux

package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// defaultTimeout is how long a server waits for the first request of a connection, and a server of pages for a client
// to read an answer.
const defaultTimeout = 10 * time.Second

var testTimeout atomic.Pointer[func() time.Duration] // set by tests; nil: defaultTimeout

func timeout() time.Duration {
	if f := testTimeout.Load(); f != nil {
		return (*f)()
	}
	return defaultTimeout
}

// limited calls f, in which calls on c that wait after the limit fail with os.ErrDeadlineExceeded. Later calls wait as
// long as they need.
func limited(c *net.UnixConn, limit time.Duration, f func() error) error {
	_ = c.SetDeadline(time.Now().Add(limit)) // fails only if c is closed, as f does then
	err := f()
	_ = c.SetDeadline(time.Time{})
	return err
}

// receiveFirst receives the first request of a connection. A peer that sends none in time is told so, and the error
// matches os.ErrDeadlineExceeded.
func receiveFirst(c *net.UnixConn) (message []byte, file *os.File, err error) {
	limit := timeout()
	err = limited(c, limit, func() (err error) {
		message, file, err = receive(c)
		return err
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason := fmt.Appendf(nil, "it sent no request within %v", limit)
		_ = send(c, answer{status: refused, text: reason}.encode(), nil)
	}
	return message, file, err
}

// sendInTime sends a message to a client that reads. It fails with os.ErrDeadlineExceeded if there is no room for the
// message and the client reads nothing until its time is over.
//
// A sender that waits is woken when three quarters of the socket's buffer are free: some 200 pages later. So it looks
// once more at the end, when one page that was read has made room.
func sendInTime(c *net.UnixConn, message, rights []byte) error {
	err := limited(c, timeout(), func() error {
		_, _, err := c.WriteMsgUnix(message, rights, nil)
		return err
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	raw, failed := c.SyscallConn()
	if failed != nil {
		return failed
	}
	var unsent error
	failed = raw.Write(func(fd uintptr) bool {
		unsent = unix.Sendmsg(int(fd), message, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	if errors.Is(unsent, unix.EAGAIN) {
		return err
	}
	return errors.Join(failed, unsent)
}
