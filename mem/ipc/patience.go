//go:build linux

package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// defaultPatience is how long a server waits for the first request of a connection, and a server of pages for a peer
// that does not read its answers.
const defaultPatience = 10 * time.Second

var testPatience atomic.Int64 // set by tests; 0: defaultPatience

func patience() time.Duration {
	if d := testPatience.Load(); d != 0 {
		return time.Duration(d)
	}
	return defaultPatience
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
	limit := patience()
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
