//go:build linux

package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem/ipc"
	"golang.org/x/sys/unix"
)

// Neither side talks to another user's process: not the importer, not the exporter, not the server of pages.
func TestUsersDiffer(t *testing.T) {
	ipc.BeAnotherUser(t)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	_, path := export(t, d, &ipc.Options{Allow: func(ipc.Peer) bool {
		t.Error("Allow was asked about another user's process")
		return true
	}})
	if _, err := ipc.Dial(t.Context(), d, path); !errors.Is(err, ipc.ErrRefused) || !strings.Contains(err.Error(), "the exporter is a process of another user") {
		t.Errorf("the importer: %v", err)
	}
	const refusal = "it is another user's process"
	if got := answerOn(t, raw(t, path), requestOf(greets, ipc.Ticket{})); !strings.HasSuffix(got, refusal) {
		t.Errorf("the exporter answers %q", got)
	}

	name := pageServer(t, func([]byte) ([]driver.PageFile, error) {
		t.Error("another user's process got pages")
		return nil, nil
	})
	if _, err := ipc.FetchPages(t.Context(), name, []byte("key")); !errors.Is(err, ipc.ErrRefused) || !strings.HasSuffix(err.Error(), fmt.Sprintf("another user, %d", os.Geteuid())) {
		t.Errorf("FetchPages: %v", err)
	}
	if got := answerOn(t, raw(t, name), []byte("key")); !strings.HasSuffix(got, refusal) {
		t.Errorf("the server of pages answers %q", got)
	}
}

func answerOn(t *testing.T, c *net.UnixConn, request []byte) string {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// pageServer serves pages at the path that it returns.
func pageServer(t *testing.T, find func([]byte) ([]driver.PageFile, error)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pages")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ipc.ServePages(l, find) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return path
}

// A client that asks for pages under an unknown key is told so, with the server's words.
func TestPagesOfAnUnknownKey(t *testing.T) {
	path := pageServer(t, func(key []byte) ([]driver.PageFile, error) { return nil, fmt.Errorf("no pages of %s", key) })
	pages, err := ipc.FetchPages(t.Context(), path, []byte("nothing"))
	if !errors.Is(err, ipc.ErrTicket) || !strings.Contains(err.Error(), "no pages of nothing") || len(pages) > 0 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
}

// Refused connections that ask nothing are few: the oldest end, also where the listener has a name that every user may
// connect to.
func TestRefusedConnectionsAreFew(t *testing.T) {
	ipc.BeAnotherUser(t)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	_, exporter := export(t, d, nil)
	for name, path := range map[string]string{"exporter": exporter, "pages": pageServer(t, nil)} {
		const more = 10
		conns := make([]*net.UnixConn, ipc.MaxRefused+more)
		for i := range conns {
			conns[i] = raw(t, path)
		}
		// Their order is that of goroutines. Any of them may be among the oldest.
		over := make(chan int, len(conns))
		for i, c := range conns {
			go func() {
				c.Read(make([]byte, 1))
				over <- i
			}()
		}
		for range more {
			conns[within(t, func() int { return <-over })] = nil
		}
		open := 0
		for _, c := range conns {
			if c != nil {
				open++
				c.Close()
			}
		}
		if open != ipc.MaxRefused {
			t.Errorf("%s: %d connections are open", name, open)
		}
	}
}

// Connections of the same user that have not asked yet do not count as refused: all are answered, however many.
func TestPermittedConnectionsMayBeMany(t *testing.T) {
	path := pageServer(t, func([]byte) ([]driver.PageFile, error) { return nil, errors.New("no such pages") })
	conns := make([]*net.UnixConn, ipc.MaxRefused+10)
	for i := range conns {
		conns[i] = raw(t, path)
	}
	for i, c := range slices.Backward(conns) { // the newest first, so that all have been accepted
		if _, err := c.Write([]byte("key")); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		b := make([]byte, 512)
		n, err := c.Read(b)
		if err != nil || !strings.HasSuffix(string(b[:n]), "no such pages") {
			t.Fatalf("connection %d: the answer is %q, %v", i, b[:n], err)
		}
	}
}

// A connection that asks nothing is told why it ends. It keeps neither a goroutine nor a descriptor of the server.
func TestSilentConnectionsEnd(t *testing.T) {
	ipc.SetTimeout(t, time.Millisecond)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	_, exporter := export(t, d, nil)
	for name, path := range map[string]string{"exporter": exporter, "pages": pageServer(t, nil)} {
		c, b := raw(t, path), make([]byte, 512)
		n := within(t, func() int { n, _ := c.Read(b); return n })
		if !strings.HasSuffix(string(b[:n]), "it sent no request within 1ms") {
			t.Errorf("%s: it answers %q", name, b[:n])
		}
		if err := within(t, func() error { _, err := c.Read(b); return err }); !errors.Is(err, io.EOF) {
			t.Errorf("%s: then %v, want the end", name, err)
		}
	}
}

// A connection that was silent for too long is refused to an importer, which is told why.
func TestAnImporterOverASilentConnection(t *testing.T) {
	ipc.SetTimeout(t, time.Millisecond)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	_, path := export(t, d, nil)
	c := raw(t, path)
	waitForEnd(t, c)
	if _, err := ipc.NewImporter(t.Context(), d, c); !errors.Is(err, ipc.ErrRefused) ||
		!strings.Contains(err.Error(), "it sent no request within 1ms") {
		t.Errorf("NewImporter: %v", err)
	}
}

// A connection ends that asks for pages and does not read them, also if only the end of the answer finds no room.
func TestUnreadPagesEnd(t *testing.T) {
	page, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { page.Close() })
	for name, pages := range map[string]int{"all fit but the end": capacity(t, page), "more than fit": 10_000} {
		t.Run(name, func(t *testing.T) {
			c := raw(t, pageServer(t, func([]byte) ([]driver.PageFile, error) {
				ipc.SetTimeout(t, time.Millisecond)
				return slices.Repeat([]driver.PageFile{{Size: 1, File: page}}, pages), nil
			}))
			if _, err := c.Write([]byte("key")); err != nil {
				t.Fatal(err)
			}
			waitForEnd(t, c)
		})
	}
}

// A client that reads a page in the time that the server waits gets all, however slow it is. One that stops is cut off.
func TestSlowClientsGetTheirPages(t *testing.T) {
	page, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { page.Close() })
	const more = 100
	room := capacity(t, page)
	for name, reads := range map[string]int{"reads on": more + 1, "stops": more / 2} {
		t.Run(name, func(t *testing.T) {
			client := make(chan *net.UnixConn, 1)
			c := raw(t, pageServer(t, func([]byte) ([]driver.PageFile, error) {
				c, answers := <-client, 0
				ipc.SetTimeoutFunc(t, func() time.Duration { // the server is about to send an answer
					if answers++; room < answers && answers <= room+reads {
						if _, err := c.Read(make([]byte, 512)); err != nil {
							t.Error(err)
						}
					}
					return -1 // its time is over
				})
				return slices.Repeat([]driver.PageFile{{Size: 1, File: page}}, room+more), nil
			}))
			client <- c
			if _, err := c.Write([]byte("key")); err != nil {
				t.Fatal(err)
			}
			waitForEnd(t, c)
			last, b := "", make([]byte, 512)
			for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
				last = string(b[:n])
			}
			if whole := last == string(answerOf(1, 0, int64(room+more), "")); whole != (reads > more) {
				t.Errorf("the last answer is %q", last)
			}
		})
	}
}

// waitForEnd waits until the other end of a connection is closed, and reads nothing.
func waitForEnd(t *testing.T, c *net.UnixConn) {
	t.Helper()
	file, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	over := []unix.PollFd{{Fd: int32(file.Fd())}}
	if err := within(t, func() (err error) {
		for over[0].Revents&unix.POLLHUP == 0 && (err == nil || errors.Is(err, unix.EINTR)) {
			_, err = unix.Poll(over, -1)
		}
		return err
	}); over[0].Revents&unix.POLLHUP == 0 {
		t.Fatal(err)
	}
}

// capacity returns the number of pages that a socket holds while nothing is read.
func capacity(t *testing.T, page *os.File) (pages int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	for ; err == nil; pages++ {
		err = unix.Sendmsg(ends[0], answerOf(1, 1, 1, ""), unix.UnixRights(int(page.Fd())), nil, 0)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	return pages - 1
}

// within returns the result of f, which hangs if it takes longer than any test here.
func within[T any](t *testing.T, f func() T) T {
	t.Helper()
	result := make(chan T, 1)
	go func() { result <- f() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case v := <-result:
		return v
	case <-ctx.Done():
		t.Fatal("hung")
		panic("unreachable")
	}
}

// Only this user may connect to the socket.
func TestSocketMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Calls that wait for an exporter end with their context; then the importer is of further use when the answer has come.
func TestAnExporterThatNeverAnswers(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	cause := errors.New("out of patience")
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	waits := func(*net.UnixConn) { asked <- struct{}{} }
	impatient := func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-asked
			cancel(cause)
		}()
		return ctx
	}

	silent, _ := impostor(t, waits)
	if err := within(t, func() error {
		_, err := ipc.Dial(impatient(), d, silent)
		return err
	}); !errors.Is(err, cause) || !strings.Contains(err.Error(), "the exporter did not answer in time") {
		t.Errorf("Dial: %v", err)
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := ipc.Dial(over, d, silent); err == nil {
		t.Error("Dial after the end of its context")
	}
	silent, _ = impostor(t, waits)
	if err := within(t, func() error {
		_, err := ipc.FetchPages(impatient(), silent, []byte("key"))
		return err
	}); !errors.Is(err, cause) {
		t.Errorf("FetchPages: %v", err)
	}

	for range 100 { // contexts that end at some moment of the call
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := ipc.FetchPages(ctx, silent, []byte("key")); !errors.Is(err, context.Canceled) {
			t.Fatalf("FetchPages: %v", err)
		}
	}

	closed := make(chan []byte, 1)
	welcome, void := answerOf(1, 0, 0, d.Info().Driver+"\x00"+d.Info().UUID), answerOf(2, 0, 0, "")
	slow, ended := impostor(t, says(t, welcome, 0), func(c *net.UnixConn) {
		asked <- struct{}{}
		<-answer
		sendWith(t, c, answerOf(1, 1, d.Info().Granularity, ""), 1)
		b := make([]byte, 512)
		n, _ := c.Read(b)
		closed <- b[:n]
		c.Write(answerOf(1, 0, 0, ""))
	}, says(t, void, 0))
	i := dial(t, d, slow)
	ticket := ipc.Ticket{1, 2, 3}
	if err := within(t, func() error {
		_, err := i.Open(impatient(), ticket)
		return err
	}); !errors.Is(err, cause) {
		t.Errorf("Open: %v", err)
	}
	if _, err := i.Open(over, ticket); !errors.Is(err, cause) { // does not get its turn
		t.Errorf("the next Open: %v", err)
	}
	close(answer)
	got := within(t, func() []byte { return <-closed })
	if want := requestOf(closes, ticket); string(got) != string(want) {
		t.Errorf("the late answer led to the request %q, want %q", got, want)
	}
	if _, err := i.Open(t.Context(), ticket); !errors.Is(err, ipc.ErrTicket) {
		t.Errorf("Open after the late answer: %v", err)
	}
	if err := i.End(); err != nil {
		t.Error(err)
	}
	<-ended
	if n := unwanted(); n != 0 {
		t.Errorf("%d descriptors of the late answer are open", n)
	}
}

// A handle of less memory than the block is not opened.
func TestAHandleThatIsTooShort(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, &ipc.Options{Handles: true})
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, short := range []int64{1, 0} {
		forgotten := 0
		i := dial(t, &shortDevice{d, shortSharing{d.Sharing(), b.Size - short, &forgotten}}, path)
		got, err := i.Open(t.Context(), e.Ticket(b))
		if short == 0 {
			if err != nil || got.Size != b.Size {
				t.Errorf("a handle of the block's size: %+v, %v", got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "the handle has ") || forgotten != 1 || e.Users(b) != 0 {
			t.Errorf("opened as %+v, %v; %d handles forgotten, %d users", got, err, forgotten, e.Users(b))
		}
	}
}

// A shortDevice imports handles as memory of a given size.
type shortDevice struct {
	driver.Device
	sharing shortSharing
}

func (d *shortDevice) Sharing() driver.Sharing { return d.sharing }

type shortSharing struct {
	driver.Sharing
	size      int64
	forgotten *int
}

func (s shortSharing) Import([]byte) (driver.Pointer, int64, error) { return 0x1000, s.size, nil }

func (s shortSharing) Forget(driver.Pointer) error {
	*s.forgotten++
	return nil
}

// A source of tickets that gives zeros or repeats itself makes no block.
func TestTicketsInUse(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	free, _, err := d.Available()
	if err != nil {
		t.Fatal(err)
	}
	for name, tickets := range map[string]string{"zero": strings.Repeat("\x00", 16), "twice": strings.Repeat("x", 32)} {
		e, _ := export(t, d, &ipc.Options{Rand: strings.NewReader(tickets)})
		if name == "twice" {
			b, err := e.Alloc(d.DefaultStream(), 1)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Free(b)
			if free, _, err = d.Available(); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := e.Alloc(d.DefaultStream(), 1); err == nil || !strings.Contains(err.Error(), "which is in use") {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
		if now, _, err := d.Available(); err != nil || now != free {
			t.Errorf("%s: %d bytes are free, %d before, %v", name, now, free, err)
		}
	}
}
