//go:build linux

package ipc_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// export makes an exporter on a host device, and returns the path of its socket.
func export(t testing.TB, d driver.Device, opts *ipc.Options) (*ipc.Exporter, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ipc.NewExporter(d, l, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, path
}

func dial(t testing.TB, d driver.Device, path string) *ipc.Importer {
	t.Helper()
	i, err := ipc.Dial(context.Background(), d, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.End(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func put(t testing.TB, d driver.Device, p driver.Pointer, text string) {
	t.Helper()
	s := d.DefaultStream()
	if err := errors.Join(s.CopyIn(p, []byte(text)), s.Sync(context.Background())); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, d driver.Device, p driver.Pointer, n int) string {
	t.Helper()
	b := make([]byte, n)
	if err := d.DefaultStream().CopyOut(b, p); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Pages can be opened in the exporter's own process too; handles cannot, and processes_test.go has them.
func TestABlockIsOneMemoryAtBothEnds(t *testing.T) {
	a, b := drivertest.OpenDevice(t, "host:total=256MiB"), drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, a, nil)
	i := dial(t, b, path)
	mine, err := e.Alloc(a.DefaultStream(), 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if g := a.Info().Granularity; mine.Size%g != 0 || mine.Size < 100_000 {
		t.Errorf("a block of %d bytes: not whole pages of %d", mine.Size, g)
	}
	put(t, a, mine.Ptr, "from the exporter")
	theirs, err := i.Open(context.Background(), e.Ticket(mine))
	if err != nil {
		t.Fatal(err)
	}
	if theirs.Size != mine.Size || theirs.Ptr == mine.Ptr {
		t.Errorf("opened as %+v, exported as %+v", theirs, mine)
	}
	if got := get(t, b, theirs.Ptr, 17); got != "from the exporter" {
		t.Errorf("the importer reads %q", got)
	}
	put(t, b, theirs.Ptr+driver.Pointer(theirs.Size)-4, "back")
	if got := get(t, a, mine.Ptr+driver.Pointer(mine.Size)-4, 4); got != "back" {
		t.Errorf("the exporter reads %q", got)
	}
	again, err := i.Open(context.Background(), e.Ticket(mine))
	if err != nil {
		t.Fatal(err)
	}
	if n := e.Users(mine); n != 2 {
		t.Errorf("%d users of a block opened twice", n)
	}
	if err := i.Close(again); err != nil {
		t.Fatal(err)
	}

	// Freed here, it lives on there; its ticket is void.
	ticket := e.Ticket(mine)
	e.Free(mine)
	if got := get(t, b, theirs.Ptr, 17); got != "from the exporter" {
		t.Errorf("after Free the importer reads %q", got)
	}
	if _, err := i.Open(context.Background(), ticket); !errors.Is(err, ipc.ErrTicket) {
		t.Errorf("open a freed block: %v", err)
	}
	if err := i.Close(theirs, b.DefaultStream()); err != nil {
		t.Error(err)
	}
	if free, total, err := b.Available(); err != nil || free != total {
		t.Errorf("the importer's device has %d of %d free, %v", free, total, err)
	}
}

func TestWaitIsForTheLastUser(t *testing.T) {
	a, b := drivertest.OpenDevice(t, "host:total=256MiB"), drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, a, nil)
	first, second := dial(t, b, path), dial(t, b, path)
	m, err := e.Alloc(a.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []*ipc.Importer{first, second} {
		if _, err := i.Open(context.Background(), e.Ticket(m)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Wait(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with users and a context that has ended: %v", err)
	}
	done := make(chan error)
	go func() { done <- e.Wait(t.Context(), m) }()
	if err := first.End(); err != nil { // takes its users with it
		t.Fatal(err)
	}
	if err := second.End(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || e.Users(m) != 0 {
		t.Errorf("%d users, %v", e.Users(m), err)
	}
	e.Free(m)
}

func TestWhoIsRefused(t *testing.T) {
	a := drivertest.OpenDevice(t, "host:total=256MiB")
	asked := make(chan ipc.Peer, 2)
	_, path := export(t, a, &ipc.Options{Allow: func(p ipc.Peer) bool {
		asked <- p
		return false
	}})
	_, err := ipc.Dial(context.Background(), a, path)
	if p := <-asked; !errors.Is(err, ipc.ErrRefused) || len(asked) != 0 || p.PID != os.Getpid() || p.UID != os.Geteuid() {
		t.Errorf("Allow was asked about %+v, and said no: %v", p, err)
	}

	e, path := export(t, a, nil)
	other := &otherDevice{Device: a}
	if _, err := ipc.Dial(context.Background(), other, path); !errors.Is(err, ipc.ErrRefused) || !strings.Contains(err.Error(), "GPU-other") {
		t.Errorf("another device's importer: %v", err)
	}
	i := dial(t, a, path)
	if _, err := i.Open(context.Background(), ipc.Ticket{1}); !errors.Is(err, ipc.ErrTicket) {
		t.Errorf("a ticket that was never given out: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	<-i.Lost()
	if _, err := i.Open(context.Background(), ipc.Ticket{1}); !errors.Is(err, ipc.ErrGone) {
		t.Errorf("Open without an exporter: %v", err)
	}
	if _, err := e.Alloc(a.DefaultStream(), 1); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Alloc of a closed exporter: %v", err)
	}
	simulated := drivertest.OpenSim(t, 0)
	if _, err := ipc.NewExporter(simulated, nil, nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a device that shares nothing: %v", err)
	}
}

// otherDevice is the same driver's device on other hardware.
type otherDevice struct{ driver.Device }

func (d *otherDevice) Info() driver.Info {
	info := d.Device.Info()
	info.UUID = "GPU-other"
	return info
}

func TestTickets(t *testing.T) {
	a := drivertest.OpenDevice(t, "host:total=256MiB")
	e, _ := export(t, a, &ipc.Options{Rand: bytes.NewReader(slices.Repeat([]byte{0xab}, 16))})
	m, err := e.Alloc(a.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Free(m)
	ticket := e.Ticket(m)
	if want := strings.Repeat("ab", 16); ticket.String() != want {
		t.Errorf("ticket %v, want %s", ticket, want)
	}
	if got, err := ipc.ParseTicket(ticket.String()); err != nil || got != ticket {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("ab", 17), strings.Repeat("zz", 16), strings.Repeat("ab", 15) + "a"} {
		if _, err := ipc.ParseTicket(bad); err == nil {
			t.Errorf("%q was read as a ticket", bad)
		}
	}
	if _, err := e.Alloc(a.DefaultStream(), 1); err == nil || !strings.Contains(err.Error(), "ticket") {
		t.Errorf("no more random bytes: %v", err)
	}
}

// Messages that are none end their connection, and nothing else.
func TestGarbageOnTheSocket(t *testing.T) {
	a := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, a, nil)
	m, err := e.Alloc(a.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Free(m)
	for _, message := range [][]byte{
		{0},
		bytes.Repeat([]byte{0xff}, 24), make([]byte, 5000), []byte("ASH1 but shorter than a request"),
		append([]byte{0x41, 0x53, 0x48, 0x31, 77, 0, 0, 0}, make([]byte, 16)...),
	} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		for n := 1; n > 0; { // the end comes, perhaps after a reason
			n, err = c.Read(make([]byte, 1024))
		}
		if err == nil {
			t.Errorf("%d bytes of garbage were answered", len(message))
		}
		c.Close()
	}
	i := dial(t, a, path)
	b, err := i.Open(context.Background(), e.Ticket(m))
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(b); err != nil {
		t.Error(err)
	}
}

// ways are the two ways in which blocks are exported.
var ways = map[string]*ipc.Options{"pages": nil, "handles": {Handles: true}}

func TestConformance(t *testing.T) {
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, memtest.Config{
				Device: memtest.On("host:total=1GiB,granularity=64KiB"), // small blocks: they are filled and checked
				New: func(t testing.TB, dev driver.Device) mem.Allocator {
					e, _ := export(t, dev, opts)
					return e
				},
				MaxBlock: 1 << 20, Ops: 200, Seeds: 2, FaultOps: 12,
			})
		})
	}
}

// dirty is a device whose new memory has the bytes of an earlier user.
type dirty struct{ driver.Device }

func (d dirty) Alloc(size int64) (driver.Pointer, error) {
	p, err := d.Device.Alloc(size)
	if err == nil {
		s := d.DefaultStream()
		err = errors.Join(s.Fill(p, 0x5E, size), s.Sync(context.Background()))
	}
	return p, err
}

// A block is wiped, also where it was rounded up, before another process can open it.
func TestWipedBlocks(t *testing.T) {
	for _, wipe := range []bool{false, true} {
		dev := fault.Wrap(drivertest.OpenDevice(t, "host:total=64MiB"))
		e, _ := export(t, dirty{dev}, &ipc.Options{Handles: true, Wipe: wipe})
		b, err := e.Alloc(dev.DefaultStream(), 1000)
		testkit.Must(t, err)
		want := "\x5E"
		if wipe {
			want = "\x00"
		}
		if got := get(t, dev, b.Ptr, int(b.Size)); got != strings.Repeat(want, len(got)) {
			t.Errorf("Wipe %v: a block holds %x...", wipe, got[:8])
		}
		e.Free(b)
		if !wipe {
			continue
		}
		for _, kind := range []intercept.Kind{intercept.Fill, intercept.NewStream} {
			dev.SetRules(fault.Rule{Kind: kind})
			if b, err := e.Alloc(dev.DefaultStream(), 1000); err == nil || b != (mem.Block{}) {
				t.Errorf("%s fails: %+v, %v", kind, b, err)
			}
			dev.SetRules()
		}
	}
}
