//go:build linux

package ipc

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// socketPair returns the two ends of a connection of the kind that the package uses.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// earlyEnd returns a method ReadMsgUnix of c that reports the end at first. So does Linux if the peer sends its last
// message and closes the connection during the call: in 33 of 300,000 tries on Linux 6.18.
func earlyEnd(c *net.UnixConn) func(b, rights []byte) (n, nr, flags int, from *net.UnixAddr, err error) {
	first := true
	return func(b, rights []byte) (n, nr, flags int, from *net.UnixAddr, err error) {
		if first {
			first = false
			return 0, 0, 0, nil, io.EOF
		}
		return c.ReadMsgUnix(b, rights)
	}
}

// The last message before the end is received, also if Linux reports the end first. A refusal with its reason is such
// a message.
func TestTheLastMessageIsReceived(t *testing.T) {
	a, b := socketPair(t)
	if err := errors.Join(send(b, []byte("refused"), nil), b.Close()); err != nil {
		t.Fatal(err)
	}
	message, _, err := receiveBy(earlyEnd(a), a)
	if string(message) != "refused" || err != nil {
		t.Errorf("received %q, %v", message, err)
	}
	if message, _, err := receive(a); len(message) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("received %q, %v after the last message", message, err)
	}
}

// An empty message looks like the end, and receive does not wait for another one.
func TestAnEmptyMessageIsTheEnd(t *testing.T) {
	a, b := socketPair(t)
	for range 2 {
		if err := send(b, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		message, _, err := receive(a)
		testkit.Equal(t, "message", string(message), "")
		if !errors.Is(err, io.EOF) {
			t.Errorf("received an empty message: %v", err)
		}
	}
}
