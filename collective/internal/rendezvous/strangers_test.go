package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// A stranger learns nothing of the run, whatever it says, and the meeting goes on.
func TestStrangersLearnNothing(t *testing.T) {
	o := point(t, 2)
	ctx := within(t)
	host := coming(ctx, o.as(0))
	recorded := &recorder{Conn: dialPoint(t, o)}
	if _, err := o.Key.Dial(recorded, meetingPurpose); err != nil {
		t.Fatal(err)
	}
	greeting := string(recorded.wrote[:40])
	hello := string(message{Kind: hello, Rank: 1, Size: 2, Peer: &Peer{}}.encode())
	for name, test := range map[string]struct {
		said   string
		answer int // bytes
	}{
		"http":            {"GET / HTTP/1.1\r\nHost: rank0\r\nUser-Agent: a scanner\r\n\r\n", 0},
		"nothing":         {"", 0},
		"a hello":         {hello + hello, 0},
		"a replay":        {string(recorded.wrote), 40},
		"no proof":        {greeting, 40},
		"a wrong proof":   {greeting + strings.Repeat("x", 32) + hello, 40},
		"another version": {"ashlar\x00\x09" + greeting[8:], 0},
	} {
		c := dialPoint(t, o)
		io.WriteString(c, test.said)
		c.(*net.TCPConn).CloseWrite()
		if rest, _ := io.ReadAll(c); len(rest) != test.answer { // an end or a reset
			t.Errorf("%s: answered %q", name, rest)
		}
	}

	other := o.as(1)
	other.Key = auth.NewKey([]byte("another secret than that"), "run", false)
	if _, err := dial(ctx, other, 0); !errors.Is(err, auth.ErrProof) || !strings.Contains(err.Error(), "its run ID, secret or encryption differs") {
		t.Errorf("a rank with another secret: %v", err)
	}

	completes(t, ctx, o, host)
}

type recorder struct {
	net.Conn
	wrote []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = append(r.wrote, b...)
	return r.Conn.Write(b)
}

// Silent connections are few, and take no place from a rank: the oldest ones end.
func TestSilentStrangers(t *testing.T) {
	o := point(t, 2)
	ctx := within(t)
	host := coming(ctx, o.as(0))
	const more = 20
	silent := make([]net.Conn, strangers+o.Size+more)
	for i := range silent {
		silent[i] = dialPoint(t, o)
	}
	for i, c := range silent[:more] {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil { // waits until it is closed
			t.Errorf("connection %d: %d bytes, %v", i, n, err)
		}
	}
	completes(t, ctx, o, host)
}

// The oldest stranger ends for a new one. One that has proved itself is none.
func TestOldestStrangerEnds(t *testing.T) {
	d := &door{ranks: 2}
	conns := make([]closingConn, strangers+2+3)
	for i := range conns {
		d.enter(&conns[i])
		if i == 5 {
			d.leave(&conns[i])
		}
	}
	for i, c := range conns {
		if c.closed != (i < 2) {
			t.Errorf("connection %d: closed %v", i, c.closed)
		}
	}
}

type closingConn struct {
	net.Conn
	closed bool
}

func (c *closingConn) Close() error {
	c.closed = true
	return nil
}

// A connection that says one byte a second has the time of one that is silent.
func TestSlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := auth.NewKey(nil, "run", false)
		d := &door{
			key: key, purpose: meetingPurpose, ranks: 2, time: handshakeTimeout,
			admit:  func(net.Conn, func() bool) { t.Error("admitted") },
			reject: func(_ net.Addr, err error) { t.Log(err) },
		}
		here, there := net.Pipe()
		begun := time.Now()
		var sender sync.WaitGroup
		sender.Go(func() {
			for _, b := range []byte("ashlar\x00\x01 and more") {
				if _, err := there.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		d.enter(here)
		d.handshake(t.Context(), here)
		if took := time.Since(begun); took != handshakeTimeout {
			t.Errorf("it had %v", took)
		}
		if len(d.unproved) != 0 {
			t.Error("it is still a stranger")
		}
		sender.Wait()
	})
}

// A listener is open at the address asked for, and at no other.
func TestListensAtOneAddress(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	o := point(t, 2)
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.IsLinkLocalUnicast() {
			continue // needs a zone
		}
		o.Host = ip.String()
		listen, err := o.listenForRanks()
		if err != nil {
			t.Errorf("%v: %v", ip, err)
			continue
		}
		links, err := o.listenForLinks(listen.Addr(), listen.Addr())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []net.Listener{listen, links} {
			if at := l.Addr().(*net.TCPAddr).IP; !at.Equal(ip) {
				t.Errorf("%v: it listens at %v", ip, at)
			}
			l.Close()
		}
	}
	o.Host, o.Listen = "192.0.2.1", "127.0.0.1"
	listen, err := o.listenForRanks()
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Close()
	if at := listen.Addr().(*net.TCPAddr).IP; !at.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("Listen: it listens at %v", at)
	}
}

// A rank whose machine resolves the address as its own alone says so, if others are missing.
func TestOwnNameIsLoopback(t *testing.T) {
	o := point(t, 2)
	o.Host, o.Listen = "192.0.2.1", "127.0.0.1"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var e *MeetError
	if _, err := Meet(over, o.as(0)); !errors.As(err, &e) || len(e.Refused) != 1 || !strings.Contains(e.Refused[0], "set Listen on rank 0") {
		t.Errorf("got %v", err)
	}
}

// A rank's host name is printable in errors.
func TestEvilHost(t *testing.T) {
	o := point(t, 3)
	ctx, cancel := context.WithCancelCause(within(t))
	host := coming(ctx, o.as(0))
	c := enter(t, o, message{Kind: hello, Rank: 1, Size: 3, Peer: &Peer{Host: "evil\x1b]0;x\a"}})
	hearing(t, c)
	_, err := Meet(ctx, o.as(1))
	c.Close()
	cancel(errors.New("enough"))
	_, failed := host()
	for _, err := range []error{err, failed} {
		if err == nil || strings.ContainsAny(err.Error(), "\x1b\a") || !strings.Contains(err.Error(), `evil\x1b]0;x\a`) {
			t.Errorf("got %q", err)
		}
	}
}

// A connection that ends waits for the other side for a short time, however long it may be silent.
func TestEndIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		k := newConn(here, time.Hour)
		k.serve(maxBody, func(message) {}, func(error) {})
		begun := time.Now()
		k.end()
		k.wait()
		if took := time.Since(begun); took != closeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// A rank that comes when all have joined is told so.
func TestTooLate(t *testing.T) {
	g := &meeting{o: Options{Size: 2, Limit: bound}, conns: make([]*conn, 2), peers: make([]Peer, 2), hub: &hub{}}
	no := (*refusal)(nil)
	if err := g.admit(&told{}, message{Rank: 1, Size: 2, Peer: &Peer{}}); !errors.As(err, &no) || no.text != "the meeting is over" {
		t.Errorf("got %v", err)
	}
}

// A barrier that a rank announces twice counts once.
func TestArrivesOnce(t *testing.T) {
	var told []message
	send := func(m message) { told = append(told, m) }
	h := newHub([]func(message){send, func(message) {}}, bound)
	h.receive(1, message{Kind: arrive, N: 1})
	h.receive(1, message{Kind: arrive, N: 1})
	h.receive(0, message{Kind: arrive, N: 2})
	if len(told) != 1 || told[0].Kind != release || told[0].N != 1 {
		t.Errorf("rank 0 was told %+v", told)
	}
	h.receive(1, message{Kind: arrive, N: 2})
	if len(told) != 2 || told[1].N != 2 {
		t.Errorf("rank 0 was told %+v", told)
	}
}

// A connection that has not proved itself ends with the meeting, and does not make the meeting last longer.
func TestUnprovedEndsWithTheMeeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		d := &door{
			key: auth.NewKey(nil, "run", false), purpose: meetingPurpose, ranks: 2, time: handshakeTimeout,
			admit:  func(net.Conn, func() bool) { t.Error("admitted") },
			reject: func(net.Addr, error) {},
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait() // until the handshake waits for the first byte
			cancel()
		}()
		begun := time.Now()
		d.handshake(ctx, here)
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// The error of a meeting that fails lists some of the strangers, and has room for refused ranks.
func TestNotesOfStrangersAndRanks(t *testing.T) {
	g := &meeting{}
	for range 100 {
		g.noteStranger(&net.TCPAddr{}, errors.New("strange"))
	}
	for range 100 {
		g.note("refused")
	}
	strange := 0
	for _, text := range g.refused {
		if strings.Contains(text, "strange") {
			strange++
		}
	}
	if strange != 8 || len(g.refused) != 16 {
		t.Errorf("%d notes, %d of them of strangers", len(g.refused), strange)
	}
}
