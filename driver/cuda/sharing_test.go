//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/drivertest/multiprocess"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// The first argument makes this program the other process of a test, with a device of the fake libcuda or a real one.
const (
	serveFake = "serve-sharing-fake"
	serveReal = "serve-sharing"
)

// Devices of two processes cannot ask each other to work on, as a wait does in one: they do so by themselves.
var twoProcesses = fakecuda.Options{Granularity: 64 << 10, Pace: fakecuda.Background}

func TestMain(m *testing.M) {
	var open func() (driver.Device, error)
	switch {
	case len(os.Args) > 1 && os.Args[1] == serveFake:
		open = opener(fakecuda.New(twoProcesses))
	case len(os.Args) > 1 && os.Args[1] == serveReal:
		open = func() (driver.Device, error) { return driver.Open("cuda") }
	default:
		os.Exit(m.Run())
	}
	if err := multiprocess.ServeSharing(open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func opener(m *fakecuda.Machine) func() (driver.Device, error) {
	return func() (driver.Device, error) { return driverOf(m).Open("") }
}

// TestSharing has two processes, each with a machine of its own, share memory.
func TestSharing(t *testing.T) {
	self, err := os.Executable()
	testkit.Must(t, err)
	m := newMachine(t, twoProcesses)
	multiprocess.RunSharing(t, func(t testing.TB) driver.Device {
		d, err := driverOf(m).Open("")
		testkit.Must(t, err)
		return d
	}, func() *exec.Cmd { return exec.Command(self, serveFake) })
}

func TestExport(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	sharing, vm := r.d.Sharing(), r.d.VirtualMemory()
	p := r.alloc(10_000)
	b, err := sharing.Export(p)
	r.ok(err)
	h, err := parseHandle(handleMagic, b)
	r.ok(err)
	if h.Size != 10_000 || h.Process != int64(os.Getpid()) || h.Started == 0 {
		t.Errorf("the handle says %+v", h)
	}
	_, _, err = sharing.Import(b)
	r.wantErr("Import in the exporting process", err, driver.ErrInvalid, "a handle of this process")
	if r.m.Calls("cuIpcOpenMemHandle_v2") != 0 {
		t.Error("libcuda was asked to")
	}
	other := openOn(t, r.m, "1")
	_, _, err = other.Sharing().Import(b)
	r.wantErr("Import on another device", err, driver.ErrInvalid, "device")
	_, err = sharing.Export(p + 1)
	r.wantErr("Export inside a block", err, driver.ErrInvalid)
	_, err = sharing.Export(64)
	r.wantErr("Export of nothing", err, driver.ErrInvalid)

	size := r.d.info.Granularity
	at, err := vm.Reserve(size)
	r.ok(err)
	_, err = sharing.Export(at)
	r.wantErr("Export of virtual memory", err, driver.ErrUnsupported, "ExportPage")
}

// TestHandlesAreChecked: libcuda is not given what is no handle.
func TestHandlesAreChecked(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	good, err := r.d.Sharing().Export(r.alloc(100))
	r.ok(err)
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	zeroSize := bytes.Clone(good)
	binary.LittleEndian.PutUint64(zeroSize[len(handleMagic)+16:], 0)
	for what, c := range map[string]struct {
		b    []byte
		says string
	}{
		"nothing":          {nil, "not a handle of this kind"},
		"other bytes":      {drivertest.Noise(1, len(good)), "not a handle of this kind"},
		"another version":  {change(len(handleMagic)-1, 77), "version 77"},
		"too short":        {good[:len(good)-1], "bytes, want"},
		"too long":         {append(bytes.Clone(good), 0), "bytes, want"},
		"the magic alone":  {handleMagic, "bytes, want"},
		"no memory":        {zeroSize, "0 bytes"},
		"another device's": {change(len(handleMagic), good[len(handleMagic)]+1), "device"},
	} {
		_, _, err := r.d.Sharing().Import(c.b)
		r.wantErr(what, err, driver.ErrInvalid, c.says)
	}
	if r.m.Calls("cuIpcOpenMemHandle_v2") != 0 {
		t.Error("libcuda was given one")
	}
	// A process of another container may have the same number: it is told apart by its start.
	h, err := parseHandle(handleMagic, good)
	r.ok(err)
	h.Started++
	_, _, err = r.d.Sharing().Import(h.bytes(handleMagic))
	r.wantErr("Import", err, driver.ErrInvalid)
	if r.m.Calls("cuIpcOpenMemHandle_v2") != 1 {
		t.Error("libcuda was not asked")
	}
	for result, code := range map[fakecuda.Result]error{
		fakecuda.MapFailed: driver.ErrInvalid, 304: driver.ErrInvalid, fakecuda.OutOfMemory: driver.ErrNoMemory,
		fakecuda.PeerAccessUnsupported: driver.ErrUnsupported,
	} {
		r.m.Fail("cuIpcOpenMemHandle_v2", 1, result)
		_, _, err = r.d.Sharing().Import(h.bytes(handleMagic))
		r.wantErr(fmt.Sprintf("Import with result %d", result), err, code)
	}
}

// TestExportedPages: the descriptor is not for programs that are started, and a page's size is looked at.
func TestExportedPages(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	sharing, vm, size := r.d.Sharing(), r.d.VirtualMemory(), r.d.info.Granularity
	page, err := sharing.CreateShared(2 * size)
	r.ok(err)
	f, err := sharing.ExportPage(page)
	r.ok(err)
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	r.ok(err)
	if flags&unix.FD_CLOEXEC == 0 {
		t.Error("programs that are started inherit the descriptor")
	}
	for _, wrong := range []int64{size, 4 * size} {
		_, err = sharing.ImportPage(f, wrong)
		r.wantErr(fmt.Sprintf("ImportPage of %d bytes", wrong), err, driver.ErrInvalid)
	}
	_, err = sharing.ImportPage(f, 4*size)
	r.wantErr("ImportPage of more than there is", err, driver.ErrInvalid, "not the size of the page")
	for _, symbol := range []string{
		"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemExportToShareableHandle",
	} {
		r.m.Fail(symbol, 1, fakecuda.OutOfMemory)
		g, err := sharing.ExportPage(page)
		if err == nil {
			_, err = sharing.ImportPage(g, 2*size)
			r.ok(g.Close())
		}
		r.wantErr("with "+symbol+" failing", err, driver.ErrNoMemory)
	}
	imported, err := sharing.ImportPage(f, 2*size)
	r.ok(err)
	r.ok(f.Close())
	at, err := vm.Reserve(4 * size)
	r.ok(err)
	r.ok(vm.Map(at, page, imported))
	s := r.stream()
	r.ok(s.Fill(at, 7, 100))
	r.holds(s, at+driver.Pointer(2*size), bytes.Repeat([]byte{7}, 100))
	plain, err := vm.Create(size)
	r.ok(err)
	_, err = sharing.ExportPage(plain)
	r.wantErr("ExportPage of an ordinary page", err, driver.ErrInvalid)
}

func TestSharingWithoutVirtualMemory(t *testing.T) {
	r := newRig(t, fakecuda.Options{NoVirtual: true})
	_, err := r.d.Sharing().CreateShared(1 << 20)
	r.wantErr("CreateShared", err, driver.ErrUnsupported)
	_, err = r.d.Sharing().ImportPage(os.Stdin, 1<<20)
	r.wantErr("ImportPage", err, driver.ErrUnsupported)
	_, err = r.d.Sharing().Export(r.alloc(100))
	r.ok(err)
}

func TestHandleForms(t *testing.T) {
	h := handle{Size: 1, Process: 2, Started: 3}
	for i := range h.UUID {
		h.UUID[i] = byte(i)
	}
	for i := range h.Driver {
		h.Driver[i] = uint64(i) << 40
	}
	back, err := parseHandle(handleMagic, h.bytes(handleMagic))
	if err != nil || back != h {
		t.Errorf("%+v, %v: want %+v", back, err, h)
	}
	if a, b := started(), started(); a == 0 || a != b {
		t.Errorf("this process started at %d and %d", a, b)
	}
}
