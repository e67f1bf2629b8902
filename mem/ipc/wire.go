//go:build linux

package ipc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// network is the kind of Unix socket that preserves message boundaries.
const network = "unixpacket"

// Messages have fixed places for everything, in little-endian order:
//
//	request   magic 4, kind 1, zero 3, ticket 16
//	answer    magic 4, status 1, form 1, length 2, size 8, text of that length
//
// The first request of a connection is a handshake, and the text of its answer the device: driver, a zero byte, UUID.
// The text of an opened block is its handle; of a page, which comes as a descriptor, it is empty; of a refusal, the
// reason.
const (
	magic       = 0x3148_5341 // "ASH1"
	requestSize = 24
	answerSize  = 16
	maxText     = 400
	maxMessage  = 512
)

type kind uint8

const (
	helloRequest kind = iota + 1
	openBlock
	closeBlock
)

type status uint8

const (
	accepted status = iota + 1
	noBlock
	refused
	failed
)

// A form is the way in which the memory of a block is shared.
type form uint8

const (
	asPage form = iota + 1
	asHandle
)

type request struct {
	kind   kind
	ticket Ticket
}

type answer struct {
	status status
	form   form
	size   int64
	text   []byte
	file   *os.File // of a page
	lost   error    // why a page's descriptor did not arrive with the answer
}

func (r request) encode() []byte {
	b := make([]byte, requestSize)
	binary.LittleEndian.PutUint32(b, magic)
	b[4] = byte(r.kind)
	copy(b[8:], r.ticket[:])
	return b
}

func decodeRequest(b []byte) (request, error) {
	if len(b) != requestSize || binary.LittleEndian.Uint32(b) != magic || b[5]|b[6]|b[7] != 0 {
		return request{}, fmt.Errorf("%d bytes that are not a request", len(b))
	}
	r := request{kind: kind(b[4]), ticket: Ticket(b[8:])}
	if r.kind < helloRequest || r.kind > closeBlock {
		return request{}, fmt.Errorf("a request of unknown kind %d", r.kind)
	}
	return r, nil
}

func (a answer) encode() []byte {
	text := a.text[:min(len(a.text), maxText)]
	b := make([]byte, answerSize, answerSize+len(text))
	binary.LittleEndian.PutUint32(b, magic)
	b[4], b[5] = byte(a.status), byte(a.form)
	binary.LittleEndian.PutUint16(b[6:], uint16(len(text)))
	binary.LittleEndian.PutUint64(b[8:], uint64(a.size))
	return append(b, text...)
}

func decodeAnswer(b []byte) (answer, error) {
	if len(b) < answerSize || binary.LittleEndian.Uint32(b) != magic ||
		int(binary.LittleEndian.Uint16(b[6:])) != len(b)-answerSize {
		return answer{}, fmt.Errorf("%d bytes that are not an answer", len(b))
	}
	a := answer{
		status: status(b[4]), form: form(b[5]), size: int64(binary.LittleEndian.Uint64(b[8:])), text: b[answerSize:],
	}
	if a.status < accepted || a.status > failed || a.form > asHandle || a.size < 0 {
		return answer{}, fmt.Errorf("an answer with status %d, form %d and size %d", a.status, a.form, a.size)
	}
	return a, nil
}

// send writes one message, with a descriptor if there is a file.
func send(c *net.UnixConn, message []byte, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	n, _, err := c.WriteMsgUnix(message, rights, nil)
	if err == nil && n != len(message) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(message))
	}
	return err
}

// errDescriptors is matched by the error of a message whose descriptors did not all arrive, or are more than one.
var errDescriptors = errors.New("wrong descriptors")

// receive reads one message with its descriptor, if any. A truncated message is an error, as is the end of the
// connection. A message with wrong descriptors is returned with an error that matches errDescriptors. With an error no
// descriptor stays open. Package net makes descriptors close-on-exec.
func receive(c *net.UnixConn) ([]byte, *os.File, error) { return receiveBy(c.ReadMsgUnix, c) }

// receiveBy is receive with the method ReadMsgUnix of c.
func receiveBy(
	read func(b, rights []byte) (n, nr, flags int, from *net.UnixAddr, err error), c *net.UnixConn,
) ([]byte, *os.File, error) {
	b := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4*4)) // space for several, so that excess descriptors are detected and closed
	n, nr, flags, _, err := read(b, rights)
	if errors.Is(err, io.EOF) && nr == 0 && hasMessage(c) {
		n, nr, flags, _, err = read(b, rights)
	}
	// Check the descriptors even after an error: an empty message, which looks like the end, may have some.
	files, bad := descriptors(rights[:nr])
	switch {
	case err != nil:
		n = 0 // n may be -1
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("a message was too long")
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: not all arrived: too many open files here, or too many in one message", errDescriptors)
	case bad != nil:
		err = fmt.Errorf("%w: %w", errDescriptors, bad)
	case len(files) > 1:
		err = fmt.Errorf("%w: a message had %d", errDescriptors, len(files))
	case len(files) == 1:
		return b[:n], files[0], nil
	}
	for _, f := range files {
		f.Close()
	}
	return b[:n], nil, err
}

// hasMessage reports whether a connection that seems to be at its end has another message. Linux looks for a message
// first and for the end after that (net/unix/af_unix.c, __unix_dgram_recvmsg), so it reports the end before the last
// message if the peer sends and closes in between.
func hasMessage(c *net.UnixConn) (yes bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails only if c is closed
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		yes = err == nil && n > 0
	})
	return yes
}

func descriptors(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		fds, badRights := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, badRights)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "shared page"))
		}
	}
	return files, err
}

// peerOf returns the process at the other end.
func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		cred, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if failure != nil {
		return Peer{}, failure
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}, nil
}
