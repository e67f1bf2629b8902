package dropin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

const mib = 1 << 20

// A gpuWithHandles is a simulated device on which every handle is a stream.
type gpuWithHandles struct {
	driver.Device
	t       *testing.T
	streams map[uintptr]driver.Stream
	gone    uintptr // the handle of a stream that was destroyed: no call may use it
}

// refuseGone fails the test if a call uses the stream that was destroyed.
func (d *gpuWithHandles) refuseGone(c intercept.Call, next func() error) error {
	if c.Stream != nil && c.Stream == d.streams[d.gone] {
		d.t.Errorf("%v on a stream that was destroyed", c.Kind)
	}
	return next()
}

func (d *gpuWithHandles) NewStream(o driver.StreamOptions) (driver.Stream, error) {
	handle := o.Foreign
	if handle == 0xdead {
		return nil, &driver.Error{Call: "NewStream", Code: driver.ErrInvalid, Detail: "no such stream"}
	}
	o.Foreign = 0
	s, err := d.Device.NewStream(o)
	if err == nil && handle != 0 {
		d.streams[handle] = s
	}
	return s, err
}

// backendOfTests is the setting of the backend in tests that have none.
var backendOfTests string

// withBackend adds the backend of tests to settings without one.
func withBackend(settings string) string {
	if strings.Contains(settings, "backend:") {
		return settings
	}
	return strings.Trim(backendOfTests+","+settings, ",")
}

// newProcess makes a Process with two simulated devices, the first of which is returned once it is open.
func newProcess(t *testing.T, settings string) (*Process, *gpuWithHandles) {
	t.Helper()
	settings = withBackend(settings)
	first := &gpuWithHandles{t: t, streams: map[uintptr]driver.Stream{}}
	p, err := New(2, settings, func(ordinal int) (driver.Device, error) {
		dev := sim.New(sim.Options{Total: 256 * mib})
		if ordinal == 0 {
			first.Device = dev
			return intercept.Wrap(first, first.refuseGone), nil
		}
		return dev, nil
	})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	return p, first
}

func alloc(t *testing.T, p *Process, stream uintptr, size uint64) driver.Pointer {
	t.Helper()
	at, err := p.Alloc(0, stream, size)
	testkit.Must(t, err)
	return at
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]settings{
		"":                                {backend: "paged"},
		" backend:paged , limit : 2GiB ,": {backend: "paged", limit: 2 << 30},
		"spare:1GiB,aliases:off":          {backend: "paged", text: "spare=1GiB,aliases=off"},
		"backend:caching,limit:1MiB":      {backend: "caching", limit: mib},
		"host:1GiB":                       {backend: "paged", host: 1 << 30},
		"max_split_size_mb:64,backend:caching,roundup_power2_divisions:[256:1,512:2]": {
			backend: "caching", text: "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2]",
		},
		"backend:planned,plan:/tmp/a:b,page:4MiB": {backend: "planned", text: "page=4MiB", plan: "/tmp/a:b"},
	} {
		got, err := parseSettings(text)
		testkit.Must(t, err)
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"backend":                           `"backend" is not of the form key:value`,
		"limit:":                            `"limit:" is not of the form key:value`,
		"backend:best":                      `unknown backend "best"; known are arena, bfc, caching, paged, planned`,
		"limit:1GiB,limit:2GiB":             `"limit" is given twice`,
		"limit:plenty":                      "limit: ",
		"spares:1GiB":                       `"spares"`,
		"backend:caching,spare:1GiB":        `"spare"`,
		"plan:x":                            "plan needs backend:planned, not paged",
		"backend:caching,max_split_size_mb": "max_split_size_mb",
	} {
		_, err := parseSettings(text)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// Devices that use each other's memory need pages that stay at one address.
func TestPagesStayAtOneAddressAmongSeveralDevices(t *testing.T) {
	for _, c := range []struct {
		devices    int
		text, want string
	}{
		{1, "", ""},
		{2, "", "aliases=off"},
		{2, "spare:1GiB", "spare=1GiB,aliases=off"},
		{2, "backend:caching", ""},
	} {
		p, err := New(c.devices, c.text, nil)
		testkit.Must(t, err)
		if p.settings.text != c.want {
			t.Errorf("%d devices, %q: the backend gets %q, want %q", c.devices, c.text, p.settings.text, c.want)
		}
	}
}

func TestBlocksAreFoundByAddress(t *testing.T) {
	p, _ := newProcess(t, "")
	at := alloc(t, p, 7, 3*mib)
	b, err := p.Block(at + 5)
	testkit.Must(t, err)
	if want := (Block{at, 3 * mib, 0, 0}); b != want {
		t.Errorf("Block of an address inside: %+v, want %+v", b, want)
	}
	if err := p.Free(at + 5); !errors.Is(err, ErrUnknown) {
		t.Errorf("Free of an address inside a block: %v", err)
	}
	testkit.Must(t, p.Free(at))
	for name, err := range map[string]error{
		"Free":         p.Free(at),
		"RecordStream": p.RecordStream(at, 7, false),
		"Pin":          p.Pin(at),
		"Unpin":        p.Unpin(at),
	} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s after the block was freed: %v", name, err)
		}
	}
	if at := alloc(t, p, 0, 0); at != 0 {
		t.Errorf("a request of no bytes got %#x", at)
	}
}

func TestArgumentsThatAreNoneAreErrors(t *testing.T) {
	p, _ := newProcess(t, "")
	for name, call := range map[string]func() error{
		"a device that is not there": func() error { _, err := p.Alloc(2, 0, 1); return err },
		"a negative device":          func() error { _, err := p.Stats(-1); return err },
		"the per-thread stream":      func() error { _, err := p.Alloc(0, perThreadStream, 1); return err },
		"a negative limit":           func() error { return p.SetLimit(0, -1) },
		"the per-thread stream, used externally": func() error {
			at := alloc(t, p, 0, 1)
			return errors.Join(p.RecordStream(at, perThreadStream, true), p.Free(at))
		},
	} {
		if err := call(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	at := alloc(t, p, 0, 1)
	if err := p.RecordStream(at, 0xdead, true); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a handle that is no stream, used externally: error %v", err)
	}
	testkit.Must(t, p.Free(at))
	if _, err := p.Alloc(0, 0xdead, 1); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a handle that is no stream: error %v", err)
	}
	if _, err := p.Alloc(0, 0, 1<<63); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("2^63 bytes: error %v", err)
	}
}

func TestPinnedBlocksStayAfterTheirFree(t *testing.T) {
	p, _ := newProcess(t, "")
	at := alloc(t, p, 0, mib)
	testkit.Must(t, p.Pin(at))
	testkit.Must(t, p.Pin(at+1))
	testkit.Must(t, p.Free(at))
	testkit.Must(t, p.Unpin(at))
	if b, err := p.Block(at); err != nil || b.Pins != 1 {
		t.Errorf("a pinned block that was freed: %+v, %v", b, err)
	}
	testkit.Must(t, p.Unpin(at))
	if _, err := p.Block(at); !errors.Is(err, ErrUnknown) {
		t.Errorf("the block after its last unpin: %v", err)
	}
	at = alloc(t, p, 0, mib)
	if err := p.Unpin(at); !errors.Is(err, ErrInvalid) {
		t.Errorf("Unpin of a block that is not pinned: %v", err)
	}
	testkit.Must(t, p.Free(at))
}

// A block that an external stream used is not given to other work before that stream is done, and the stream is not
// touched after the free: its owner may have destroyed it.
func TestExternalStreamsAreNotTouchedAfterTheFree(t *testing.T) {
	p, dev := newProcess(t, "")
	at := alloc(t, p, 7, 2*mib)
	testkit.Must(t, p.RecordStream(at, 9, true))
	testkit.Must(t, p.RecordStream(at, 9, true))
	testkit.Must(t, p.Free(at))
	dev.gone = 9
	again := alloc(t, p, 7, 2*mib)
	if again != at {
		t.Fatalf("the block came back at %#x, not at %#x: the test shows nothing", again, at)
	}
	testkit.Must(t, dev.streams[7].Fill(again, 1, 2*mib)) // sim's race detector finds work that is not ordered
	testkit.Must(t, p.Free(again))
	stats, err := p.Stats(0)
	testkit.Must(t, err)
	if stats.Allocation.All.Current != 0 {
		t.Errorf("%d live blocks at the end", stats.Allocation.All.Current)
	}
}

func TestDevicesThatWereNotUsedStayClosed(t *testing.T) {
	p, dev := newProcess(t, "backend:caching")
	testkit.Must(t, p.SetLimit(0, 8*mib))
	testkit.Must(t, p.EmptyCache(-1))
	testkit.Must(t, p.ResetPeakStats(0))
	if s, err := p.Stats(0); err != nil || s != (Stats{Limit: 8 * mib, Stalls: -1}) {
		t.Errorf("statistics of a device that was not used: %+v, %v", s, err)
	}
	if all, err := p.Snapshot(0); err != nil || all != nil {
		t.Errorf("snapshot of a device that was not used: %v, %v", all, err)
	}
	if dev.Device != nil {
		t.Fatal("the device was opened")
	}
	if _, err := p.Alloc(0, 0, 9*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a request beyond the limit that was set before: %v", err)
	}
}

func TestEventsNameDevicesAndHandles(t *testing.T) {
	p, _ := newProcess(t, "")
	var got []string
	testkit.Must(t, p.Observe(func(e Event) {
		if e.Action == mem.ActionAlloc || e.Action == mem.ActionFreeRequested {
			got = append(got, fmt.Sprintf("%v device %d stream %d size %d", e.Action, e.Device, e.Handle, e.Size))
		}
	}))
	at := alloc(t, p, 7, 100)
	testkit.Must(t, p.Free(at))
	testkit.Must(t, p.Observe(nil))
	testkit.Must(t, p.Free(alloc(t, p, 7, 100)))
	want := "alloc device 0 stream 7 size 100; free_requested device 0 stream 7 size 100"
	if strings.Join(got, "; ") != want {
		t.Errorf("events %q, want %q", got, want)
	}
	all, err := p.Snapshot(0)
	testkit.Must(t, err)
	if len(all) == 0 {
		t.Error("no segments")
	}
}
