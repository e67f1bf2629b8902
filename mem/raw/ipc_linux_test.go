package raw_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// openHandle is the first argument of another process, which reads and writes at a handle; the second is the device, the
// third the handle.
const openHandle = "open-handle"

func init() {
	if len(os.Args) != 4 || os.Args[1] != openHandle {
		return
	}
	if err := answer(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const question, answered = "what is at the address", "and what is now"

func answer(device, handle string) error {
	dev, err := driver.Open(device)
	if err != nil {
		return err
	}
	var h raw.Handle
	if err := json.Unmarshal([]byte(handle), &h); err != nil {
		return err
	}
	p, closeIt, err := raw.OpenIPCHandle(dev, h)
	if err != nil {
		return err
	}
	s, got := dev.DefaultStream(), make([]byte, len(question))
	if err := s.CopyOut(got, p); err != nil || string(got) != question {
		return fmt.Errorf("%q at the address, %w", got, err)
	}
	if err := errors.Join(s.CopyIn(p, []byte(answered)), closeIt()); err != nil {
		return err
	}
	if err := closeIt(); !errors.Is(err, driver.ErrInvalid) {
		return fmt.Errorf("closed twice: %w", err)
	}
	if _, _, err := raw.OpenIPCHandle(dev, raw.Handle{Memory: h.Memory, Offset: 1 << 40}); !errors.Is(err, driver.ErrInvalid) {
		return fmt.Errorf("an offset beyond the memory: %w", err)
	}
	return dev.Close()
}

// An address in the midst of a segment is read and written by another process.
func TestIPCHandle(t *testing.T) {
	dev := newHost(t)
	before, p := alloc(t, dev, 3*mib), alloc(t, dev, 3*mib)
	s, at := dev.DefaultStream(), p+4096
	check(t, s.CopyIn(at, []byte(question)))
	h := ask(t, at, "host:total=1MiB")
	if h.Offset != int64(at-before) {
		t.Errorf("an offset of %d, want %d", h.Offset, at-before)
	}
	got := make([]byte, len(answered))
	check(t, s.CopyOut(got, at))
	if string(got) != answered {
		t.Errorf("%q at the address", got)
	}
	raw.Delete(before)
	raw.Delete(p)
}

// ask has another process, which opens the device anew, answer what is at an address.
func ask(t *testing.T, at driver.Pointer, device string) raw.Handle {
	t.Helper()
	h, err := raw.IPCHandle(at)
	check(t, err)
	text, err := json.Marshal(h)
	check(t, err)
	if out, err := exec.CommandContext(t.Context(), os.Args[0], openHandle, device, string(text)).CombinedOutput(); err != nil {
		t.Errorf("the other process: %v: %s", err, out)
	}
	return h
}

func TestTicket(t *testing.T) {
	dev := newHost(t)
	l, err := ipc.Listen(filepath.Join(t.TempDir(), "socket"))
	check(t, err)
	e, err := ipc.NewExporter(dev, l, nil)
	check(t, err)
	p := alloc(t, dev, mib)
	if _, err := raw.Ticket(p); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a ticket of the caching allocator's: %v", err)
	}
	raw.Delete(p)

	mem.SetCurrent(dev, e)
	p = alloc(t, dev, mib)
	i, err := ipc.Dial(dev, l.Addr().String())
	check(t, err)
	ticket, err := raw.Ticket(p)
	check(t, err)
	b, err := i.Open(ticket)
	check(t, err)
	check(t, dev.DefaultStream().CopyIn(p, []byte(question)))
	got := make([]byte, len(question))
	if err := dev.DefaultStream().CopyOut(got, b.Ptr); err != nil || string(got) != question {
		t.Errorf("the ticket opens %q, %v", got, err)
	}
	if got := panicOf(t, func() { _, _ = raw.Ticket(p + 1) }); got != fmt.Sprintf("raw: Ticket of %#x, inside the block at %#x", p+1, p) {
		t.Errorf("an address inside: %q", got)
	}
	check(t, i.Close(b, dev.DefaultStream()))
	check(t, i.End())
	raw.Delete(p)
	check(t, e.Close())
}
