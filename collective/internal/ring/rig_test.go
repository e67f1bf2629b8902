package ring

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
)

// A node is a rank with its device.
type node struct {
	t      testing.TB
	rank   int
	dev    driver.Device
	stream driver.Stream
	comm.Transport
}

// setups are the ways in which ranks are joined, and the devices that they have.
var setups = []struct {
	name string
	open func(testing.TB) driver.Device
	join func(testing.TB, []driver.Device) []comm.Transport
}{
	{"host/local", openHost, joinLocal},
	{"host/tcp", openHost, joinTCP},
	{"sim/local", openSim, joinLocal},
	{"sim/tcp", openSim, joinTCP},
}

func openHost(tb testing.TB) driver.Device {
	dev, err := host.Open(host.Options{})
	check(tb, err)
	return dev
}

func openSim(tb testing.TB) driver.Device { return drivertest.OpenSim(tb, 0) }

func joinLocal(tb testing.TB, devs []driver.Device) []comm.Transport {
	transports, err := Local(devs)
	check(tb, err)
	return transports
}

func joinTCP(tb testing.TB, devs []driver.Device) []comm.Transport {
	links := tcpLinks(tb, len(devs))
	transports := make([]comm.Transport, len(devs))
	for i, dev := range devs {
		transports[i] = New(dev, i, len(devs), links[i])
	}
	return transports
}

// tcpLinks connects ranks over the loopback interface.
func tcpLinks(tb testing.TB, n int) [][]net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(tb, err)
	defer l.Close()
	links := make([][]net.Conn, n)
	for i := range links {
		links[i] = make([]net.Conn, n)
		for j := range i {
			links[i][j], err = net.Dial("tcp", l.Addr().String())
			check(tb, err)
			links[j][i], err = l.Accept()
			check(tb, err)
		}
	}
	return links
}

// start opens n ranks that close, and leave no goroutine behind, when the test ends.
func start(tb testing.TB, n int, open func(testing.TB) driver.Device,
	join func(testing.TB, []driver.Device) []comm.Transport,
) []*node {
	devs := make([]driver.Device, n)
	for i := range devs {
		devs[i] = open(tb)
	}
	nodes := make([]*node, n)
	for i, tr := range join(tb, devs) {
		s, err := devs[i].NewStream(driver.StreamOptions{})
		check(tb, err)
		nodes[i] = &node{tb, i, devs[i], s, tr}
	}
	tb.Cleanup(func() {
		for _, n := range nodes {
			check(tb, n.Close())
			check(tb, n.Close())
		}
		for _, n := range nodes {
			_ = n.dev.Close() // its streams may hold errors that a test has made
		}
		noGoroutines()
	})
	return nodes
}

// noGoroutines waits until no goroutine of the package runs; the test's time limit ends it otherwise.
func noGoroutines() {
	stacks := make([]byte, 1<<20)
	for {
		all := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(all, "ring.(*link)") && !strings.Contains(all, "ring.(*transport)") {
			return
		}
		runtime.Gosched()
	}
}

// memory puts b into the device's memory. There are at least 8 bytes.
func (n *node) memory(b []byte) comm.Operand {
	p, err := n.dev.Alloc(int64(max(8, len(b))))
	check(n.t, err)
	if len(b) > 0 {
		check(n.t, n.stream.CopyIn(p, b))
	}
	return n.operand(p, len(b))
}

func (n *node) operand(p driver.Pointer, size int) comm.Operand {
	o := comm.Operand{Ptr: p}
	if v := n.dev.Visible(); v != nil && size > 0 {
		b, err := v.Bytes(p, int64(size))
		check(n.t, err)
		o.Bytes = b
	}
	return o
}

func (n *node) free(operands ...comm.Operand) {
	for _, o := range operands {
		check(n.t, n.dev.Free(o.Ptr))
	}
}

// read waits for the stream and returns size bytes.
func (n *node) read(o comm.Operand, size int) []byte {
	b := make([]byte, size)
	if size > 0 {
		check(n.t, n.stream.CopyOut(b, o.Ptr))
	} else {
		check(n.t, n.sync())
	}
	return b
}

func (n *node) sync() error { return n.stream.Sync(context.Background()) }

// do queues calls and waits for them.
func (n *node) do(calls ...comm.Call) error {
	if err := n.Queue(n.stream, calls...); err != nil {
		return err
	}
	return n.sync()
}

// each runs f for all ranks at the same time. If one panics, the others are aborted.
func each(nodes []*node, f func(n *node)) {
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					n.t.Errorf("rank %d: %v\n%s", n.rank, v, debug.Stack())
					for _, n := range nodes {
						n.Abort(errTest)
					}
				}
			}()
			f(n)
		})
	}
	all.Wait()
}

var errTest = errors.New("the test ends here")

// check panics, since goroutines must not end a test.
func check(_ testing.TB, err error) {
	if err != nil {
		panic(err)
	}
}

// encode makes elements of numbers.
func encode(t dtype.DType, values []float64) []byte {
	wide := make([]byte, 0, 8*len(values))
	for _, v := range values {
		wide = binary.NativeEndian.AppendUint64(wide, math.Float64bits(v))
	}
	b := make([]byte, len(values)*t.Size())
	dtype.Convert(b, t, wide, dtype.Float64)
	return b
}

func same(tb testing.TB, what string, rank int, got, want []byte) {
	if !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				tb.Errorf("%s: rank %d: byte %d of %d is %#x, want %#x", what, rank, i, len(got), got[i], want[i])
				return
			}
		}
	}
}
