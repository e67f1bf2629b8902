//go:build gpu && linux && (amd64 || arm64) && !nocuda

package nccl

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// TestMain is one rank of TestGPUProcesses, if the arguments say so: "rank", its number, the number of all, the ID and a
// path of NCCL, or "".
func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "rank" {
		if err := serveRank(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveRank takes part in one all-reduce, reports it, and aborts when its input ends.
func serveRank(args []string) error {
	n, _ := strconv.Atoi(args[0])
	size, _ := strconv.Atoi(args[1])
	*libraries = args[3]
	var id ID
	if _, err := hex.Decode(id[:], []byte(args[2])); err != nil {
		return err
	}
	r := &rank{n: n, size: size}
	if err := r.join(id); err != nil {
		return err
	}
	if err := r.agree(); err != nil {
		return err
	}
	fmt.Println("agreed")
	_, _ = io.ReadAll(os.Stdin)
	r.c.Abort(errors.New("the input has ended"))
	return r.dev.Close()
}

// join opens the rank's device and makes its transport.
func (r *rank) join(id ID) (err error) {
	if r.dev, err = driver.Open(fmt.Sprintf("cuda:%d", r.n)); err != nil {
		return err
	}
	if r.src, err = r.dev.Alloc(1 << 22); err != nil {
		return err
	}
	r.dst, r.stream = r.src, r.dev.DefaultStream()
	r.c, err = New(context.Background(), r.dev, options(), id, r.n, r.size)
	return err
}

// agree makes one all-reduce, and checks it.
func (r *rank) agree() error {
	const n = 1 << 20
	src := elements(dtype.Float32, n, func(i int) float64 { return number(comm.Sum, r.n, i) })
	if err := r.stream.CopyIn(r.src, src); err != nil {
		return err
	}
	if err := r.c.Queue(r.stream, reduce(r)); err != nil {
		return err
	}
	got := make([]byte, len(src))
	if err := r.stream.CopyOut(got, r.dst); err != nil {
		return err
	}
	if !bytes.Equal(got, elements(dtype.Float32, n, func(i int) float64 { return combined(comm.Sum, dtype.Float32, r.size, i) })) {
		return fmt.Errorf("rank %d: other values than expected", r.n)
	}
	return nil
}

// TestGPUProcesses: ranks in processes of their own. One of them is killed: who waits for it waits until Abort.
func TestGPUProcesses(t *testing.T) {
	list, err := driver.Lookup("cuda").Devices()
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewID(options())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{TB: t, n: 0, size: len(list)}
	type process struct {
		*exec.Cmd
		in  io.WriteCloser
		out io.ReadCloser
	}
	var others []process
	for n := 1; n < len(list); n++ {
		p := process{Cmd: exec.Command(self, "rank", strconv.Itoa(n), strconv.Itoa(len(list)), hex.EncodeToString(id[:]), *libraries)}
		p.Stderr = os.Stderr
		p.in, err = p.StdinPipe()
		r.ok(err)
		p.out, err = p.StdoutPipe()
		r.ok(err)
		r.ok(p.Start())
		t.Cleanup(func() { _ = p.Process.Kill() })
		others = append(others, p)
	}
	if err := r.join(id); err != nil {
		t.Fatal(err)
	}
	defer func() { r.ok(r.dev.Close()) }()
	r.ok(r.agree())
	for _, p := range others {
		said := make([]byte, len("agreed"))
		if _, err := io.ReadFull(p.out, said); err != nil || string(said) != "agreed" {
			t.Errorf("another rank said %q, %v", said, err)
		}
	}
	if len(others) == 0 {
		r.ok(r.c.Close())
		return
	}
	r.ok(r.c.Queue(r.stream, reduce(r)))
	r.ok(others[0].Process.Kill())
	_ = others[0].Wait()
	m, err := r.stream.Mark()
	r.ok(err)
	if reached, err := r.stream.Reached(m); reached || err != nil {
		t.Errorf("an all-reduce with a rank that is dead is done: %v, %v", reached, err)
	}
	cause := errors.New("rank 1 was killed")
	r.c.Abort(cause)
	r.ok(r.stream.Sync(context.Background()))
	if err := r.c.Err(); !errors.Is(err, cause) {
		t.Errorf("Err after Abort: %v", err)
	}
	for _, p := range others[1:] {
		r.ok(p.in.Close())
		r.ok(p.Wait())
	}
}
