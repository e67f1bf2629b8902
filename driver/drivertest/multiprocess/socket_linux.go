package multiprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketFile is the descriptor that the other process has the socket as.
const socketFile = 3

// maxMessage bounds a message: one packet of the socket.
const maxMessage = 32 << 10

// socketPair returns both ends of a socket that keeps messages apart and passes descriptors: one to use, one to hand to
// the other process.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}

// send sends v, and f unless it is nil.
func send(conn *net.UnixConn, v any, f *os.File) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receive reads what send sent. The file is nil, or the caller's to close.
func receive(conn *net.UnixConn, v any) (*os.File, error) {
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	var f *os.File
	messages, err := unix.ParseSocketControlMessage(rights[:oobn])
	for _, m := range messages {
		fds, e := unix.ParseUnixRights(&m)
		err = errors.Join(err, e)
		for _, fd := range fds {
			f = os.NewFile(uintptr(fd), "received")
		}
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("a message of more than %d bytes", maxMessage)
	}
	return f, errors.Join(err, json.Unmarshal(text[:n], v))
}
