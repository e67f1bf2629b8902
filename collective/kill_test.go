package collective

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Kinds of the messages between a rank and rank 0 (internal/rendezvous/wire.go).
const (
	helloKind   = 1
	acceptKind  = 2
	startKind   = 5
	arriveKind  = 7
	releaseKind = 8
	closingKind = 9
	leaveKind   = 10
)

// An instant is a moment in what a rank and rank 0 say to each other. The rank is killed then.
type instant struct {
	name string
	up   bool // said by the rank
	raw  int  // after so many bytes of the handshake, if kind is 0
	kind byte // when a message of this kind comes
	part int  // bytes of it that pass
}

const wholeMessage = 1 << 20

// A rank that is killed before all have joined is missing, and may be started again; others are not disturbed.
func TestKilledBeforeAllJoined(t *testing.T) {
	for _, at := range []instant{
		{name: "connected", up: true, raw: 0},
		{name: "in its greeting", up: true, raw: 3},
		{name: "greeted", raw: 40},
		{name: "before its proof", up: true, raw: 40},
		{name: "in its proof", up: true, raw: 50},
		{name: "proved", raw: 72},
		{name: "in its hello", up: true, kind: helloKind, part: 20},
		{name: "accepted", kind: acceptKind, part: wholeMessage},
	} {
		t.Run(at.name, func(t *testing.T) {
			r := newRun(t, 3)
			r.start(0)
			r.killedAt(1, at)
			r.start(1)
			r.start(2)
			r.expect("ready", 0, 1, 2)
			r.ranks[2].kill()
			r.expect("lost 2", 0, 1)
			r.over()
		})
	}
}

// A rank that is killed after all have joined is lost: the others name it and end, whatever they are doing.
func TestKilledAfterAllJoined(t *testing.T) {
	for _, at := range []instant{
		{name: "in the start", kind: startKind, part: 30},
		{name: "at the start", kind: startKind, part: wholeMessage},
		{name: "at the barrier", up: true, kind: arriveKind},
		{name: "behind the barrier", kind: releaseKind, part: wholeMessage},
		{name: "closing", up: true, kind: closingKind},
		{name: "leaving", up: true, kind: leaveKind},
		{name: "in its leaving", up: true, kind: leaveKind, part: 12},
	} {
		t.Run(at.name, func(t *testing.T) {
			r := newRun(t, 3, "CLOSES=1")
			r.start(0)
			r.start(2)
			r.killedAt(1, at)
			for _, rank := range []int{0, 2} {
				if got := r.ranks[rank].line(); got != "ready" && got != "lost 1" {
					t.Errorf("rank %d: %q", rank, got)
				} else if got == "ready" {
					r.expect("lost 1", rank)
				}
			}
			r.over()
		})
	}
}

// A run is a run of rank processes.
type run struct {
	t         *testing.T
	ctx       context.Context
	size      int
	port      int
	variables []string
	ranks     []*rankOf
}

// A rankOf is a process that is a rank.
type rankOf struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	killed bool
}

func newRun(t *testing.T, size int, variables ...string) *run {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return &run{t, ctx, size, testkit.Ports(t, 1), variables, make([]*rankOf, size)}
}

func (r *run) start(rank int, more ...string) *rankOf {
	r.t.Helper()
	cmd := exec.CommandContext(r.ctx, os.Args[0], append([]string{
		rankRole, fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", r.size), "MASTER_ADDR=127.0.0.1",
		fmt.Sprint("MASTER_PORT=", r.port), "ASHLAR_SECRET=" + testSecret,
	}, append(more, r.variables...)...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.ranks[rank] = &rankOf{cmd: cmd, lines: bufio.NewScanner(out)}
	return r.ranks[rank]
}

// killedAt starts a rank, and returns when it has been killed at an instant.
func (r *run) killedAt(rank int, at instant) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	p := r.start(rank, "PROXY="+l.Addr().String())
	for killed := false; !killed; {
		c, err := l.Accept()
		if err != nil {
			r.t.Fatal(err)
		}
		to, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", r.port))
		if err != nil { // rank 0 is not there yet: the rank tries again
			c.Close()
			continue
		}
		killed = pass(c, to, at, p.kill)
	}
	p.cmd.Wait() // killed
}

// pass carries bytes between a rank and rank 0 until the instant, and reports whether it came. Then it calls kill
// before it closes the connections.
func pass(rank, zero net.Conn, at instant, kill func()) bool {
	defer rank.Close()
	defer zero.Close()
	came := make(chan bool, 2)
	var directions sync.WaitGroup
	carry := func(to, from net.Conn, up bool) {
		if up != at.up {
			io.Copy(to, from)
			came <- false
			return
		}
		came <- until(to, from, at)
	}
	directions.Go(func() { carry(zero, rank, true) })
	directions.Go(func() { carry(rank, zero, false) })
	found := <-came
	if !found {
		found = <-came
	}
	if found {
		kill()
	}
	rank.Close()
	zero.Close()
	directions.Wait()
	return found
}

// until copies bytes up to the instant, and reports whether it came.
func until(to io.Writer, from io.Reader, at instant) bool {
	const handshake = 40 + 32
	first := handshake
	if at.kind == 0 {
		first = at.raw
	}
	if _, err := io.CopyN(to, from, int64(first)); err != nil || at.kind == 0 {
		return err == nil
	}
	for {
		head := make([]byte, 12)
		if _, err := io.ReadFull(from, head); err != nil {
			return false
		}
		whole := append(head, make([]byte, binary.LittleEndian.Uint32(head[8:]))...)
		if _, err := io.ReadFull(from, whole[12:]); err != nil {
			return false
		}
		if head[5] == at.kind {
			to.Write(whole[:min(at.part, len(whole))])
			return true
		}
		if _, err := to.Write(whole); err != nil {
			return false
		}
	}
}

func (p *rankOf) kill() {
	p.killed = true
	p.cmd.Process.Kill()
}

func (p *rankOf) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

func (r *run) expect(want string, ranks ...int) {
	r.t.Helper()
	for _, rank := range ranks {
		if got := r.ranks[rank].line(); got != want {
			r.t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}

// over waits until all processes have ended, and checks that they leave nothing behind.
func (r *run) over() {
	r.t.Helper()
	for rank, p := range r.ranks {
		var more strings.Builder
		for p.lines.Scan() {
			more.WriteString(p.lines.Text())
		}
		if err := p.cmd.Wait(); more.Len() > 0 || (err != nil) != p.killed {
			r.t.Errorf("rank %d ends with %q, %v", rank, more.String(), err)
		}
	}
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", r.port))
	if err != nil {
		r.t.Errorf("rank 0's port is taken: %v", err)
		return
	}
	l.Close()
}
