package ring

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func unsupported(n *node, err error) {
	if !errors.Is(err, driver.ErrUnsupported) {
		n.t.Errorf("rank %d: %v, want driver.ErrUnsupported", n.rank, err)
	}
}

func pattern(from, to, size int) []byte {
	b := make([]byte, period)
	for i := range b {
		b[i] = byte(i*3 + i>>9 + from*31 + to*7)
	}
	return repeat(b, size)
}

// All ranks send to all, themselves included, far more than sockets hold.
func TestAllToAll(t *testing.T) {
	const ranks, size = 3, 2<<20 + 1
	for _, setup := range setups[:3] {
		t.Run(setup.name, func(t *testing.T) {
			nodes := start(t, ranks, setup.open, setup.join)
			each(nodes, func(n *node) {
				var group []comm.Call
				var results []comm.Operand
				for peer := range ranks {
					results = append(results, n.memory(make([]byte, size)))
					group = append(group,
						comm.Call{Kind: comm.Send, Type: dtype.Uint8, N: size, Peer: peer, Src: n.memory(pattern(n.rank, peer, size))},
						comm.Call{Kind: comm.Recv, Type: dtype.Uint8, N: size, Peer: peer, Dst: results[peer]})
				}
				check(t, n.do(group...))
				for peer, r := range results {
					same(t, "all to all", n.rank, n.read(r, size), pattern(peer, n.rank, size))
				}
			})
		})
	}
}

// Sends and receives of a group go beside its collectives: one rank's group is the other's single calls, in either order.
func TestGroupsMeetSingleCalls(t *testing.T) {
	const size = 1 << 20
	for i := range 2 * len(setups) {
		setup, sendFirst := setups[i/2], i%2 == 0
		t.Run(fmt.Sprintf("%s/%v", setup.name, sendFirst), func(t *testing.T) {
			nodes := start(t, 2, setup.open, setup.join)
			each(nodes, func(n *node) {
				a, b := n.memory(pattern(n.rank, 0, size)), n.memory(make([]byte, size))
				sum := comm.Call{Kind: comm.AllReduce, Op: comm.Max, Type: dtype.Uint8, N: size, Src: a, Dst: a}
				send := comm.Call{Kind: comm.Send, Type: dtype.Uint8, N: size, Peer: 1, Src: n.memory(pattern(5, 6, size))}
				recv := comm.Call{Kind: comm.Recv, Type: dtype.Uint8, N: size, Peer: 0, Dst: b}
				switch {
				case n.rank == 0:
					check(t, n.do(send, sum, sum, send))
				case sendFirst:
					check(t, errors.Join(n.do(recv), n.do(sum), n.do(recv), n.do(sum)))
				default:
					check(t, errors.Join(n.do(sum), n.do(sum, recv), n.do(recv)))
				}
				want := pattern(0, 0, size)
				for i, v := range pattern(1, 0, size) {
					want[i] = max(want[i], v)
				}
				same(t, "all-reduce", n.rank, n.read(a, size), want)
				if n.rank == 1 {
					same(t, "recv", n.rank, n.read(b, size), pattern(5, 6, size))
				}
			})
		})
	}
}

// Calls on several streams keep the order in which they were queued, although the streams have none.
func TestStreams(t *testing.T) {
	const rounds = 50
	nodes := start(t, 3, openHost, joinTCP)
	each(nodes, func(n *node) {
		other, err := n.dev.NewStream(driver.StreamOptions{})
		check(t, err)
		streams := []driver.Stream{n.stream, other}
		var places []comm.Operand
		for i := range rounds {
			places = append(places, n.memory([]byte{byte(i)}))
		}
		check(t, n.sync())
		for i, a := range places {
			// Every rank spreads them in its own way.
			s := streams[(i*(n.rank+1)/2+n.rank)%2]
			check(t, n.Queue(s, comm.Call{Kind: comm.AllReduce, Type: dtype.Uint8, N: 1, Src: a, Dst: a}))
		}
		check(t, other.Sync(t.Context()))
		check(t, n.sync())
		for i, a := range places {
			same(t, "all-reduce", n.rank, n.read(a, 1), []byte{byte(3 * i)})
		}
	})
}

// Queue of a host device does not wait: one goroutine queues for all ranks.
func TestQueueDoesNotWait(t *testing.T) {
	nodes := start(t, 3, openHost, joinLocal)
	var places []comm.Operand
	for _, n := range nodes {
		a := n.memory(make([]byte, 1<<20))
		places = append(places, a)
		check(t, n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 1 << 20, Src: a, Dst: a}))
	}
	for i, n := range nodes {
		check(t, n.sync())
		n.free(places[i])
	}
}

// Ranks may share a device, each with a stream of its own.
func TestOneDevice(t *testing.T) {
	dev := openHost(t)
	nodes := start(t, 3, func(testing.TB) driver.Device { return dev }, joinLocal)
	x := newSample(3, dtype.Float16, 1000, comm.Sum)
	each(nodes, func(n *node) {
		a := n.memory(x.own[n.rank])
		check(t, n.do(comm.Call{Kind: comm.AllReduce, Type: x.typ, N: x.count, Src: a, Dst: a}))
		same(t, "all-reduce", n.rank, n.read(a, len(x.total)), x.total)
	})
}

func TestRefusals(t *testing.T) {
	if _, err := Local(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Local of nothing: %v", err)
	}
	t.Run("host", func(t *testing.T) { refusals(start(t, 1, openHost, joinLocal)[0]) })
	t.Run("sim", func(t *testing.T) { refusals(start(t, 1, openSim, joinLocal)[0]) })
}

func TestNewPanics(t *testing.T) {
	link, other := net.Pipe()
	defer link.Close()
	defer other.Close()
	dev := openHost(t)
	defer dev.Close()
	for what, c := range map[string]struct {
		rank, size int
		links      []net.Conn
	}{
		"no rank":           {0, 0, nil},
		"a negative rank":   {-1, 2, []net.Conn{nil, link}},
		"a rank too large":  {2, 2, []net.Conn{nil, link}},
		"too few links":     {0, 2, []net.Conn{nil}},
		"a link is missing": {0, 3, []net.Conn{nil, link, nil}},
	} {
		testkit.WantPanic(t, what, "ring: rank", func() { New(dev, c.rank, c.size, c.links) })
	}
}

func refusals(n *node) {
	a := n.memory(make([]byte, 4))
	reduce := comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: 4, Src: a, Dst: a}
	unsupported(n, n.Queue(n.stream, reduce, comm.Call{Kind: comm.AllReduce, Type: dtype.Bool, N: 4, Src: a, Dst: a}))
	check(n.t, n.dev.Graphs().Begin(n.stream))
	refused(n, "in a capture", driver.ErrCapturing, reduce)
	_, err := n.dev.Graphs().End(n.stream)
	check(n.t, err)
	check(n.t, n.do(reduce))
	check(n.t, n.Close())
	refused(n, "after Close", driver.ErrClosed, reduce)
	check(n.t, n.Err())
}

func refused(n *node, what string, want error, calls ...comm.Call) {
	if err := n.Queue(n.stream, calls...); !errors.Is(err, want) {
		n.t.Errorf("%s: %v, want %v", what, err, want)
	}
}
