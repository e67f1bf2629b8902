//go:build linux

package ipc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

// roles are the functions that this test binary runs when it is started with one of their names.
var roles = map[string]func(args []string) error{
	"churn":       churnRole,
	"export":      exportRole,
	"faults":      faultsRole,
	"import":      importRole,
	"files":       filesRole,
	"full":        fullRole,
	"full server": fullServerRole,
	"poor":        poorRole,
	"relay":       relayRole,
	"source":      sourceRole,
	"sum":         sumRole,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process is this test binary in one of the roles: it prints a line when it is ready, and continues when it reads a
// line.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

func (p *process) hear(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v said %q and ended: %v", p.cmd.Args[1:], line, err)
	}
	return strings.TrimSpace(line)
}

func (p *process) tell(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process as nothing else does.
func (p *process) kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("killed, and ended with %v", err)
	}
}

// saying lets a role print a line and wait for one.
func saying() (say func(line string), hear func()) {
	in := bufio.NewReader(os.Stdin)
	return func(line string) { fmt.Println(line) }, func() { _, _ = in.ReadString('\n') }
}

// openChild opens what the last argument of a role names, or host memory.
func openChild(args []string) (driver.Device, error) {
	if spec, ok := strings.CutPrefix(args[len(args)-1], "device="); ok {
		return driver.Open(spec)
	}
	return driver.Open("host:total=64MiB")
}

// exportRole exports a block at a path, by handle or as a page, says its ticket and waits to be killed.
func exportRole(args []string) error {
	d, err := openChild(args)
	if err != nil {
		return err
	}
	l, err := ipc.Listen(args[0])
	if err != nil {
		return err
	}
	e, err := ipc.NewExporter(d, l, &ipc.Options{Handles: args[1] == "handles"})
	if err != nil {
		return err
	}
	b, err := e.Alloc(d.DefaultStream(), 1000)
	if err != nil {
		return err
	}
	s := d.DefaultStream()
	if err := errors.Join(s.CopyIn(b.Ptr, []byte("left behind")), s.Sync(context.Background())); err != nil {
		return err
	}
	fmt.Println(e.Ticket(b))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// dialRole connects to the exporter at the path that is the first argument. The second is a ticket.
func dialRole(d driver.Device, args []string) (*ipc.Importer, ipc.Ticket, error) {
	i, err := ipc.Dial(context.Background(), d, args[0])
	if err != nil {
		return nil, ipc.Ticket{}, err
	}
	ticket, err := ipc.ParseTicket(args[1])
	return i, ticket, err
}

// importRole opens a block, writes into it, says what it read and waits: for a line, then it closes the block.
func importRole(args []string) error {
	d, err := openChild(args)
	if err != nil {
		return err
	}
	i, ticket, err := dialRole(d, args)
	if err != nil {
		return err
	}
	b, err := i.Open(context.Background(), ticket)
	if err != nil {
		return err
	}
	text := make([]byte, 5)
	s := d.DefaultStream()
	if err := errors.Join(s.CopyOut(text, b.Ptr), s.CopyIn(b.Ptr+8, []byte("reply")), s.Sync(context.Background())); err != nil {
		return err
	}
	fmt.Printf("%s\n", text)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := errors.Join(i.Close(b, s), i.End(), d.Close()); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}

// filesRole prints the files that it has inherited.
func filesRole([]string) error {
	fmt.Println(strings.Join(openFiles(), " "))
	return nil
}

// openFiles are the memory and the sockets that this process has open.
func openFiles() (files []string) {
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		target, err := os.Readlink(name)
		if err == nil && (strings.HasPrefix(target, "/memfd:") || strings.HasPrefix(target, "socket:")) {
			files = append(files, target)
		}
	}
	return files
}

// crashAnImporter has two processes open a block, of which one is killed and the other closes it, and frees the block.
// More arguments go to the processes.
func crashAnImporter(t *testing.T, d driver.Device, e *ipc.Exporter, b mem.Block, path string, more ...string) {
	t.Helper()
	put(t, d, b.Ptr, "hello")
	args := append([]string{"import", path, e.Ticket(b).String()}, more...)
	orderly, crashes := start(t, args...), start(t, args...)
	if one, two := orderly.hear(t), crashes.hear(t); one != "hello" || two != "hello" {
		t.Errorf("the importers read %q and %q", one, two)
	}
	if n := e.Users(b); n != 2 {
		t.Errorf("%d users", n)
	}
	crashes.kill(t)
	orderly.tell(t, "close")
	if orderly.hear(t) != "closed" {
		t.Error("the other importer did not close")
	}
	if err := e.Wait(t.Context(), b); err != nil { // returns only if the crash took its user away
		t.Error(err)
	}
	if got := get(t, d, b.Ptr+8, 5); got != "reply" {
		t.Errorf("the exporter reads %q", got)
	}
	e.Free(b)
}

// The consumer crashes: its users go, and the memory stays the exporter's.
func TestImporterIsKilled(t *testing.T) {
	for _, way := range []string{"pages", "handles"} {
		t.Run(way, func(t *testing.T) {
			d := drivertest.OpenDevice(t, "host:total=256MiB")
			e, path := export(t, d, &ipc.Options{Handles: way == "handles"})
			b, err := e.Alloc(d.DefaultStream(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			crashAnImporter(t, d, e, b, path)
			if free, total, err := d.Available(); err != nil || free != total {
				t.Errorf("%d of %d free after Free, %v", free, total, err)
			}
		})
	}
}

// The producer crashes: its importers learn it, and keep what they have.
func TestExporterIsKilled(t *testing.T) {
	for _, way := range []string{"pages", "handles"} {
		t.Run(way, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			exporter := start(t, "export", path, way)
			ticket, err := ipc.ParseTicket(exporter.hear(t))
			if err != nil {
				t.Fatal(err)
			}
			d := drivertest.OpenDevice(t, "host:total=256MiB")
			i := dial(t, d, path)
			b, err := i.Open(context.Background(), ticket)
			if err != nil {
				t.Fatal(err)
			}
			exporter.kill(t)
			<-i.Lost()
			if got := get(t, d, b.Ptr, 11); got != "left behind" {
				t.Errorf("after the exporter's death the importer reads %q", got)
			}
			if _, err := i.Open(context.Background(), ticket); !errors.Is(err, ipc.ErrGone) {
				t.Errorf("Open without an exporter: %v", err)
			}
			if err := i.Close(b); err != nil {
				t.Error(err)
			}
		})
	}
}

// Memory of a handle outlives its Free for as long as an importer has it open.
func TestFreeOfAHandleThatIsOpenElsewhere(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, &ipc.Options{Handles: true})
	b, err := e.Alloc(d.DefaultStream(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.Alloc(d.DefaultStream(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "import", path, e.Ticket(b).String())
	p.hear(t)
	e.Free(b)
	if free, total, err := d.Available(); err != nil || total-free != b.Size+other.Size {
		t.Errorf("%d bytes in use with a user left, want %d: %v", total-free, b.Size+other.Size, err)
	}
	p.tell(t, "close")
	p.hear(t)
	e.Free(other) // and b with it: its user has left
	if free, total, err := d.Available(); err != nil || free != total {
		t.Errorf("%d of %d free in the end, %v", free, total, err)
	}
}

// Nothing that was shared is inherited by programs that either end starts, and no descriptor is left.
func TestNoDescriptorLeaks(t *testing.T) {
	a, b := drivertest.OpenDevice(t, "host:total=256MiB"), drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, a, nil)
	before := len(openFiles())
	for range 20 {
		i, err := ipc.Dial(context.Background(), b, path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := e.Alloc(a.DefaultStream(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Open(context.Background(), e.Ticket(m)); err != nil {
			t.Fatal(err)
		}
		if files := start(t, "files").hear(t); files != "" {
			t.Fatalf("a child has inherited %s", files)
		}
		if err := i.End(); err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		e.Free(m)
	}
	if err := e.Close(); err != nil { // waits for the ends of its connections
		t.Fatal(err)
	}
	if after := openFiles(); len(after) > before {
		t.Errorf("%d files open, %d before: %v", len(after), before, after)
	}
}

// Another user's process is refused, although it may reach the socket. Only root can start one.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Free(b)
	dir, err := os.MkdirTemp("/tmp", "shared") // t.TempDir's parents are root's alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "test")
	self, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	for at := path; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "import", path, e.Ticket(b).String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another user") {
		t.Errorf("%v: %s", err, out)
	}
	if n := e.Users(b); n != 0 {
		t.Errorf("%d users", n)
	}
}
