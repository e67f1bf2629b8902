package rendezvous

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// bound is longer than any test here takes: a test that reaches it hangs.
const bound = 30 * time.Second

// point returns the options of a meeting without other ranks.
func point(t testing.TB, size int) Options {
	t.Helper()
	id := make([]byte, 8)
	if _, err := crand.Read(id); err != nil {
		t.Fatal(err)
	}
	const ports = 8
	return Options{
		Size: size, Host: "127.0.0.1", Port: testkit.Ports(t, ports), Ports: ports, Key: auth.NewKey(id, "run", false),
		Limit: bound, Me: Peer{Host: "here"},
		Decide: func(peers []Peer) ([]byte, error) { return fmt.Appendf(nil, "%d peers", len(peers)), nil },
	}
}

func (o Options) as(rank int) Options {
	o.Rank = rank
	o.Me.Device = fmt.Sprint("device ", rank)
	return o
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), bound, errors.New("hung"))
	t.Cleanup(cancel)
	return ctx
}

// coming lets a rank come, and returns its future result.
func coming(ctx context.Context, o Options) func() (*Member, error) {
	var m *Member
	var err error
	var came sync.WaitGroup
	came.Go(func() { m, err = Meet(ctx, o) })
	return func() (*Member, error) {
		came.Wait()
		return m, err
	}
}

// completes lets rank 1 come, the last one that host waits for, and closes both.
func completes(t *testing.T, ctx context.Context, o Options, host func() (*Member, error)) {
	t.Helper()
	m1, err := coming(ctx, o.as(1))()
	if err != nil {
		t.Fatal(err)
	}
	m0, err := host()
	if err != nil {
		t.Fatal(err)
	}
	m0.Close()
	m1.Close()
}

// meet brings ranks together; those in fakes are connections that this test speaks on by itself.
func meet(t testing.TB, o Options, fakes ...int) (members []*Member, spoken map[int]net.Conn) {
	t.Helper()
	ctx := within(t)
	waits := make([]func() (*Member, error), o.Size)
	spoken = map[int]net.Conn{}
	for rank := range o.Size {
		if !slices.Contains(fakes, rank) {
			waits[rank] = coming(ctx, o.as(rank))
		}
	}
	for _, rank := range fakes {
		deaf, err := net.Listen("tcp", "127.0.0.1:0") // for links, which get no answer
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deaf.Close() })
		peer := Peer{Host: "nowhere", Port: deaf.Addr().(*net.TCPAddr).Port}
		spoken[rank] = enter(t, o, message{Kind: hello, Rank: rank, Size: o.Size, Peer: &peer})
		if m := hearing(t, spoken[rank]); m.Kind != accept {
			t.Fatalf("rank %d: %v", rank, m)
		}
	}
	members = make([]*Member, o.Size)
	for rank, wait := range waits {
		if wait == nil {
			continue
		}
		m, err := wait()
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		t.Cleanup(m.Close)
		members[rank] = m
	}
	return members, spoken
}

// dialPoint connects to the meeting point once there is a listener.
func dialPoint(t testing.TB, o Options) net.Conn {
	t.Helper()
	for ctx := within(t); ; {
		c, err := net.Dial("tcp", o.address(0))
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// enter connects to the meeting point, proves that it is of the run, and sends a message.
func enter(t testing.TB, o Options, m message) net.Conn {
	t.Helper()
	c, err := o.Key.Dial(dialPoint(t, o), meetingPurpose)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(m.encode()); err != nil {
		t.Fatal(err)
	}
	return c
}

// hearing returns the next message that is no ping.
func hearing(t testing.TB, c net.Conn) message {
	t.Helper()
	for {
		m, err := read(c, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind != ping {
			return m
		}
	}
}

func TestMeet(t *testing.T) {
	for size := 2; size <= 5; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			o := point(t, size)
			if size > 3 {
				o.Key = auth.NewKey([]byte("a secret of 20 bytes"), t.Name(), true)
			}
			members, _ := meet(t, o)
			ctx := within(t)
			var ranks sync.WaitGroup
			for rank, m := range members {
				ranks.Go(func() {
					if string(m.Shared) != fmt.Sprintf("%d peers", size) || m.Rank != rank || len(m.Peers) != size || m.Limit != bound {
						t.Errorf("rank %d: %q %+v", rank, m.Shared, m.Peers)
						return
					}
					for i, p := range m.Peers {
						if p.Rank != i || p.Device != fmt.Sprint("device ", i) || p.Host != "here" {
							t.Errorf("rank %d knows %+v", rank, p)
						}
					}
					links, err := m.Links(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					for to, c := range links {
						if c != nil {
							defer c.Close()
							c.Write([]byte{byte(10*rank + to)})
						}
					}
					for from, c := range links {
						b := []byte{0}
						if c != nil {
							io.ReadFull(c, b)
						}
						if (c == nil) != (from == rank) || c != nil && int(b[0]) != 10*from+rank {
							t.Errorf("rank %d: the link to %d carries %d", rank, from, b[0])
						}
					}
					for range 10 {
						if err := m.Barrier(ctx); err != nil {
							t.Error(err)
						}
					}
					if err := m.Leave(ctx); err != nil {
						t.Error(err)
					}
					m.Close()
					if m.Err() != nil {
						t.Error(m.Err())
					}
				})
			}
			ranks.Wait()
		})
	}
}

// The meeting point may be given as any address or name of rank 0's machine.
func TestAddresses(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"localhost", "127.0.0.1"}
	for _, host := range []string{"::1", name} {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil { // this machine has it
			l.Close()
			hosts = append(hosts, host)
		}
	}
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			o := point(t, 3)
			o.Host = host
			members, _ := meet(t, o)
			var ranks sync.WaitGroup
			for _, m := range members {
				ranks.Go(func() {
					links, err := m.Links(within(t))
					if err != nil {
						t.Errorf("rank %d: %v", m.Rank, err)
					}
					for _, c := range links {
						if c != nil {
							c.Close()
						}
					}
				})
			}
			ranks.Wait()
		})
	}
}

// A barrier releases no rank before all have reached it.
func TestBarrier(t *testing.T) {
	members, _ := meet(t, point(t, 3))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range members[:2] { // they have come all the same
		if err := m.Barrier(over); !errors.Is(err, context.Canceled) {
			t.Errorf("it did not wait for rank 2: %v", err)
		}
	}
	if err := members[2].Barrier(within(t)); err != nil {
		t.Error(err)
	}
}

// A barrier to which not all came ends when all have left.
func TestBarrierAndNoMore(t *testing.T) {
	for name, members := range map[string][]*Member{"local": NewLocal(2, "here", bound), "joined": nil} {
		t.Run(name, func(t *testing.T) {
			if members == nil {
				members, _ = meet(t, point(t, 2))
			}
			ctx := within(t)
			ended := make(chan error)
			go func() { ended <- members[0].Barrier(ctx) }()
			for _, m := range members {
				m.Depart()
			}
			if err := <-ended; !errors.Is(err, ErrLeft) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A rank of this run whose hello is wrong is told the reason, and the meeting goes on.
func TestWrongHello(t *testing.T) {
	o := point(t, 2)
	ctx := within(t)
	host := coming(ctx, o.as(0))
	me := &Peer{Host: "elsewhere"}
	half := enter(t, o, message{Kind: leave}) // it is closed: see below
	if rest, _ := io.ReadAll(half); len(rest) > 0 {
		t.Errorf("answered %q", rest)
	}
	part, err := o.Key.Dial(dialPoint(t, o), meetingPurpose)
	if err != nil {
		t.Fatal(err)
	}
	part.Write(message{Kind: hello, Rank: 1, Size: 2, Peer: me}.encode()[:20]) // and no more

	good := message{Kind: hello, Rank: 1, Size: 2, Peer: me}
	oldVersion, tooLong := good.encode(), good.encode()
	oldVersion[4]++
	tooLong[11] = 0x7f
	noPeer := good
	noPeer.Peer = nil
	for name, b := range map[string][]byte{
		"version": oldVersion, "length": tooLong, "no peer": noPeer.encode(), "nonsense": []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"),
	} {
		c, err := o.Key.Dial(dialPoint(t, o), meetingPurpose)
		if err != nil {
			t.Fatal(err)
		}
		c.Write(b)
		if rest, _ := io.ReadAll(c); len(rest) > 0 { // an end or a reset
			t.Errorf("%s: answered %q", name, rest)
		}
	}

	for want, m := range map[string]message{
		"its size is 3 ranks, but that of rank 0 is 2":          {Kind: hello, Rank: 1, Size: 3, Peer: me},
		"its rank is 2: want 1 to 1":                            {Kind: hello, Rank: 2, Size: 2, Peer: me},
		"its rank is 0: want 1 to 1":                            {Kind: hello, Rank: 0, Size: 2, Peer: me},
		fmt.Sprintf("its rank is %d: want 1 to 1", math.MinInt): {Kind: hello, Rank: math.MinInt, Size: 2, Peer: me},
	} {
		c := enter(t, o, m)
		if got := hearing(t, c); got.Kind != refuse || !strings.HasPrefix(got.Text, want) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}

	completes(t, ctx, o, host)
}

// Of two ranks with one number the second is turned away at once.
func TestSameNumber(t *testing.T) {
	o := point(t, 3)
	ctx, cancel := context.WithCancelCause(within(t))
	host := coming(ctx, o.as(0))
	first := enter(t, o, message{Kind: hello, Rank: 1, Size: 3, Peer: &Peer{Host: "first"}})
	if m := hearing(t, first); m.Kind != accept {
		t.Fatal(m)
	}
	_, err := Meet(ctx, o.as(1))
	if err == nil || !strings.Contains(err.Error(), "rank 1: rank 0 turned it away: there is a rank 1 already, on first") {
		t.Errorf("the second: %v", err)
	}
	cause := errors.New("enough of it")
	cancel(cause)
	if m := hearing(t, first); m.Kind != refuse || !strings.Contains(m.Text, "enough of it") || !slices.Equal(m.Missing, []int{2}) {
		t.Errorf("the first was told %+v", m)
	}
	first.Close()
	_, err = host()
	var e *MeetError
	if !errors.As(err, &e) || !errors.Is(err, cause) || !slices.Equal(e.Missing, []int{2}) ||
		len(e.Refused) != 1 || !strings.Contains(e.Refused[0], "there is a rank 1 already") {
		t.Errorf("rank 0: %v", err)
	}
}

// told is a connection that reads hello and calls wrote with each message written to it.
type told struct {
	net.Conn
	hello io.Reader
	wrote func([]byte)
}

func (c *told) Read(b []byte) (int, error) { return c.hello.Read(b) }

func (c *told) Write(b []byte) (int, error) {
	c.wrote(b)
	return len(b), nil
}

func (c *told) Close() error { return nil }

func (c *told) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// The error of a meeting lists a rank that was turned away even if the meeting fails as soon as the rank knows of it.
func TestDefect27_RefusalIsKnownBeforeItIsTold(t *testing.T) {
	g := &meeting{o: Options{Size: 2, Limit: bound}}
	hello := message{Kind: hello, Rank: 1, Size: 3, Peer: &Peer{Host: "there"}}.encode()
	answers := 0
	g.receiveHello(&told{hello: bytes.NewReader(hello), wrote: func([]byte) {
		answers++
		var e *MeetError
		if err := g.fail(errors.New("over")); !errors.As(err, &e) || len(e.Refused) != 1 ||
			!strings.Contains(e.Refused[0], "its size is 3") {
			t.Errorf("the meeting's error: %v", err)
		}
	}}, func() bool { return true })
	if answers != 1 {
		t.Errorf("the rank got %d answers, want 1", answers)
	}
}

// A rank that goes before all are here has not come, and may come again.
func TestComesAgain(t *testing.T) {
	o := point(t, 2)
	ctx := within(t)
	host := coming(ctx, o.as(0))
	three := point(t, 3) // keeps the meeting of o from being complete
	three.Port, three.Key = o.Port, o.Key
	for range 3 {
		c := enter(t, o, message{Kind: hello, Rank: 1, Size: 3, Peer: &Peer{}})
		hearing(t, c)
		c.Close()
	}
	again, err := coming(ctx, o.as(1))()
	if err != nil {
		t.Fatal(err)
	}
	m, err := host()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	m.Close()
}

// The first port is another program's, the second that of another run.
func TestPortsTaken(t *testing.T) {
	o := point(t, 2)
	taken, err := net.Listen("tcp", o.address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	go func() {
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 mail.example ESMTP\r\n"))
			c.Close()
		}
	}()
	ctx, cancel := context.WithCancel(within(t))
	other := o
	other.Key, other.Port, other.Ports = auth.NewKey(nil, "another run", false), o.Port+1, 7
	others := coming(ctx, other.as(0))
	c := dialPoint(t, other) // it is there
	c.Close()
	members, _ := meet(t, o)
	cancel()
	if _, err := others(); !errors.Is(err, context.Canceled) {
		t.Errorf("the other run: %v", err)
	}
	if members[0].Err() != nil || members[1].Err() != nil {
		t.Error("lost")
	}
}

func TestAllPortsTaken(t *testing.T) {
	o := point(t, 2)
	o.Ports = 1
	taken, err := net.Listen("tcp", o.address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := Meet(within(t), o.as(0)); err == nil || !strings.Contains(err.Error(), "rank 0 cannot listen") {
		t.Errorf("got %v", err)
	}
}

// An error of rank 0's decision ends the meeting for all.
func TestUndecided(t *testing.T) {
	o := point(t, 3)
	o.Decide = func([]Peer) ([]byte, error) { return nil, errors.New("these do not fit") }
	ctx := within(t)
	var waits []func() (*Member, error)
	for rank := range 3 {
		waits = append(waits, coming(ctx, o.as(rank)))
	}
	for rank, wait := range waits {
		var e *MeetError
		if _, err := wait(); !errors.As(err, &e) || !strings.Contains(err.Error(), "these do not fit") || len(e.Missing) > 0 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank whose time is up asks rank 0, which tells all.
func TestGivesUp(t *testing.T) {
	o, ctx := point(t, 4), within(t)
	host := coming(ctx, o.as(0))
	a, err := dial(ctx, o.as(2), 0)
	for err != nil { // rank 0 does not listen yet
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		a, err = dial(ctx, o.as(2), 0)
	}
	defer a.listen.Close()
	cause := errors.New("out of patience")
	over, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	_, err = awaitStart(over, o.as(2), a)
	var e *MeetError
	if !errors.As(err, &e) || !errors.Is(err, cause) || !slices.Equal(e.Missing, []int{1, 3}) {
		t.Errorf("rank 2: %v", err)
	}
	if _, err := host(); !errors.As(err, &e) || !strings.Contains(err.Error(), "rank 2 waits no longer: out of patience") ||
		!slices.Equal(e.Missing, []int{1, 3}) {
		t.Errorf("rank 0: %v", err)
	}
}
