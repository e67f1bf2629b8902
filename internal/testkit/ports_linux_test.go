package testkit

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// A port that a test chose cannot go to another program before the test listens there, and the test can listen there as
// often as it likes.
func TestDefect27_PortsStayReserved(t *testing.T) {
	const n = 8
	first := Ports(t, n)
	// As the system chooses a port for a program: without SO_REUSEADDR, which net.Listen sets for ports by number.
	plain := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if failed := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}); failed != nil {
			return failed
		}
		return err
	}}
	for port := first; port < first+n; port++ {
		for _, host := range []string{"127.0.0.1", "localhost", ""} {
			address := net.JoinHostPort(host, strconv.Itoa(port))
			if l, err := plain.Listen(context.Background(), "tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another program listens on %s: %v", address, err)
				if err == nil {
					l.Close()
				}
			}
			if c, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("another process listens on %s: %v", address, err)
				if err == nil {
					c.Close()
				}
			}
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Errorf("the test cannot listen on %s: %v", address, err)
				continue
			}
			l.Close()
		}
	}
}
