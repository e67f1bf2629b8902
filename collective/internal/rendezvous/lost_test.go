package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// losing waits until a member learns of a loss, and checks which rank and why.
func losing(t *testing.T, m *Member, rank int, text string) {
	t.Helper()
	select {
	case <-m.Lost():
	case <-within(t).Done():
		t.Fatal("hung")
	}
	var e *LostError
	if err := m.Err(); !errors.As(err, &e) || e.Rank != rank || !strings.Contains(err.Error(), text) {
		t.Errorf("rank %d: %v, want rank %d: %s", m.Rank, err, rank, text)
	}
}

// A connection that ends is a death, and everybody hears of it, in whatever they wait for.
func TestDeath(t *testing.T) {
	members, fakes := meet(t, point(t, 4), 2)
	ctx := within(t)
	waits := make(chan error, 3)
	go func() { waits <- members[0].Barrier(ctx) }()
	go func() { waits <- members[1].Leave(ctx) }()
	go func() { _, err := members[3].Links(ctx); waits <- err }()
	hearing(t, fakes[2]) // start
	fakes[2].Close()
	for range 3 {
		var e *LostError
		if err := <-waits; !errors.As(err, &e) || e.Rank != 2 || e.Host != "nowhere" {
			t.Errorf("a wait ended with %v", err)
		}
	}
	for _, rank := range []int{0, 1, 3} {
		losing(t, members[rank], 2, "rank 2 on nowhere: its connection to rank 0 ended: ")
		if err := members[rank].Barrier(ctx); err == nil {
			t.Error("a barrier after a loss")
		}
	}
}

// A rank that is silent for the time limit is lost.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := overPipes(t, 3, bound/2, 1)
		for _, rank := range []int{0, 2} {
			losing(t, members[rank], 1, "silent for 15s")
		}
	})
}

// Members that wait are not silent, whatever the limit.
func TestQuietIsNotSilent(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			members := overPipes(t, 2, limit)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := members[1].Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("limit %v: %v", limit, err)
			}
			if err := errors.Join(members[0].Err(), members[1].Err()); err != nil {
				t.Errorf("limit %v: %v", limit, err)
			}
		})
	}
}

// A rank that gives up while rank 0 does not answer ends soon, however long rank 0 may be silent.
func TestGivesUpWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go io.Copy(io.Discard, there)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		o := Options{Rank: 1, Size: 2}
		_, err := awaitStart(ctx, o, &accepted{conn: addressed{here}, limit: time.Hour})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(begun); took != handshakeTimeout+closeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// overPipes brings ranks together, on virtual time. Those in silent read, and say no more than their hello.
func overPipes(t *testing.T, size int, limit time.Duration, silent ...int) []*Member {
	t.Helper()
	o := Options{Size: size, Limit: limit, Key: auth.NewKey(nil, t.Name(), false)}
	g := &meeting{
		o: o, me: newMember(0, size), conns: make([]*conn, size), peers: make([]Peer, size), full: make(chan struct{}),
	}
	members := make([]*Member, size)
	var starts sync.WaitGroup
	for rank := 1; rank < size; rank++ {
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		if err := g.admit(addressed{here}, message{Kind: hello, Rank: rank, Size: size, Peer: &Peer{}}); err != nil {
			t.Fatal(err)
		}
		if m := hearing(t, there); m.Kind != accept || m.Limit != limit {
			t.Fatalf("rank %d: %v", rank, m)
		}
		starts.Go(func() {
			if slices.Contains(silent, rank) {
				go io.Copy(io.Discard, there)
				return
			}
			var err error
			if members[rank], err = awaitStart(t.Context(), o.as(rank), &accepted{conn: addressed{there}, limit: limit}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	members[0] = g.me
	starts.Wait()
	for _, m := range members {
		if m != nil {
			t.Cleanup(m.Close)
		}
	}
	return members
}

// addressed is a pipe between ranks of one machine.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A rank that hears of the start and of a loss at once has joined, and then lost a rank.
func TestLossRightAfterTheStart(t *testing.T) {
	o := Options{Size: 3, Limit: bound, Key: auth.NewKey(nil, t.Name(), false)}
	begins := message{Kind: start, Links: make([]byte, linksName), Peers: make([]Peer, 3)}
	said := append(begins.encode(), message{Kind: lost, Rank: 1, Text: "dead"}.encode()...)
	for range 20 {
		here, there := net.Pipe()
		go func() {
			here.Write(said)
			io.Copy(io.Discard, here)
			here.Close()
		}()
		m, err := awaitStart(late{t.Context()}, o.as(2), &accepted{conn: addressed{there}, limit: bound})
		if err != nil {
			t.Fatal(err)
		}
		losing(t, m, 1, "dead")
		there.Close()
		m.Close()
	}
}

// late is a context whose Done takes a millisecond, in which messages arrive.
type late struct{ context.Context }

func (c late) Done() <-chan struct{} {
	time.Sleep(time.Millisecond)
	return c.Context.Done()
}

// Without rank 0 there is no hub: for a rank that cannot reach it, rank 0 is lost.
func TestRankZeroDies(t *testing.T) {
	o := point(t, 2)
	listen, err := net.Listen("tcp", o.address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Close()
	come := coming(within(t), o.as(1))
	c, err := listen.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = o.Key.Accept(c, meetingPurpose); err != nil {
		t.Fatal(err)
	}
	if m := hearing(t, c); m.Kind != hello || m.Rank != 1 {
		t.Errorf("it said %+v", m)
	}
	c.Write(message{Kind: accept, Limit: bound}.encode())
	c.Write(message{Kind: start, Links: make([]byte, 16), Peers: []Peer{{Host: "there"}, {}}}.encode())
	m, err := come()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c.Close()
	losing(t, m, 0, "rank 0 on there: the connection to it ended: ")
}

// Messages of rank 0 are checked too.
func TestBadStart(t *testing.T) {
	o := point(t, 2)
	for want, answers := range map[string][]message{
		"rank 0 tells of 1 ranks":                     {{Kind: accept, Limit: bound}, {Kind: start, Peers: []Peer{{}}, Links: make([]byte, 16)}},
		"rank 1 was lost: dead":                       {{Kind: accept, Limit: bound}, {Kind: lost, Rank: 1, Text: "dead"}},
		"the connection to rank 0 ended":              {{Kind: accept, Limit: bound}},
		"rank 1: rank 0 turned it away: go elsewhere": {{Kind: refuse, Text: "go elsewhere"}},
	} {
		listen, err := net.Listen("tcp", o.address(0))
		if err != nil {
			t.Fatal(err)
		}
		come := coming(within(t), o.as(1))
		c, err := listen.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw := c
		if c, err = o.Key.Accept(c, meetingPurpose); err != nil {
			t.Fatal(err)
		}
		hearing(t, c)
		for _, m := range answers {
			c.Write(m.encode())
		}
		raw.(*net.TCPConn).CloseWrite()
		if _, err := come(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		c.Close()
		listen.Close()
	}
}

// A rank that fails by itself keeps its own error; the others lose it.
func TestFail(t *testing.T) {
	for _, culprit := range []int{0, 1} {
		members, _ := meet(t, point(t, 3))
		own := errors.New("no memory")
		members[culprit].Fail(own, "code")
		members[culprit].Fail(errors.New("and more"), "")
		if err := members[culprit].Err(); err != own {
			t.Errorf("rank %d: %v", culprit, err)
		}
		for rank, m := range members {
			if rank != culprit {
				losing(t, m, culprit, "no memory")
				if e := (*LostError)(nil); !errors.As(m.Err(), &e) || e.Code != "code" {
					t.Errorf("rank %d: %#v", rank, e)
				}
			}
		}
	}
}

// Closing before all have left is a failure, which the others hear of.
func TestCloseEarly(t *testing.T) {
	for _, culprit := range []int{0, 1} {
		members, _ := meet(t, point(t, 3))
		members[culprit].Close()
		for rank, m := range members {
			if rank != culprit {
				losing(t, m, culprit, "")
			}
		}
	}
}

// A link is accepted from a rank with a higher number, once.
func TestReceiveLink(t *testing.T) {
	m := newMember(1, 4)
	l := &linking{m: m, ctx: t.Context(), conns: make([]net.Conn, 4), missing: 3, full: make(chan struct{})}
	for _, test := range []struct {
		m    message
		want bool
	}{
		{message{Kind: hello, Rank: 2}, false},
		{message{Kind: link, Rank: 0}, false},
		{message{Kind: link, Rank: 1}, false},
		{message{Kind: link, Rank: 4}, false},
		{message{Kind: link, Rank: -1}, false},
		{message{Kind: link, Rank: 2}, true},
		{message{Kind: link, Rank: 2}, false},
	} {
		had := l.missing
		l.receiveLink(&told{hello: bytes.NewReader(test.m.encode()), wrote: func([]byte) {}}, func() bool { return true })
		if got := l.missing < had; got != test.want {
			t.Errorf("%+v: accepted %v", test.m, got)
		}
	}
}

// A link must come from a rank, and prove it.
func TestLinkStrangers(t *testing.T) {
	members, _ := meet(t, point(t, 2))
	bad := members[0].listen.Addr().String()
	var refused sync.WaitGroup
	own := members[0].key
	for name, test := range map[string]struct {
		key     *auth.Key
		purpose string
		m       message
	}{
		"another meeting's key": {own.Child(nil), linkPurpose(0), message{Kind: link, Rank: 1}},
		"another rank's link":   {own, linkPurpose(1), message{Kind: link, Rank: 1}},
		"of rank 0":             {own, linkPurpose(0), message{Kind: link, Rank: 0}},
		"of no rank":            {own, linkPurpose(0), message{Kind: link, Rank: 2}},
		"a hello":               {own, linkPurpose(0), message{Kind: hello, Rank: 1}},
	} {
		c, err := net.Dial("tcp", bad)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		refused.Go(func() {
			proved, err := test.key.Dial(c, test.purpose)
			if err != nil {
				return
			}
			proved.Write(test.m.encode())
			if rest, _ := io.ReadAll(proved); len(rest) > 0 {
				t.Errorf("%s: answered %q", name, rest)
			}
		})
	}
	ctx := within(t)
	done := make(chan error, 2)
	for _, m := range members {
		go func() {
			links, err := m.Links(ctx)
			if err == nil {
				links[1-m.Rank].Close()
			}
			done <- err
		}()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	refused.Wait()
}

func TestLinkUnreachable(t *testing.T) {
	o := point(t, 2)
	o.Limit = 4 * time.Second // the hub waits for a quarter of it
	members, _ := meet(t, o)
	members[0].listen.Close()
	if _, err := members[1].Links(within(t)); err != members[1].Err() {
		t.Errorf("got %v", err)
	}
	for _, m := range members {
		losing(t, m, 0, "rank 1 on here cannot reach it: ")
	}
}
