//go:build linux

package ipc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
	"golang.org/x/sys/unix"
)

// The other end of a socket is another program: it may be wrong, or mean harm.

// raw connects without an Importer.
func raw(t testing.TB, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const (
	greets = iota + 1
	opens
	closes
)

// requestOf encodes a request as wire.go specifies.
func requestOf(kind byte, ticket ipc.Ticket) []byte {
	return append([]byte{'A', 'S', 'H', '1', kind, 0, 0, 0}, ticket[:]...)
}

// answerOf encodes an answer as wire.go specifies.
func answerOf(status, form byte, size int64, text string) []byte {
	b := append([]byte{'A', 'S', 'H', '1', status, form}, byte(len(text)), byte(len(text)>>8))
	return append(binary.LittleEndian.AppendUint64(b, uint64(size)), text...)
}

// sendWith sends a message with n descriptors, also one of no bytes, to which packages net and unix add a byte.
func sendWith(t testing.TB, c *net.UnixConn, message []byte, n int) {
	t.Helper()
	fds := make([]int, n)
	for i := range fds {
		var err error
		if fds[i], err = unix.MemfdCreate("unwanted", unix.MFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[i])
	}
	conn, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	rights := unix.UnixRights(fds...)
	var part unix.Iovec
	m := unix.Msghdr{Iov: &part, Iovlen: 1, Control: &rights[0]}
	if len(message) > 0 {
		part.Base = &message[0]
	}
	part.SetLen(len(message))
	m.SetControllen(len(rights))
	var failed unix.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, failed = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&m)), 0)
	}); err != nil {
		t.Fatal(err)
	}
	if failed != 0 {
		t.Fatal(failed)
	}
}

// unwanted counts the descriptors of sendWith that are still open.
func unwanted() (n int) {
	for _, f := range openFiles() {
		if strings.Contains(f, "unwanted") {
			n++
		}
	}
	return n
}

// ended waits until the exporter has ended a connection.
func ended(c *net.UnixConn) {
	for {
		if n, err := c.Read(make([]byte, 1024)); n == 0 || err != nil {
			return
		}
	}
}

// Descriptors that come unasked are closed, however they come; with a message of no bytes they were once left open.
func TestUnrequestedDescriptors(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	for _, message := range [][]byte{nil, requestOf(greets, ipc.Ticket{}), []byte("no request"), make([]byte, 2000)} {
		for _, n := range []int{1, 2, 4, 9} {
			c := raw(t, path)
			sendWith(t, c, message, n)
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			ended(c)
		}
	}
	if err := e.Close(); err != nil { // waits for all that served
		t.Fatal(err)
	}
	if n := unwanted(); n != 0 {
		t.Errorf("%d descriptors are open that others sent", n)
	}
}

// An importer that opens a block as often as it can and never reads its answers does not delay other importers.
func TestAnImporterThatNeverReads(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := raw(t, path)
	conn, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := false
	for n := 0; n < 100_000 && !full; n++ {
		if err := conn.Write(func(fd uintptr) bool {
			full = unix.Send(int(fd), requestOf(opens, e.Ticket(b)), unix.MSG_DONTWAIT) != nil
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !full {
		t.Error("100000 requests were taken without an answer being read")
	}
	i := dial(t, d, path)
	own, err := i.Open(context.Background(), e.Ticket(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(own); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := e.Wait(t.Context(), b); err != nil || e.Users(b) != 0 {
		t.Errorf("%d users after its end: %v", e.Users(b), err)
	}
	e.Free(b)
}

// The counts stay right for an importer that opens a block very often, closes it even more often, and closes blocks
// that it never opened.
func TestAnImporterThatMiscounts(t *testing.T) {
	for way, opts := range ways {
		t.Run(way, func(t *testing.T) {
			d := drivertest.OpenDevice(t, "host:total=256MiB")
			e, path := export(t, d, opts)
			b, err := e.Alloc(d.DefaultStream(), 1)
			if err != nil {
				t.Fatal(err)
			}
			other, err := e.Alloc(d.DefaultStream(), 1)
			if err != nil {
				t.Fatal(err)
			}
			honest := raw(t, path)
			ask := func(c *net.UnixConn, kind byte, ticket ipc.Ticket) byte {
				t.Helper()
				if _, err := c.Write(requestOf(kind, ticket)); err != nil {
					t.Fatal(err)
				}
				answer, oob := make([]byte, 512), make([]byte, 64)
				n, nr, _, _, err := c.ReadMsgUnix(answer, oob)
				if err != nil || n < 16 {
					t.Fatalf("%d bytes of answer: %v", n, err)
				}
				messages, _ := unix.ParseSocketControlMessage(oob[:nr])
				for i := range messages {
					fds, _ := unix.ParseUnixRights(&messages[i])
					for _, fd := range fds {
						unix.Close(fd)
					}
				}
				return answer[4]
			}
			if ask(honest, opens, e.Ticket(b)) != 1 {
				t.Fatal("not opened")
			}
			c := raw(t, path)
			const times = 10_000
			for range times {
				if ask(c, opens, e.Ticket(b)) != 1 {
					t.Fatal("not opened")
				}
			}
			if n := e.Users(b); n != times+1 {
				t.Errorf("%d users, want %d", n, times+1)
			}
			for range times / 2 {
				if ask(c, closes, e.Ticket(b)) != 1 {
					t.Fatal("not closed")
				}
			}
			if ask(c, closes, e.Ticket(other)) != 2 || ask(c, closes, ipc.Ticket{}) != 2 || ask(c, opens, ipc.Ticket{}) != 2 {
				t.Error("what was not open was closed, or what there is not was opened")
			}
			ticket := e.Ticket(b)
			e.Free(b)
			if ask(c, opens, ticket) != 2 {
				t.Error("a freed block was opened")
			}
			for range times / 2 { // it may close what is freed
				if ask(c, closes, ticket) != 1 {
					t.Fatal("not closed")
				}
			}
			if ask(c, closes, ticket) != 2 {
				t.Error("closed more often than opened")
			}
			if opts != nil {
				if free, total, err := d.Available(); err != nil || total-free != b.Size+other.Size {
					t.Errorf("%d bytes in use while the honest importer has the block, want %d: %v", total-free, b.Size+other.Size, err)
				}
			}
			if ask(honest, closes, ticket) != 1 {
				t.Error("not closed")
			}
			honest.Close()
			c.Close()
			e.Free(other)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if free, total, err := d.Available(); err != nil || free != total {
				t.Errorf("%d of %d free, %v", free, total, err)
			}
		})
	}
}

// Silent connections, in any number, neither keep others from being served nor Close from returning.
func TestConnectionsThatSayNothing(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	var silent []*net.UnixConn
	for range 200 {
		silent = append(silent, raw(t, path))
	}
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, d, path).Open(context.Background(), e.Ticket(b)); err != nil {
		t.Fatal(err)
	}
	e.Free(b)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range silent {
		ended(c)
	}
}

// impostor answers each message of one connection with the given bytes and n descriptors, until it is told to end.
func impostor(t *testing.T, answers ...func(c *net.UnixConn)) (path string, ended chan struct{}) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for _, answer := range answers {
			if n, _ := c.Read(make([]byte, 512)); n == 0 {
				return
			}
			answer(c)
		}
		c.Read(make([]byte, 512)) // until the importer ends
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return path, ended
}

// says answers with a message and descriptors without a page.
func says(t *testing.T, message []byte, descriptors int) func(*net.UnixConn) {
	return func(c *net.UnixConn) {
		if descriptors == 0 {
			if _, err := c.Write(message); err != nil {
				t.Error(err)
			}
			return
		}
		sendWith(t, c, message, descriptors)
	}
}

// An exporter that answers anything at all gets errors; nothing is mapped or left open, and the importer is of further
// use where the answer was one.
func TestAnExporterThatLies(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	info := d.Info()
	welcome := answerOf(1, 0, 0, info.Driver+"\x00"+info.UUID)
	closed := answerOf(1, 0, 0, "")
	page := info.Granularity
	for name, c := range map[string]struct {
		message     []byte
		descriptors int
		asksAgain   bool // it closes what the exporter said was opened
	}{
		"no page":              {answerOf(1, 1, page, ""), 0, true},
		"page that is none":    {answerOf(1, 1, page, ""), 1, true},
		"page of no size":      {answerOf(1, 1, 0, ""), 1, true},
		"huge page":            {answerOf(1, 1, 1<<62, ""), 1, true},
		"page of odd size":     {answerOf(1, 1, page+1, ""), 1, true},
		"two pages":            {answerOf(1, 1, page, ""), 2, true},
		"many pages":           {answerOf(1, 1, page, ""), 30, true},
		"handle and page":      {answerOf(1, 2, page, "handle"), 1, true},
		"handle that is none":  {answerOf(1, 2, page, "handle"), 0, true},
		"no form":              {answerOf(1, 0, page, ""), 0, true},
		"negative size":        {answerOf(1, 1, -1, ""), 1, false},
		"wrong length":         {append(answerOf(1, 1, page, ""), 1), 1, false},
		"refusal and page":     {answerOf(3, 0, 0, "no"), 1, false},
		"unknown status":       {answerOf(99, 0, 0, ""), 0, false},
		"half an answer":       {closed[:7], 0, false},
		"one byte":             {closed[:1], 0, false},
		"failure of 400 bytes": {answerOf(4, 0, 0, strings.Repeat("x", 400)), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []func(*net.UnixConn){says(t, welcome, 0), says(t, c.message, c.descriptors)}
			if c.asksAgain {
				answers = append(answers, says(t, closed, 0))
			}
			answers = append(answers, says(t, answerOf(2, 0, 0, ""), 0))
			path, ended := impostor(t, answers...)
			i := dial(t, d, path)
			if b, err := i.Open(context.Background(), ipc.Ticket{1}); err == nil || errors.Is(err, ipc.ErrGone) {
				t.Errorf("opened as %+v, %v", b, err)
			}
			if _, err := i.Open(context.Background(), ipc.Ticket{1}); !errors.Is(err, ipc.ErrTicket) {
				t.Errorf("the next answer: %v", err)
			}
			if err := i.End(); err != nil {
				t.Error(err)
			}
			<-ended
			if n := unwanted(); n != 0 {
				t.Errorf("%d descriptors are open that the exporter sent", n)
			}
		})
	}
}

// An exporter that ends in the middle of a question, or sends its end with descriptors.
func TestAnExporterThatEnds(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	welcome := answerOf(1, 0, 0, d.Info().Driver+"\x00"+d.Info().UUID)
	for name, last := range map[string]func(*net.UnixConn){
		"ends":                func(c *net.UnixConn) { c.Close() },
		"empty message":       func(c *net.UnixConn) { sendWith(t, c, nil, 3) },
		"message of 600":      func(c *net.UnixConn) { sendWith(t, c, make([]byte, 600), 3) },
		"stops, and is ended": func(c *net.UnixConn) { c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			path, ended := impostor(t, says(t, welcome, 0), last)
			i := dial(t, d, path)
			if _, err := i.Open(context.Background(), ipc.Ticket{1}); !errors.Is(err, ipc.ErrGone) {
				t.Errorf("Open: %v", err)
			}
			<-i.Lost()
			if err := i.End(); err != nil {
				t.Error(err)
			}
			<-ended
			if n := unwanted(); n != 0 {
				t.Errorf("%d descriptors are open that the exporter sent", n)
			}
		})
	}
}

// End does not wait for an exporter that does not answer, and a waiting call returns an error.
func TestEndWhileAsking(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	asked, ending := make(chan struct{}), make(chan error)
	path, _ := impostor(t, says(t, answerOf(1, 0, 0, d.Info().Driver+"\x00"+d.Info().UUID), 0),
		func(*net.UnixConn) { close(asked) })
	i := dial(t, d, path)
	for range 3 {
		go func() {
			_, err := i.Open(context.Background(), ipc.Ticket{1})
			ending <- err
		}()
	}
	<-asked
	if err := i.End(); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := <-ending; !errors.Is(err, ipc.ErrGone) {
			t.Errorf("Open: %v", err)
		}
	}
}

// A socket that does not keep messages apart is refused, and closed.
func TestNewImporterOverAnotherKindOfSocket(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := ipc.NewExporter(d, l, nil); err == nil || !strings.Contains(err.Error(), `"unix"`) {
		t.Errorf("an exporter on it: %v", err)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ipc.NewImporter(context.Background(), d, c); err == nil || !strings.Contains(err.Error(), `"unix"`) {
		t.Errorf("an importer over it: %v", err)
	}
	if _, err := c.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// full takes all descriptors that this process may still open, and returns a function that gives them back.
func full() (restore func() error, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	next, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	none := unix.Rlimit{Cur: uint64(next.Fd()), Max: limit.Max}
	if err := errors.Join(next.Close(), unix.Setrlimit(unix.RLIMIT_NOFILE, &none)); err != nil {
		return nil, err
	}
	return func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }, nil
}

// fullRole exports, in a process that has no descriptors left until it is told to go on.
func fullRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	l, err := ipc.Listen(args[0])
	if err != nil {
		return err
	}
	e, err := ipc.NewExporter(d, l, nil)
	if err != nil {
		return err
	}
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		return err
	}
	say, hear := saying()
	say(e.Ticket(b).String())
	hear()
	restore, err := full()
	if err != nil {
		return err
	}
	say("full")
	hear()
	if err := restore(); err != nil {
		return err
	}
	say("room")
	hear()
	return e.Close()
}

// An exporter without descriptors sends importers away, and serves again when it has some. It once stopped to serve.
func TestAnExporterWithoutDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := start(t, "full", path)
	ticket, err := ipc.ParseTicket(p.hear(t))
	if err != nil {
		t.Fatal(err)
	}
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	early, err := ipc.Dial(context.Background(), d, path) // so that the exporter has taken its spare descriptor
	if err != nil {
		t.Fatal(err)
	}
	p.tell(t, "be full")
	p.hear(t)
	if _, err := early.Open(context.Background(), ticket); err == nil || errors.Is(err, ipc.ErrGone) || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("Open of what cannot be exported: %v", err)
	}
	for range 3 {
		if _, err := ipc.Dial(context.Background(), d, path); !errors.Is(err, ipc.ErrGone) {
			t.Errorf("Dial: %v", err)
		}
	}
	p.tell(t, "have room")
	p.hear(t)
	late := dial(t, d, path)
	for _, i := range []*ipc.Importer{early, late} {
		b, err := i.Open(context.Background(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(i.Close(b), i.End()); err != nil {
			t.Error(err)
		}
	}
}

// fullServerRole serves pages, in a process that has no descriptors left until it is told to go on.
func fullServerRole(args []string) error {
	l, err := ipc.Listen(args[0])
	if err != nil {
		return err
	}
	say, hear := saying()
	release := make(chan struct{})
	go ipc.ServePages(l, func(key []byte) ([]driver.PageFile, error) {
		if string(key) == "hold" {
			say("held")
			<-release
		}
		return nil, nil
	})
	say("ready")
	hear()
	restore, err := full()
	if err != nil {
		return err
	}
	say("full")
	hear()
	if err := restore(); err != nil {
		return err
	}
	close(release)
	say("room")
	hear()
	return nil
}

// A server of pages without descriptors sends others away, and serves again when it has some. It once stopped to serve.
func TestAServerOfPagesWithoutDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := start(t, "full server", path)
	p.hear(t)
	fetch := func(key string) error {
		_, err := ipc.FetchPages(context.Background(), path, []byte(key))
		return err
	}
	held := make(chan error)
	go func() { held <- fetch("hold") }()
	p.hear(t) // now the server has its spare descriptor
	p.tell(t, "be full")
	p.hear(t)
	for range 3 {
		if err := fetch("key"); !errors.Is(err, ipc.ErrGone) {
			t.Errorf("FetchPages: %v", err)
		}
	}
	p.tell(t, "have room")
	p.hear(t)
	if err := errors.Join(<-held, fetch("key")); err != nil {
		t.Errorf("FetchPages when there are descriptors again: %v", err)
	}
}

// poorRole imports in a process that has no descriptors left for a time.
func poorRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	i, ticket, err := dialRole(d, args)
	if err != nil {
		return err
	}
	restore, err := full()
	if err != nil {
		return err
	}
	if _, err := i.Open(context.Background(), ticket); err == nil || errors.Is(err, ipc.ErrGone) {
		return errors.Join(errors.New("opened without a descriptor, or the exporter is said to be gone"), err)
	}
	select {
	case <-i.Lost():
		return errors.New("the exporter is said to be lost")
	default:
	}
	if err := restore(); err != nil {
		return err
	}
	b, err := i.Open(context.Background(), ticket)
	if err != nil {
		return err
	}
	say, hear := saying()
	say("opened")
	hear()
	return errors.Join(i.Close(b), i.End(), d.Close())
}

// An importer without descriptors cannot open a page, and that is all. It once took its exporter for gone.
func TestAnImporterWithoutDescriptors(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "poor", path, e.Ticket(b).String())
	if p.hear(t) != "opened" || e.Users(b) != 1 {
		t.Errorf("%d users", e.Users(b))
	}
	p.tell(t, "close")
	if err := e.Wait(t.Context(), b); err != nil {
		t.Error(err)
	}
	e.Free(b)
}

// The last user of a freed handle may leave at any moment of Free: one of the two gives the memory back.
func TestTheLastUserLeavesDuringFree(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, &ipc.Options{Handles: true})
	c := raw(t, path)
	answer := make([]byte, 512)
	ask := func(kind byte, ticket ipc.Ticket) {
		if _, err := c.Write(requestOf(kind, ticket)); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(answer); err != nil || n < 16 || answer[4] != 1 {
			t.Errorf("%q, %v", answer[:max(n, 0)], err)
		}
	}
	for range 300 {
		b, err := e.Alloc(d.DefaultStream(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ticket := e.Ticket(b)
		ask(opens, ticket)
		left := make(chan struct{})
		go func() {
			defer close(left)
			ask(closes, ticket)
		}()
		e.Free(b)
		<-left
		if err := whole(d); err != nil {
			t.Fatal(err)
		}
	}
}

// A block that is freed while it is opened has no ticket any more, as one that was freed before.
func TestFreeDuringOpen(t *testing.T) {
	inner, todo := drivertest.OpenDevice(t, "host:total=256MiB"), make(chan func(), 1)
	d := intercept.Wrap(inner, func(c intercept.Call, next func() error) error {
		if c.Kind == intercept.ExportPage {
			(<-todo)()
		}
		return next()
	})
	e, path := export(t, d, nil)
	i := dial(t, inner, path)
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ticket := e.Ticket(b)
	todo <- func() { e.Free(b) }
	if m, err := i.Open(context.Background(), ticket); !errors.Is(err, ipc.ErrTicket) {
		t.Errorf("opened as %+v, %v", m, err)
	}
	if err := whole(d); err != nil {
		t.Error(err)
	}
}

// Close and End at any moment of concurrent operations: nothing panics, blocks forever or is lost.
func TestEndsDuringEverything(t *testing.T) {
	for range 30 {
		d, other := drivertest.OpenDevice(t, "host:total=256MiB"), drivertest.OpenDevice(t, "host:total=256MiB")
		e, path := export(t, d, nil)
		i := dial(t, other, path)
		var all sync.WaitGroup
		for range 3 {
			tickets := make(chan ipc.Ticket, 100)
			all.Go(func() {
				defer close(tickets)
				for n := 0; ; n++ {
					b, err := e.Alloc(d.DefaultStream(), 1)
					if errors.Is(err, driver.ErrClosed) {
						return
					}
					if errors.Is(err, mem.ErrNoMemory) {
						continue // others have it, until all is closed
					}
					if err != nil {
						t.Error(err)
						return
					}
					ticket := func() (ticket ipc.Ticket) {
						defer func() { _ = recover() }() // closed by another goroutine: no block is live
						return e.Ticket(b)
					}()
					select {
					case tickets <- ticket:
					default:
					}
					if n%2 == 0 {
						func() {
							defer func() { _ = recover() }()
							e.Free(b)
						}()
					}
				}
			})
			all.Go(func() {
				for ticket := range tickets {
					m, err := i.Open(context.Background(), ticket)
					if err != nil {
						continue // all kinds of: no such block, the exporter is gone, the importer has ended
					}
					func() {
						defer func() { _ = recover() }() // ended by another goroutine: no block is open
						if err := i.Close(m); err != nil {
							t.Error(err)
						}
					}()
				}
			})
		}
		all.Go(func() {
			for range 3 {
				_, _ = i.Open(context.Background(), ipc.Ticket{1})
			}
			if err := i.End(); err != nil {
				t.Error(err)
			}
		})
		for range 10 {
			_, _ = i.Open(context.Background(), ipc.Ticket{1})
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if err := errors.Join(e.Close(), i.End(), whole(d), whole(other)); err != nil {
			t.Error(err)
		}
	}
}
