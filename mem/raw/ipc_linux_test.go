package raw_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/ipc"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// openHandle is the first argument of another process, which reads and writes at a handle; the second is the device,
// the third the handle.
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
	if err := errors.Join(s.CopyIn(p, []byte(answered)), s.Sync(context.Background()), usableByPeer(device, dev, p, h)); err != nil {
		return err
	}
	if strings.HasPrefix(device, failingUnmap) {
		if err := closeIt(); !errors.Is(err, driver.ErrLost) { // and can be closed again
			return fmt.Errorf("closed while the device fails: %w", err)
		}
	}
	if err := closeIt(); err != nil {
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

// failingUnmap is the beginning of a device on which the first unmapping fails.
const failingUnmap = "fault:kind=VirtualMemory.Unmap,nth=1/"

// usableByPeer checks that another device can use pages of another process, opened before and after it became a peer.
// It does so for host devices: a peer must be of the same driver, and a machine may have a single GPU.
func usableByPeer(device string, dev driver.Device, p driver.Pointer, h raw.Handle) error {
	if !strings.HasPrefix(device, "host") || !bytes.HasPrefix(h.Memory, []byte("ashlarp1")) {
		return nil
	}
	other, err := driver.Open("host:total=1MiB")
	if err != nil {
		return err
	}
	got := make([]byte, len(answered))
	if err := other.DefaultStream().CopyOut(got, p); err == nil {
		return errors.New("another device could use the pages before EnablePeer")
	}
	a, err := mem.Open("paged:", dev)
	if err != nil {
		return err
	}
	raw.SetCurrent(dev, a)
	if err := raw.EnablePeer(other, dev); err != nil {
		return err
	}
	again, closeIt, err := raw.OpenIPCHandle(dev, h)
	if err != nil {
		return err
	}
	for _, p := range []driver.Pointer{p, again} {
		if err := other.DefaultStream().CopyOut(got, p); err != nil || string(got) != answered {
			return fmt.Errorf("another device finds %q in the pages: %w", got, err)
		}
	}
	err = errors.Join(closeIt(), a.(interface{ Close() error }).Close())
	raw.SetCurrent(dev, nil)
	return errors.Join(err, other.Close())
}

// Another process can read and write at an address in the middle of a segment.
func TestIPCHandle(t *testing.T) {
	dev := newHost(t)
	before, p := alloc(t, dev, 3*mib), alloc(t, dev, 3*mib)
	s, at := dev.DefaultStream(), p+4096
	testkit.Must(t, s.CopyIn(at, []byte(question)))
	h := ask(t, at, "host:total=1MiB")
	if h.Offset != int64(at-before) {
		t.Errorf("an offset of %d, want %d", h.Offset, at-before)
	}
	got := make([]byte, len(answered))
	testkit.Must(t, s.CopyOut(got, at))
	if string(got) != answered {
		t.Errorf("%q at the address", got)
	}
	raw.Delete(before)
	raw.Delete(p)
}

// A handle is refused, with the reason, if the device does not export the memory, or nothing tells where it begins.
func TestIPCHandleThatCannotBeMade(t *testing.T) {
	inner := newHost(t)
	dev := fault.Wrap(inner, fault.Rule{Kind: intercept.Export, Code: driver.ErrLost})
	closing(t, dev)
	for _, c := range []struct {
		a    mem.Allocator
		want error
	}{
		{direct.New(dev, direct.Config{}), driver.ErrLost},
		{poor{direct.New(dev, direct.Config{})}, driver.ErrUnsupported},
	} {
		raw.SetCurrent(dev, c.a)
		p := alloc(t, dev, mib)
		if h, err := raw.IPCHandle(p); !errors.Is(err, c.want) || h.Memory != nil {
			t.Errorf("%T: %v, %v, want %v", c.a, h, err, c.want)
		}
		raw.Delete(p)
	}
}

// ask has another process, which opens the device anew, answer what is at an address.
func ask(t *testing.T, at driver.Pointer, device string) raw.Handle {
	t.Helper()
	h, err := raw.IPCHandle(at)
	testkit.Must(t, err)
	if out, err := exec.CommandContext(t.Context(), os.Args[0], openHandle, device, asText(t, h)).CombinedOutput(); err != nil {
		t.Errorf("the other process: %v: %s", err, out)
	}
	return h
}

func TestTicket(t *testing.T) {
	dev := newHost(t)
	l, err := ipc.Listen(filepath.Join(t.TempDir(), "socket"))
	testkit.Must(t, err)
	e, err := ipc.NewExporter(dev, l, nil)
	testkit.Must(t, err)
	p := alloc(t, dev, mib)
	if _, err := raw.Ticket(p); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a ticket of the caching allocator's: %v", err)
	}
	raw.Delete(p)

	raw.SetCurrent(dev, e)
	p = alloc(t, dev, mib)
	i, err := ipc.Dial(context.Background(), dev, l.Addr().String())
	testkit.Must(t, err)
	ticket, err := raw.Ticket(p)
	testkit.Must(t, err)
	b, err := i.Open(context.Background(), ticket)
	testkit.Must(t, err)
	testkit.Must(t, dev.DefaultStream().CopyIn(p, []byte(question)))
	got := make([]byte, len(question))
	if err := dev.DefaultStream().CopyOut(got, b.Ptr); err != nil || string(got) != question {
		t.Errorf("the ticket opens %q, %v", got, err)
	}
	want := fmt.Sprintf("raw: Ticket of %#x, inside the block at %#x", p+1, p)
	if got := testkit.Panic(t, func() { _, _ = raw.Ticket(p + 1) }); got != want {
		t.Errorf("an address inside: %q", got)
	}
	testkit.Must(t, i.Close(b, dev.DefaultStream()))
	testkit.Must(t, i.End())
	raw.Delete(p)
	testkit.Must(t, e.Close())
}

// Memory that is mapped page by page is read and written by another process at an address in a block, whichever
// allocator maps it; the descriptors that handles name are closed when the pages are unmapped.
func TestDefect15_IPCHandleOfMappedMemory(t *testing.T) {
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) { sharesMapped(t, newHost(t), "host:total=1MiB", open) })
	}
}

func sharesMapped(t *testing.T, dev driver.Device, device string, open func(driver.Device) (mem.Allocator, error)) {
	a, err := open(dev)
	testkit.Must(t, err)
	former := raw.SetCurrent(dev, layer.NewCounter(a))
	before, p := alloc(t, dev, 3*mib), alloc(t, dev, 25*mib)
	s, at := dev.DefaultStream(), p+5*mib+4096
	for _, fails := range []string{
		"",
		"fault:kind=Alloc,nth=1,code=nomemory/", // a full device opens and closes handles too
		failingUnmap,
	} {
		testkit.Must(t, s.CopyIn(at, []byte(question)))
		testkit.Must(t, s.Sync(t.Context()))
		h := ask(t, at, fails+device)
		if h.Offset < 5*mib+4096 || h.Offset >= 40*mib {
			t.Errorf("an offset of %d", h.Offset)
		}
		got := make([]byte, len(answered))
		testkit.Must(t, s.CopyOut(got, at))
		if string(got) != answered {
			t.Errorf("%q at the address", got)
		}
	}
	h, err := raw.IPCHandle(at)
	testkit.Must(t, err)
	if _, _, err := raw.OpenIPCHandle(dev, h); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("its own handle: %v", err)
	}
	raw.Delete(before)
	raw.Delete(p)
	testkit.Must(t, raw.EmptyCache())
	testkit.Must(t, a.(interface{ Close() error }).Close())
	raw.SetCurrent(dev, former)
	if out, err := exec.CommandContext(t.Context(), os.Args[0], openHandle, device, asText(t, h)).CombinedOutput(); err == nil {
		t.Errorf("a handle of memory that is gone was opened: %s", out)
	}
}

// An invalid handle of pages is refused, as is one that was changed, or whose block or process no longer exists.
func TestDefect15_WrongHandlesOfPagesAreRefused(t *testing.T) {
	dev := newHost(t)
	a, err := mapping["caching"](dev)
	testkit.Must(t, err)
	raw.SetCurrent(dev, a)
	p := alloc(t, dev, mib)
	h, err := raw.IPCHandle(p)
	testkit.Must(t, err)
	again, err := raw.IPCHandle(p + 100)
	testkit.Must(t, err)
	if !bytes.Equal(h.Memory, again.Memory) || again.Offset != h.Offset+100 {
		t.Errorf("handles %v and %v of one block", h, again)
	}
	cut := func(n int) []byte { return h.Memory[:len(h.Memory)-n] }
	gone := bytes.Replace(h.Memory, []byte("@ashlar"), []byte("@ashlaR"), 1)
	for name, handle := range map[string][]byte{
		"nothing": {}, "the magic alone": h.Memory[:8], "no name": append(bytes.Clone(h.Memory[:8]), 0, 1),
		"half a name": h.Memory[:12], "no key": cut(40), "a process that is gone": gone,
		"the longest name": append(bytes.Clone(h.Memory[:8]), bytes.Repeat([]byte{255}, 300)...),
	} {
		if _, _, err := raw.OpenIPCHandle(dev, raw.Handle{Memory: handle}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Of another block by a key that was made for this one.
	q := alloc(t, dev, mib)
	forged := raw.Handle{Memory: bytes.Clone(h.Memory), Offset: h.Offset}
	binary.LittleEndian.PutUint64(forged.Memory[len(forged.Memory)-40:], uint64(q))
	freed := h
	raw.Delete(p)
	p = alloc(t, dev, mib) // in its place
	for name, h := range map[string]raw.Handle{"a forged key": forged, "a block that was freed": freed} {
		out, err := exec.CommandContext(t.Context(), os.Args[0], openHandle, "host:total=1MiB", asText(t, h)).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(map[string]string{"a forged key": "not a key", "a block that was freed": "was freed"}[name])) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	raw.Delete(p)
	raw.Delete(q)
	testkit.Must(t, a.(interface{ Close() error }).Close())
}

// If the device cannot create pages that other processes can open, requests still succeed, and a handle is refused.
func TestDefect15_PagesThatCannotBeSharedServeAllTheSame(t *testing.T) {
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) {
			inner := newHost(t)
			dev := fault.Wrap(inner, fault.Rule{Kind: intercept.CreateShared, Code: driver.ErrUnsupported})
			a, err := open(dev)
			testkit.Must(t, err)
			raw.SetCurrent(dev, a)
			p := alloc(t, dev, 3*mib)
			if _, err := raw.IPCHandle(p); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("a handle: %v", err)
			}
			raw.Delete(p)
			testkit.Must(t, raw.EmptyCache())
			testkit.Must(t, a.(interface{ Close() error }).Close())
			raw.SetCurrent(dev, nil)
		})
	}
}

func asText(t *testing.T, h raw.Handle) string {
	t.Helper()
	text, err := json.Marshal(h)
	testkit.Must(t, err)
	return string(text)
}
