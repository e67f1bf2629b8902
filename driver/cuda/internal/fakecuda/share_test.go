//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A test that needs another process runs this program again, with what it is to do.
var child = flag.String("child", "", "what this process does as the child of a test: ipc:HANDLE or fd")

func TestMain(m *testing.M) {
	flag.Parse()
	if *child != "" {
		runtime.LockOSThread()
		os.Exit(beChild(*child))
	}
	os.Exit(m.Run())
}

// beChild opens what the parent shares, says what it found and waits for a line, then writes into it.
func beChild(task string) int {
	r := &rig{New(Options{Granularity: granule}), nil}
	r.call("cuInit", 0)
	ctx, p := new(uint64), new(uint64)
	r.call("cuDevicePrimaryCtxRetain", ctx, 0)
	r.call("cuCtxSetCurrent", *ctx)
	var res Result
	if text, ok := strings.CutPrefix(task, "ipc:"); ok {
		res = r.openIPC(p, text)
		if again := new(uint64); res == Success && (r.openIPC(again, text) != Success || *again != *p) {
			return 1
		}
	} else {
		h := new(uint64)
		res = r.call("cuMemImportFromShareableHandle", h, 3, posixFD)
		r.call("cuMemAddressReserve", p, granule, 0, 0, 0)
		r.call("cuMemMap", *p, granule, 0, *h, 0)
		r.call("cuMemSetAccess", *p, granule, access1(0, accessReadWrite), 1)
		r.call("cuMemRelease", *h)
	}
	if res != Success {
		fmt.Println("result", res)
		return 0
	}
	fmt.Println("found", r.Bytes(*p, 1)[0])
	fmt.Scanln()
	copy(r.Bytes(*p, 1), []byte{r.Bytes(*p, 1)[0] + 1})
	fmt.Println("wrote", r.Bytes(*p, 1)[0])
	return 0
}

// openIPC opens a handle, given as text, as C would.
func (r *rig) openIPC(p *uint64, text string) Result {
	var h ipcHandle
	if _, err := hex.Decode(h[:], []byte(text)); err != nil {
		return Unknown
	}
	return r.call("cuIpcOpenMemHandle_v2", byValue(p, &h, 1)...)
}

// A process is a child that was started.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *os.File
}

func start(t *testing.T, task string, files ...*os.File) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self, "-child", task)}
	inRead, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, out
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = inRead, outWrite, os.Stderr, files
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inRead.Close()
	outWrite.Close()
	t.Cleanup(func() {
		in.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
		out.Close()
	})
	return p
}

func (p *process) says(want string) {
	p.t.Helper()
	var word, value string
	if _, err := fmt.Fscanln(p.out, &word, &value); err != nil {
		p.t.Fatal(err)
	}
	if got := word + " " + value; got != want {
		p.t.Fatalf("the other process says %q, want %q", got, want)
	}
}

func TestIPC(t *testing.T) {
	r := newRig(t, Options{Granularity: granule})
	r.current(0)
	p := r.alloc(1000)
	r.ok(r.call("cuMemsetD8Async", p, 41, 1000, 0))
	var h ipcHandle
	hp := new(ipcHandle)
	r.ok(r.call("cuIpcGetMemHandle", hp, p))
	h = *hp
	r.want(r.openIPC(new(uint64), hex.EncodeToString(h[:])), InvalidContext)
	r.ok(r.call("cuCtxSynchronize")) // after disclosing
	other := start(t, "ipc:"+hex.EncodeToString(h[:]))
	other.says("found 41")
	fmt.Fprintln(other.in)
	other.says("wrote 42")
	if got := r.Bytes(p, 1)[0]; got != 42 {
		t.Errorf("memory has %d after the other process wrote 42", got)
	}

	// What is open stays, though the exporter frees it; then it cannot be opened any more.
	late := start(t, "ipc:"+hex.EncodeToString(h[:]))
	late.says("found 42")
	r.ok(r.call("cuMemFree_v2", p))
	fmt.Fprintln(late.in)
	late.says("wrote 43")
	start(t, "ipc:"+hex.EncodeToString(h[:])).says("result 400")
	if got := r.Used(0); got != 0 {
		t.Errorf("%d bytes used", got)
	}
}

func TestExportedPages(t *testing.T) {
	r := newRig(t, Options{Granularity: granule})
	r.current(0)
	private := r.get("cuMemCreate", granule, prop(0, 0), 0)
	fd := new(int32)
	r.want(r.call("cuMemExportToShareableHandle", fd, private, posixFD, 0), InvalidValue)
	page := r.get("cuMemCreate", granule, prop(0, posixFD), 0)
	at := r.get("cuMemAddressReserve", granule, 0, 0, 0)
	r.ok(r.call("cuMemMap", at, granule, 0, page, 0))
	r.ok(r.call("cuMemSetAccess", at, granule, access1(0, accessReadWrite), 1))
	r.ok(r.call("cuMemsetD8Async", at, 10, granule, 0))
	r.ok(r.call("cuCtxSynchronize"))
	r.ok(r.call("cuMemExportToShareableHandle", fd, page, posixFD, 0))
	if flags, err := unix.FcntlInt(uintptr(*fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("the descriptor has flags %d (%v): want it without close-on-exec, so that callers must see to it", flags, err)
	}
	if again := r.get("cuMemImportFromShareableHandle", uint64(*fd), posixFD); again != page {
		t.Errorf("imported %#x into its own process, want %#x", again, page)
	}
	r.ok(r.call("cuMemRelease", page))
	f := os.NewFile(uintptr(*fd), "page")
	other := start(t, "fd", f)
	f.Close()
	other.says("found 10")
	r.ok(r.call("cuMemRelease", page))
	r.ok(r.call("cuMemUnmap", at, granule))
	if got := r.Used(0); got != granule { // private
		t.Errorf("%d bytes used", got)
	}
	fmt.Fprintln(other.in)
	other.says("wrote 11")
	r.want(r.call("cuMemImportFromShareableHandle", new(uint64), 1, posixFD), InvalidValue)
}
