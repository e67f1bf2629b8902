//go:build linux

package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/ashlar-go/ashlar/driver"
	"golang.org/x/sys/unix"
)

// ServePages sends descriptors of existing pages to processes of the same user, by the credentials that the kernel
// attests. A connection to l makes one request with a key and gets the pages that find returns for it. find authorizes
// keys; several goroutines may call it at once. The provider of find keeps ownership of the files; closing one while it
// is sent ends the connection. Unlike those of an Exporter's blocks, users of pages are not counted: a process that has
// received a page keeps it. A connection ends if it sends no request within 10 seconds, after an answer that says so,
// or reads none of the pages sent to it for as long.
//
// ServePages returns when the listener fails: because it was closed, or because not even a spare descriptor is left.
// The listener must preserve message boundaries: see Listen.
func ServePages(l *net.UnixListener, find func(key []byte) ([]driver.PageFile, error)) error {
	if l.Addr().Network() != network {
		return fmt.Errorf("mem/ipc: a listener of network %q: want %q", l.Addr().Network(), network)
	}
	refused, a := new(refusedConns), newAcceptor(l)
	defer a.close()
	for {
		conn, err := a.accept()
		if err != nil {
			return fmt.Errorf("mem/ipc: %w", err)
		}
		go servePages(conn, refused, find)
	}
}

func servePages(conn *net.UnixConn, refusals *refusedConns, find func(key []byte) ([]driver.PageFile, error)) {
	defer conn.Close()
	_, reason := checkUser(conn)
	if reason != "" {
		refusals.add(conn)
		defer refusals.remove(conn)
	}
	key, file, err := receiveFirst(conn)
	if file != nil {
		file.Close() // requests have no file
	}
	if err != nil || len(key) == 0 {
		return
	}
	if reason != "" {
		_ = send(conn, answer{status: refused, text: []byte(reason)}.encode(), nil)
		return
	}
	pages, err := find(key)
	if err != nil {
		_ = send(conn, answer{status: noBlock, text: []byte(err.Error())}.encode(), nil)
		return
	}
	for _, page := range pages {
		message := answer{status: accepted, form: asPage, size: page.Size}.encode()
		if sendOpen(conn, message, page.File) != nil {
			return
		}
	}
	_ = sendInTime(conn, answer{status: accepted, size: int64(len(pages))}.encode(), nil)
}

// sendOpen is sendInTime for a file that other code may close. It then returns an error and never sends another file.
func sendOpen(c *net.UnixConn, message []byte, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var unsent error
	err = raw.Control(func(fd uintptr) { unsent = sendInTime(c, message, unix.UnixRights(int(fd))) })
	return errors.Join(err, unsent)
}

// maxPages is the number of pages that FetchPages accepts: half a TiB of those of CUDA.
const maxPages = 1 << 18

// FetchPages fetches the pages of a key from the process that serves them at a path, whose first byte is @ if it is an
// abstract name. The caller closes the files. The error matches ErrTicket if there are no such pages, ErrRefused if the
// other process does not serve this one or is another user's, and ErrGone if it is gone or breaks off its answer. It is
// that of ctx if ctx ends before.
func FetchPages(ctx context.Context, path string, key []byte) (pages []driver.PageFile, err error) {
	conn, err := connect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("mem/ipc: %w: %w", ErrGone, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer func() {
		if err == nil {
			return
		}
		for _, page := range pages {
			page.File.Close()
		}
		pages = nil
		if ctx.Err() != nil { // then conn is closed, and any use of it fails
			err = fmt.Errorf("mem/ipc: fetch pages: %w", unanswered(ctx))
		}
	}()
	peer, err := peerOf(conn)
	if err != nil {
		return nil, fmt.Errorf("mem/ipc: credentials of the server of pages: %w", err)
	}
	if peer.UID != effectiveUser() {
		return nil, fmt.Errorf("mem/ipc: %w: the pages are served by another user, %d", ErrRefused, peer.UID)
	}
	if err := send(conn, key, nil); err != nil {
		return nil, fmt.Errorf("mem/ipc: %w: %w", ErrGone, err)
	}
	for {
		message, file, err := receive(conn)
		if broken := new(net.OpError); err == nil && len(message) == 0 || errors.As(err, &broken) {
			err = errors.Join(ErrGone, err)
		}
		var a answer
		if err == nil {
			a, err = decodeAnswer(message)
		}
		switch {
		case err != nil:
		case a.status == noBlock:
			err = fmt.Errorf("%w: %q", ErrTicket, a.text)
		case a.status != accepted:
			err = fmt.Errorf("%w: %q", ErrRefused, a.text)
		case (a.form == asPage) != (file != nil):
			err = errors.New("an answer whose form and descriptor disagree")
		case len(pages) == maxPages:
			err = fmt.Errorf("more than %d pages", maxPages)
		case a.form == asPage:
			pages = append(pages, driver.PageFile{Size: a.size, File: file})
			continue
		case a.size != int64(len(pages)):
			err = fmt.Errorf("received %d pages of %d", len(pages), a.size)
		default:
			return pages, nil
		}
		if file != nil {
			file.Close()
		}
		return pages, fmt.Errorf("mem/ipc: fetch pages: %w", err)
	}
}
