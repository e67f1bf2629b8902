// Package multiprocess tests drivers with several processes: memory and events that processes share, and processes that
// end at any moment.
//
// A driver whose memory other processes can use calls [RunSharing] with a function that starts such a process, which
// calls [ServeSharing]. A driver whose devices are closed by the end of their process calls [RunExits], with processes
// that call [ServeExit]. What one process can test is in package drivertest.
package multiprocess

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A process is another one, which runs ServeSharing.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	conn   *net.UnixConn
	stderr bytes.Buffer
	held   int // memories that it numbered
	events int // events that it numbered
	ended  bool
}

// kill ends the process as the system would: it can do nothing about it. It is gone when kill returns.
func (p *process) kill() {
	if !p.ended {
		p.ended = true
		_ = p.conn.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // which says that it was killed
	}
}

// leave lets the process end by itself, as it does when its connection is closed.
func (p *process) leave() {
	p.t.Helper()
	p.ended = true
	testkit.Must(p.t, p.conn.Close())
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("the other process: %v\n%s", err, p.stderr.String())
	}
}

// try asks the process for something.
func (p *process) try(req request, f *os.File) (reply, *os.File) {
	p.t.Helper()
	var rep reply
	err := send(p.conn, req, f)
	var out *os.File
	if err == nil {
		out, err = receive(p.conn, &rep)
	}
	if err != nil {
		p.kill()
		p.t.Fatalf("ask the other process for %s: %v\n%s", req.Op, err, p.stderr.String())
	}
	return rep, out
}

// ask is try for what must work.
func (p *process) ask(req request, f *os.File) (reply, *os.File) {
	p.t.Helper()
	rep, out := p.try(req, f)
	if rep.Err != "" {
		p.t.Fatalf("%s in the other process: %s", req.Op, rep.Err)
	}
	return rep, out
}

// add asks for memory and returns its number.
func (p *process) add(req request, f *os.File) int {
	p.t.Helper()
	p.ask(req, f)
	p.held++
	return p.held - 1
}

func (p *process) fill(id int, at, n int64, pattern byte) {
	p.t.Helper()
	p.ask(request{Op: "fill", ID: id, At: at, N: n, Pattern: pattern}, nil)
}

func (p *process) end(id int) {
	p.t.Helper()
	p.ask(request{Op: "end", ID: id}, nil)
}

// holds fails the test unless the process sees n bytes of the pattern.
func (p *process) holds(id int, at, n int64, pattern byte) {
	p.t.Helper()
	rep, _ := p.ask(request{Op: "read", ID: id, At: at, N: n}, nil)
	if !bytes.Equal(rep.Bytes, bytes.Repeat([]byte{pattern}, int(n))) {
		p.t.Errorf("the other process sees %.8x... at %d, want %#02x", rep.Bytes, at, pattern)
	}
}
