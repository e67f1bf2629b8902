package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// Calls that do not match are an error on every rank that names two differing calls, and no later call works.
func TestMismatch(t *testing.T) {
	base := comm.Call{Kind: comm.AllReduce, Type: dtype.Int32, N: 100}
	with := func(change func(c *comm.Call)) comm.Call {
		c := base
		change(&c)
		return c
	}
	for _, c := range []struct {
		name  string
		ranks int
		calls func(rank int) []comm.Call // a group
		odd   int                        // the rank that differs from all others
	}{
		{"count", 2, odd(1, base, with(func(c *comm.Call) { c.N = 99 })), 1},
		{"none", 3, odd(1, base, with(func(c *comm.Call) { c.N = 0 })), 1},
		{"type", 3, odd(0, base, with(func(c *comm.Call) { c.Type = dtype.Float32 })), 0},
		{"op", 4, odd(2, base, with(func(c *comm.Call) { c.Op = comm.Max })), 2},
		{"kind", 4, odd(3, base, with(func(c *comm.Call) { c.Kind = comm.Broadcast })), 3},
		{
			"root", 3, odd(1, comm.Call{Kind: comm.Broadcast, Type: dtype.Int32, N: 100},
				comm.Call{Kind: comm.Broadcast, Type: dtype.Int32, N: 100, Peer: 1}), 1,
		},
		{"a send", 2, odd(1, base, with(func(c *comm.Call) { c.Kind, c.Peer = comm.Send, 0 })), 1},
		{"a receive", 3, odd(2, base, with(func(c *comm.Call) { c.Kind, c.Peer = comm.Recv, 1 })), 2},
		{"both send", 2, odd(1, comm.Call{Kind: comm.Send, Type: dtype.Int32, N: 100, Peer: 1},
			comm.Call{Kind: comm.Send, Type: dtype.Int32, N: 100, Peer: 0}), 1},
		{"both receive", 2, odd(1, comm.Call{Kind: comm.Recv, Type: dtype.Int32, N: 100, Peer: 1},
			comm.Call{Kind: comm.Recv, Type: dtype.Int32, N: 100, Peer: 0}), 1},
		{"what is sent", 2, odd(1, comm.Call{Kind: comm.Send, Type: dtype.Int32, N: 100, Peer: 1},
			comm.Call{Kind: comm.Recv, Type: dtype.Int32, N: 101, Peer: 0}), 1},
	} {
		for _, setup := range setups {
			t.Run(c.name+"/"+setup.name, func(t *testing.T) {
				nodes := start(t, c.ranks, setup.open, setup.join)
				each(nodes, func(n *node) {
					calls := c.calls(n.rank)
					for i := range calls {
						calls[i].Src, calls[i].Dst = n.memory(make([]byte, 400)), n.memory(make([]byte, 404))
					}
					err := n.do(calls...)
					var differ *MismatchError
					if !errors.As(err, &differ) || differ.Rank != c.odd && differ.Peer != c.odd || differ.Rank == differ.Peer ||
						differ.Call == differ.PeerCall {
						t.Errorf("rank %d: %v, want a *MismatchError of rank %d and another", n.rank, err, c.odd)
						return
					}
					if text := err.Error(); !strings.Contains(text, differ.Call.String()) ||
						!strings.Contains(text, differ.PeerCall.String()) {
						t.Errorf("rank %d: %v", n.rank, err)
					}
					if again := n.Queue(n.stream, base); !errors.Is(again, differ) || !errors.Is(n.Err(), differ) {
						t.Errorf("rank %d: then Queue says %v, Err %v", n.rank, again, n.Err())
					}
				})
			})
		}
	}
}

// odd returns one call for one rank, and another for all others.
func odd(rank int, all, its comm.Call) func(int) []comm.Call {
	return func(r int) []comm.Call {
		if r == rank {
			return []comm.Call{its}
		}
		return []comm.Call{all}
	}
}

// A mortal connection dies, with all others of its rank, when it has written so many bytes.
type mortal struct {
	net.Conn
	life *life
}

type life struct {
	left  atomic.Int64
	links []net.Conn
}

func (c mortal) Write(b []byte) (int, error) {
	if c.life.left.Add(-int64(len(b))) < 0 {
		for _, l := range c.life.links {
			if l != nil {
				l.Close()
			}
		}
	}
	return c.Conn.Write(b)
}

// All other ranks name a rank that dies, at any point of a call, and their queued calls end.
func TestDeathOfARank(t *testing.T) {
	const ranks, victim, count = 4, 1, 1 << 19
	for _, size := range []int64{0, 10, 40, 200, 1 << 17, 3 << 19} {
		for _, open := range []func(testing.TB) driver.Device{openHost, openSim} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				nodes := start(t, ranks, open, func(tb testing.TB, devs []driver.Device) []comm.Transport {
					links := tcpLinks(tb, ranks)
					l := &life{links: links[victim]}
					l.left.Store(size)
					transports := make([]comm.Transport, ranks)
					for i, dev := range devs {
						mine := links[i]
						if i == victim {
							mine = make([]net.Conn, ranks)
							for j, c := range links[i] {
								mine[j] = mortal{c, l}
							}
						}
						transports[i] = New(dev, i, ranks, mine)
					}
					return transports
				})
				each(nodes, func(n *node) {
					a := n.memory(make([]byte, 4*count))
					call := comm.Call{Kind: comm.AllReduce, Type: dtype.Int32, N: count, Src: a, Dst: a}
					var err error
					for range 2 { // the second would hang if the first had not failed
						err = errors.Join(err, n.Queue(n.stream, call))
					}
					err = errors.Join(err, n.sync())
					var lost *LinkError
					if !errors.As(err, &lost) || !errors.As(n.Err(), &lost) || n.rank != victim && lost.Peer != victim {
						t.Errorf("rank %d: %v, want a *LinkError of rank %d", n.rank, err, victim)
					}
				})
			})
		}
	}
}

// The end of a link is noticed while nothing is under way.
func TestDeathWhileIdle(t *testing.T) {
	links := tcpLinks(t, 2)
	n := start(t, 2, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
		return []comm.Transport{New(devs[0], 0, 2, links[0]), idle{}}
	})[0]
	check(t, links[1][0].Close())
	var lost *LinkError
	if err := n.Transport.(*transport).wait(func() bool { return false }); !errors.As(err, &lost) || lost.Peer != 1 ||
		!errors.Is(err, io.EOF) || n.Err() != err {
		t.Errorf("%v, and Err says %v", err, n.Err())
	}
}

// idle is a rank that a test plays itself.
type idle struct{ comm.Transport }

func (idle) Close() error { return nil }
func (idle) Abort(error)  {}

// play opens rank 0 of 2, and returns the other end of its connection.
func play(t *testing.T) (*node, net.Conn) {
	links := tcpLinks(t, 2)
	t.Cleanup(func() { links[1][0].Close() })
	return start(t, 2, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
		return []comm.Transport{New(devs[0], 0, 2, links[0]), idle{}}
	})[0], links[1][0]
}

// An invalid frame, or one that is not allowed at this point, is an error; the other side is still read to its end.
func TestNonsense(t *testing.T) {
	call := Call{Number: 1, Type: dtype.Int8, N: 4}
	calls := frame{typ: callFrame, call: call}.append(nil)
	for name, b := range map[string][]byte{
		"another protocol":   []byte("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"),
		"a great length":     frame{typ: dataFrame, call: call, length: 1 << 30}.append(nil),
		"an unknown type":    frame{typ: 99}.append(nil),
		"an unknown kind":    frame{typ: callFrame, call: Call{Kind: 17}}.append(nil),
		"data of no call":    append(frame{typ: dataFrame, call: Call{Number: 9}, length: 1}.append(nil), 1),
		"data of wrong size": append(append(calls[:36:36], frame{typ: dataFrame, call: call, length: 5}.append(nil)...), 1, 2, 3, 4, 5),
		"too many calls":     bytes.Repeat(calls, 4),
		"a bad mismatch":     append(frame{typ: mismatchFrame, length: mismatchBytes}.append(nil), badMismatch()...),
	} {
		t.Run(name, func(t *testing.T) {
			n, other := play(t)
			a := n.memory(make([]byte, 4))
			queued := n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 4, Src: a, Dst: a})
			for _, b := range [][]byte{b, make([]byte, 16<<20)} { // far more than sockets hold
				_, err := other.Write(b)
				check(t, err)
			}
			var lost *LinkError
			if err := errors.Join(queued, n.sync()); !errors.As(err, &lost) || lost.Peer != 1 {
				t.Errorf("%v, want a *LinkError", err)
			}
		})
	}
}

// Data counts for the call that its frame names: data of another call is an error, even if it has the right size.
func TestDataOfAnotherCall(t *testing.T) {
	call := Call{Number: 1, Type: dtype.Int8, N: 4}
	for name, change := range map[string]func(*Call){
		"number": func(c *Call) { c.Number = 2 },
		"op":     func(c *Call) { c.Op = comm.Max },
		"type":   func(c *Call) { c.Type = dtype.Uint8 },
		"length": func(c *Call) { c.N = 5 },
		"kind":   func(c *Call) { c.Kind = comm.AllGather },
	} {
		n, other := play(t)
		a := n.memory(make([]byte, 4))
		queued := n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 4, Src: a, Dst: a})
		wrong := call
		change(&wrong)
		_, err := other.Write(frame{typ: callFrame, call: call}.append(nil))
		check(t, err)
		_, err = io.ReadFull(other, make([]byte, frameBytes)) // its call: the pass has begun
		check(t, err)
		_, err = other.Write(append(frame{typ: dataFrame, call: wrong, length: 2}.append(nil), 1, 2))
		check(t, err)
		check(t, other.(*net.TCPConn).CloseWrite())
		if err := errors.Join(queued, n.sync()); err == nil || !strings.Contains(err.Error(), "in which this rank does not take part") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rank that closes in the middle of a call, as none should, is named to those that wait for its data.
func TestClosesDuringACall(t *testing.T) {
	n, other := play(t)
	a := n.memory(make([]byte, 4))
	queued := n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 4, Src: a, Dst: a})
	_, err := other.Write(frame{typ: byeFrame}.append(frame{typ: callFrame, call: Call{Number: 1, Type: dtype.Int8, N: 4}}.append(nil)))
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it hangs
	defer cancel()
	var lost *LinkError
	if err := errors.Join(queued, n.stream.Sync(ctx)); !errors.As(err, &lost) || lost.Peer != 1 || !errors.Is(err, errLeft) {
		t.Errorf("%v, want that rank 1 has closed", err)
		n.Abort(errTest)
	}
}

// If a rank reports the failure of a rank that does not exist, the failure counts as its own: the rank named is always
// one of the ranks.
func TestUnknownRank(t *testing.T) {
	n, other := play(t)
	_, err := other.Write(append(frame{typ: lostFrame, length: 3, call: Call{Peer: 1 << 30}}.append(nil), "why"...))
	check(t, err)
	var lost *LinkError
	if err := n.Transport.(*transport).wait(func() bool { return false }); !errors.As(err, &lost) || lost.Peer != 1 {
		t.Errorf("%v, want a *LinkError of rank 1", err)
	}
}

// Close does not wait for a rank that reads nothing, once the transport has failed.
func TestCloseAfterFailure(t *testing.T) {
	mine, other := net.Pipe()
	defer other.Close()
	n := start(t, 2, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
		return []comm.Transport{New(devs[0], 0, 2, []net.Conn{nil, mine}), idle{}}
	})[0]
	_, err := other.Write(make([]byte, frameBytes))
	check(t, err)
	if err := n.Transport.(*transport).wait(func() bool { return false }); err == nil {
		t.Error("a frame of zeros was taken")
	}
	check(t, n.Close())
}

// Abort ends a Close that is telling ranks none of which reads.
func TestAbortEndsClose(t *testing.T) {
	mine := make([]net.Conn, 3)
	writing := make(chan bool, len(mine))
	for i := range mine[1:] {
		c, other := net.Pipe()
		defer other.Close()
		mine[i+1] = noisy{c, writing}
	}
	n := start(t, 2, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
		return []comm.Transport{New(devs[0], 0, 3, mine), idle{}}
	})[0]
	closed := make(chan error)
	go func() { closed <- n.Close() }()
	<-writing
	n.Abort(errTest)
	check(t, <-closed)
}

// A noisy connection signals every write.
type noisy struct {
	net.Conn
	writing chan<- bool
}

func (c noisy) Write(b []byte) (int, error) {
	c.writing <- true
	return c.Conn.Write(b)
}

func badMismatch() []byte {
	b := appendMismatch(nil, &MismatchError{})
	b[4+20] = 77
	return b
}

// Abort ends a wait for a rank that has not come, and informs the other waiting ranks.
func TestAbortWhileWaiting(t *testing.T) {
	cause := errors.New("the user has gone")
	for _, setup := range setups {
		t.Run(setup.name, func(t *testing.T) {
			nodes := start(t, 3, setup.open, setup.join)
			each(nodes, func(n *node) {
				if n.rank == 2 {
					nodes[0].Abort(cause)
					nodes[0].Abort(errors.New("another"))
					return
				}
				a := n.memory(make([]byte, 1<<20))
				call := comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 1 << 20, Src: a, Dst: a}
				err := errors.Join(n.Queue(n.stream, call), n.sync())
				again := n.Queue(n.stream, call)
				if n.rank == 0 && (!errors.Is(err, cause) || !errors.Is(again, cause) || !errors.Is(n.Err(), cause)) {
					t.Errorf("rank 0: %v, then %v, Err says %v", err, again, n.Err())
				}
				var lost *LinkError
				if n.rank == 1 && (!errors.As(err, &lost) || lost.Peer != 0 || !errors.Is(again, lost)) {
					t.Errorf("rank 1: %v, then %v", err, again)
				}
				n.free(a)
			})
		})
	}
}

// Abort ends a write to a rank that does not read, and later calls.
func TestAbortWhileWriting(t *testing.T) {
	const size = 256 << 20 >> 2
	n, other := play(t)
	a := n.memory(make([]byte, size))
	send := comm.Call{Kind: comm.Send, Type: dtype.Int8, N: size, Src: a, Peer: 1}
	check(t, n.Queue(n.stream, send))
	check(t, n.Queue(n.stream, send))
	_, err := other.Write(frame{typ: callFrame, call: Call{Number: 1, Kind: comm.Recv, Type: dtype.Int8, N: size}}.append(nil))
	check(t, err)
	_, err = io.ReadFull(other, make([]byte, 1<<20)) // it is writing
	check(t, err)
	cause := errors.New("enough")
	n.Abort(cause)
	if err := n.sync(); !errors.Is(err, cause) {
		t.Errorf("%v, want %v", err, cause)
	}
	n.free(a)
}

// Abort in the middle, at any moment, leaves memory that can be freed at once, and no rank that waits.
func TestAbortAtAnyTime(t *testing.T) {
	const ranks, size = 3, 1 << 20
	for _, setup := range setups[:2] {
		for round := range 10 {
			t.Run(fmt.Sprint(setup.name, round), func(t *testing.T) {
				nodes := start(t, ranks, setup.open, setup.join)
				var done atomic.Int64
				each(nodes, func(n *node) {
					a, b := n.memory(make([]byte, size)), n.memory(make([]byte, size*ranks))
					check(t, n.sync())
					var err error
					for i := range 6 {
						err = errors.Join(err, n.Queue(n.stream,
							comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: size, Src: a, Dst: a},
							comm.Call{Kind: comm.ReduceScatter, Type: dtype.Int8, N: size, Src: b, Dst: a},
							comm.Call{Kind: comm.Send, Type: dtype.Int8, N: size, Src: a, Peer: (n.rank + 1) % ranks},
							comm.Call{Kind: comm.Recv, Type: dtype.Int8, N: size, Dst: b, Peer: (n.rank + ranks - 1) % ranks},
						))
						if i == round/2 && n.rank == round%ranks {
							done.Add(1)
							n.Abort(errTest)
						}
					}
					err = errors.Join(err, n.sync())
					n.free(a, b)
					if err == nil {
						t.Errorf("rank %d noticed nothing", n.rank)
					}
				})
				if done.Load() != 1 {
					t.Errorf("%d aborts", done.Load())
				}
			})
		}
	}
}

// A call that fails ends after the reader has left its memory: the caller may free it.
func TestReaderLeavesMemory(t *testing.T) {
	for _, join := range []func(testing.TB, []driver.Device) []comm.Transport{joinLocal, joinTCP} {
		t.Run("", func(t *testing.T) {
			nodes := start(t, 2, openHost, join)
			mine, theirs := nodes[0].Transport.(*transport), nodes[1].Transport.(*transport)
			l, call := mine.links[1], Call{Number: 1, Type: dtype.Uint8, N: 1}
			entered, leave := make(chan bool), make(chan bool)
			var left atomic.Bool
			in := &incoming{call: call, frames: 1, place: func(int) destination {
				return destination{dst: make([]byte, 1), own: make([]byte, 1), fold: func(_, _, _ []byte) {
					entered <- true
					<-leave
					left.Store(true)
				}}
			}}
			mine.mu.Lock()
			l.incoming[collective] = in
			mine.mu.Unlock()
			go theirs.links[0].write(frame{typ: dataFrame, call: call}, []byte{1})
			<-entered
			_ = mine.fail(errTest, false)
			ended := make(chan bool)
			go func() {
				l.end(in)
				ended <- left.Load()
			}()
			for range 1000 {
				runtime.Gosched()
			}
			close(leave)
			if !<-ended {
				t.Error("the reader was still there")
			}
		})
	}
}

// A rank that closes has not died; who needs it after that learns that it has closed.
func TestCloseIsNoDeath(t *testing.T) {
	for _, setup := range setups {
		t.Run(setup.name, func(t *testing.T) {
			nodes := start(t, 3, setup.open, setup.join)
			var places []comm.Operand
			each(nodes, func(n *node) {
				a := n.memory(make([]byte, 1<<20))
				check(t, n.do(comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 1 << 20, Src: a, Dst: a}))
				if n.rank == 0 {
					places = append(places, a)
				}
			})
			check(t, nodes[2].Close())
			check(t, nodes[1].Close())
			n := nodes[0]
			check(t, n.Err())
			err := n.do(comm.Call{Kind: comm.Send, Type: dtype.Int8, N: 1000, Src: places[0], Peer: 2})
			var lost *LinkError
			if !errors.As(err, &lost) || lost.Peer != 2 || !errors.Is(err, errLeft) {
				t.Errorf("%v, want that rank 2 has closed", err)
			}
		})
	}
}

// A wire whose send fails while a bye frame is on its way: received once here is closed, as is the end after it.
type parting struct{ here chan struct{} }

func (parting) send(_, _ []byte) error { return io.ErrClosedPipe }
func (parting) Close() error           { return nil }

func (p parting) receive(b []byte) error {
	select {
	case <-p.here:
		return io.EOF
	default:
	}
	<-p.here
	copy(b, frame{typ: byeFrame}.append(nil))
	return nil
}

func (p parting) receiveInPlace(int, func([]byte)) (int, error) { return 0, io.EOF }

// A send that fails because the other rank has closed says so, even if its bye frame arrives only then.
func TestByeAfterAFailedSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := openHost(t)
		w := parting{make(chan struct{})}
		tr := newTransport(dev, 0, []wire{nil, w})
		sent := make(chan error, 1)
		go func() { sent <- tr.links[1].write(frame{typ: callFrame}, nil) }()
		synctest.Wait()
		close(w.here)
		var lost *LinkError
		if err := <-sent; !errors.As(err, &lost) || lost.Peer != 1 || !errors.Is(err, errLeft) || err != tr.Err() {
			t.Errorf("%v, and Err says %v; want that rank 1 has closed", err, tr.Err())
		}
		check(t, errors.Join(tr.Close(), dev.Close()))
	})
}

// A rank may close as soon as its own work is done, even if others still work: no rank takes that for a failure or
// reports one.
func TestAllCloseAtOnce(t *testing.T) {
	const ranks, rounds = 4, 100
	for _, setup := range setups[:2] {
		t.Run(setup.name, func(t *testing.T) {
			for range rounds {
				devs := make([]driver.Device, ranks)
				for i := range devs {
					devs[i] = openHost(t)
				}
				var nodes []*node
				for i, tr := range setup.join(t, devs) {
					nodes = append(nodes, &node{t, i, devs[i], devs[i].DefaultStream(), tr})
				}
				each(nodes, func(n *node) {
					check(t, n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Type: dtype.Int8}))
					check(t, n.Queue(n.stream, comm.Call{Kind: comm.AllGather, Type: dtype.Int8}))
					check(t, n.Close())
					if err := errors.Join(n.Err(), n.sync(), n.dev.Close()); err != nil {
						t.Errorf("rank %d: %v", n.rank, err)
					}
				})
			}
		})
	}
	noGoroutines()
}
