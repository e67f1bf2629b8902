package direct_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

const mib = 1 << 20

var configs = map[string]direct.Config{
	"at once":          {},
	"session":          {Session: true},
	"session, a limit": {Session: true, Limit: 200 * mib},
}

func TestConformance(t *testing.T) {
	construct := func(dev driver.Device, cfg direct.Config) (*direct.Allocator, error) {
		return direct.New(dev, cfg), nil
	}
	memtest.RunAll(t, memtest.Config{Ops: 600, Seeds: 4, FaultOps: 40}, construct, configs)
}

// A bench is an allocator on a simulated device of 16 MiB that counts its calls.
type bench struct {
	*testing.T
	dev *fault.Device
	a   *direct.Allocator
}

func newBench(t *testing.T, cfg direct.Config) *bench {
	t.Helper()
	dev := fault.Wrap(drivertest.OpenSim(t, 16*mib))
	b := &bench{t, dev, direct.New(dev, cfg)}
	t.Cleanup(func() {
		if err := b.a.Close(); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
	return b
}

func (b *bench) alloc(size int64) mem.Block {
	b.Helper()
	blk, err := b.a.Alloc(b.dev.DefaultStream(), size)
	if err != nil {
		b.Fatalf("Alloc of %d bytes: %v", size, err)
	}
	return blk
}

func (b *bench) fails(size int64) *mem.OutOfMemory {
	b.Helper()
	blk, err := b.a.Alloc(b.dev.DefaultStream(), size)
	var oom *mem.OutOfMemory
	if !errors.As(err, &oom) || blk != (mem.Block{}) {
		b.Fatalf("Alloc of %d bytes: %+v, %v; want a *mem.OutOfMemory", size, blk, err)
	}
	return oom
}

// frees checks how often the device was asked to take memory back since the start.
func (b *bench) frees(want int64, when string) {
	b.Helper()
	if n := b.dev.CallsOf("Free"); n != want {
		b.Errorf("%s the device has been asked to take back %d blocks, want %d", when, n, want)
	}
}

// KuiperLLama: zero bytes give nothing, and ask the device for nothing.
func TestZeroBytesGiveNothing(t *testing.T) {
	b := newBench(t, direct.Config{})
	if blk := b.alloc(0); blk != (mem.Block{}) {
		t.Errorf("zero bytes gave %+v", blk)
	}
	b.a.Free(mem.Block{})
	if n := b.dev.Calls(); n != 0 {
		t.Errorf("zero bytes made %d calls of the device", n)
	}
}

func TestFreeGivesBackAtOnce(t *testing.T) {
	b := newBench(t, direct.Config{})
	for i := range int64(3) {
		blk := b.alloc(16 * mib) // all there is, each time
		if blk.Size != 16*mib {
			t.Errorf("16MiB asked for, %d given", blk.Size)
		}
		b.a.Free(blk)
		b.frees(i+1, "after Free")
	}
	if st := b.a.Stats(); st.NumDeviceAlloc != 3 || st.NumDeviceFree != 3 || st.ReservedBytes.All.Current != 0 {
		t.Errorf("the statistics are %+v", st)
	}
}

// BMEngine's DirectMemoryAllocator: freed blocks go back at the end of the session, and live blocks outlive it.
func TestSessionGivesBackAtItsEnd(t *testing.T) {
	b := newBench(t, direct.Config{Session: true})
	keep, x, y := b.alloc(mib), b.alloc(2*mib), b.alloc(3*mib)
	b.a.Free(y)
	b.a.Free(x)
	b.frees(0, "in the session")
	if st := b.a.Stats(); st.ReservedBytes.All.Current != 6*mib || st.ActiveBytes.All.Current != mib {
		t.Errorf("in the session %d bytes are reserved and %d active, want 6MiB and 1MiB",
			st.ReservedBytes.All.Current, st.ActiveBytes.All.Current)
	}
	if z := b.alloc(2 * mib); z.Ptr == x.Ptr || z.Ptr == y.Ptr {
		t.Errorf("a freed block at %#x was allocated again", uint64(z.Ptr))
	} else {
		b.a.Free(z)
	}
	if err := b.a.FreeSession(); err != nil {
		t.Fatal(err)
	}
	b.frees(3, "after the session")
	segments := b.a.Snapshot()
	if len(segments) != 1 || segments[0].Ptr != keep.Ptr || segments[0].Blocks[0].State != mem.ActiveAllocated {
		t.Errorf("after the session the snapshot is %+v, want the block that was kept", segments)
	}
	if err := b.a.EmptyCache(); err != nil { // nothing is left to do
		t.Fatal(err)
	}
	b.a.Free(keep)
}

// In a session, a request that finds no room gives back the queued memory and tries again; one that finds room does
// not.
func TestNoRoomEndsTheSessionEarly(t *testing.T) {
	for _, cfg := range []direct.Config{{Session: true}, {Session: true, Limit: 12 * mib}} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			b := newBench(t, cfg)
			x, y := b.alloc(5*mib), b.alloc(5*mib)
			b.a.Free(x)
			z := b.alloc(mib)
			b.frees(0, "with room")
			w := b.alloc(6 * mib)
			b.frees(1, "without room")
			if n := b.a.Stats().NumAllocRetries; n != 1 {
				t.Errorf("%d requests were asked again, want 1", n)
			}
			b.fails(5 * mib)
			b.frees(1, "with nothing queued")
			for _, blk := range []mem.Block{y, z, w} {
				b.a.Free(blk)
			}
		})
	}
}

// A request that fits the device but not the limit is refused without a driver call, and the error names the remedy.
func TestLimit(t *testing.T) {
	b := newBench(t, direct.Config{Limit: 8 * mib})
	x := b.alloc(6 * mib)
	asked := b.dev.CallsOf("Alloc")
	oom := b.fails(3 * mib)
	if b.dev.CallsOf("Alloc") != asked {
		t.Error("the device was asked for what the limit does not allow")
	}
	if oom.Cause != nil || oom.Allowed != 8*mib || len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=9MiB" {
		t.Errorf("the error says: allowed %d, cause %v, remedies %v", oom.Allowed, oom.Cause, oom.Remedies)
	}
	y := b.alloc(2 * mib) // just fits
	b.a.Free(x)
	b.a.Free(y)
	if oom := b.fails(17 * mib); len(oom.Remedies) != 0 {
		t.Errorf("no limit lets 17MiB through a device of 16MiB, but %v is said to", oom.Remedies)
	}
	testkit.WantPanic(t, "a negative limit", "direct: ", func() { direct.New(b.dev, direct.Config{Limit: -1}) })
}

// The limit refuses a request in the same way if memory was given back first and the request repeated.
func TestLimitAfterGivingBack(t *testing.T) {
	b := newBench(t, direct.Config{Session: true, Limit: 8 * mib})
	x := b.alloc(4 * mib)
	b.a.Free(b.alloc(mib))
	oom := b.fails(5 * mib)
	b.frees(1, "after a request without room")
	if oom.Cause != nil || len(oom.Remedies) != 1 || oom.Remedies[0].Name != "limit=9MiB" {
		t.Errorf("the error says: cause %v, remedies %v", oom.Cause, oom.Remedies)
	}
	b.a.Free(x)
}

func TestOutOfMemoryExplains(t *testing.T) {
	b := newBench(t, direct.Config{})
	x := b.alloc(10 * mib)
	oom := b.fails(7 * mib)
	if oom.Requested != 7*mib || oom.Rounded != 7*mib || oom.Segment != 7*mib || oom.Total != 16*mib || oom.Free != 6*mib ||
		oom.Allowed != 0 || oom.Allocated != 10*mib || oom.Reserved != 10*mib || oom.Small || oom.DeviceName == "" ||
		!errors.Is(oom.Cause, driver.ErrNoMemory) {
		t.Errorf("the error is %+v", oom)
	}
	if !errors.Is(oom, mem.ErrNoMemory) || !strings.Contains(oom.Error(), "Tried to allocate 7.00 MiB") {
		t.Errorf("the error says %q", oom.Error())
	}
	if huge := b.fails(1 << 60); !huge.TooLarge {
		t.Errorf("1 EiB: %+v", huge)
	}
	if n := b.a.Stats().NumOOMs; n != 1 { // one beyond 1 EiB is none
		t.Errorf("%d requests are counted as out of memory, want 1", n)
	}
	b.a.Free(x)
}

// The device's other failures are not taken for want of memory, and queue nothing.
func TestDeviceErrorsAreToldApart(t *testing.T) {
	b := newBench(t, direct.Config{})
	b.dev.SetRules(fault.Rule{Kind: "Alloc", Nth: 1, Code: driver.ErrLost})
	_, err := b.a.Alloc(b.dev.DefaultStream(), mib)
	if !errors.Is(err, driver.ErrLost) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc on a lost device: %v", err)
	}
}

// A block that the device does not take back is queued, whatever the mode, and asked about again.
func TestFreeThatTheDeviceRefuses(t *testing.T) {
	b := newBench(t, direct.Config{})
	x := b.alloc(9 * mib)
	b.dev.SetRules(fault.Rule{Kind: "Free", Nth: 1}, fault.Rule{Kind: "Free", Nth: 2, Code: driver.ErrLost})
	b.a.Free(x)
	if st := b.a.Stats(); st.ReservedBytes.All.Current != 9*mib || st.Allocation.All.Current != 0 {
		t.Errorf("refused: %d bytes are reserved in %d blocks", st.ReservedBytes.All.Current, st.Allocation.All.Current)
	}
	if err := b.a.Close(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Close with a block that the device does not take: %v", err)
	}
	b.a.Free(b.alloc(9 * mib)) // no room, until the device takes the first one
	if segments := b.a.Snapshot(); len(segments) != 0 {
		t.Errorf("at the end there are %+v", segments)
	}
}

// A freed block is distinguished from a newer one with the same address, size and record.
func TestStaleFreeIsNoticed(t *testing.T) {
	b := newBench(t, direct.Config{})
	stale := b.alloc(mib)
	b.a.Free(stale)
	now := b.alloc(mib)
	if now.Ptr != stale.Ptr || now.Tag == stale.Tag {
		t.Fatalf("want the same address with another tag: %+v, %+v", stale, now)
	}
	testkit.WantPanic(t, "a stale Free", "direct: Free of a block that is not live", func() { b.a.Free(stale) })
	b.a.Free(now)
}

// Work of the block's stream and of others is done before the memory goes back.
func TestFreeWaitsForWork(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			dev := drivertest.OpenSim(t, 16*mib)
			a := direct.New(dev, cfg)
			own, other := dev.DefaultStream(), drivertest.NewStream(t, dev)
			blk, err := a.Alloc(own, mib)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []driver.Stream{own, other} {
				dev.Hold(s.ID())
			}
			if err := errors.Join(own.Fill(blk.Ptr, 1, mib/2), other.Fill(blk.Ptr+mib/2, 2, mib/2)); err != nil {
				t.Fatal(err)
			}
			a.Free(blk, other)
			if pending := dev.Pending(other.ID()) > 0; pending != cfg.Session {
				t.Errorf("after Free work is pending: %v, want %v", pending, cfg.Session)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if dev.Pending(own.ID())+dev.Pending(other.ID()) > 0 {
				t.Error("the memory went back before the work was done")
			}
		})
	}
}

func TestClose(t *testing.T) {
	b := newBench(t, direct.Config{Session: true})
	x, y := b.alloc(mib), b.alloc(2*mib)
	b.a.Free(y)
	if err := b.a.Close(); err == nil || !strings.Contains(err.Error(), "1 blocks of 1048576 bytes") {
		t.Errorf("Close with a live block: %v", err)
	}
	b.frees(0, "after a Close that failed")
	b.a.Free(x)
	for range 2 {
		if err := b.a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.frees(2, "closed")
	if _, err := b.a.Alloc(b.dev.DefaultStream(), 1); !errors.Is(err, direct.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	if err := b.a.FreeSession(); !errors.Is(err, direct.ErrClosed) {
		t.Errorf("FreeSession after Close: %v", err)
	}
}

func TestEvents(t *testing.T) {
	b := newBench(t, direct.Config{Session: true})
	var got []string
	b.a.Observe(func(e mem.Event) { got = append(got, fmt.Sprintf("%v %d", e.Action, e.Size)) })
	x := b.alloc(700)
	b.a.Free(x)
	b.fails(17 * mib)
	if err := b.a.FreeSession(); err != nil {
		t.Fatal(err)
	}
	b.a.Observe(nil)
	b.a.Free(b.alloc(1))
	want := []string{
		"segment_alloc 700", "alloc 700", "free_requested 700", "free_completed 700",
		"segment_free 700", "oom 17825792", // what was queued goes back before a request is refused
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

func TestParseConfig(t *testing.T) {
	for settings, want := range map[string]direct.Config{
		"":                               {},
		" ":                              {},
		"session=on":                     {Session: true},
		"session=off,limit=0":            {},
		"session=on,limit=8GiB":          {Session: true, Limit: 8 << 30},
		" limit = 512k , session = on\t": {Session: true, Limit: 512 << 10},
	} {
		if got, err := direct.ParseConfig(settings); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", settings, got, err, want)
		}
	}
	for settings, want := range map[string]string{
		"sesion=on":             `"sesion" at 0: unknown`,
		"session=on,":           `"" at 11: unknown`,
		"session":               `"session" at 0: want session=VALUE`,
		"limit=1k,session=True": `"session" at 9: want on or off, got "True"`,
		"limit=-1":              `"limit" at 0: size`,
		"limit=1k,limit=2k":     `"limit" at 9: given twice`,
		"limit=1e30":            `"limit" at 0: size`,
	} {
		if got, err := direct.ParseConfig(settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want an error with %q", settings, got, err, want)
		}
	}
}

// mem.Open knows it by its name, with settings.
func TestOpen(t *testing.T) {
	dev := drivertest.OpenSim(t, 16*mib)
	a, err := mem.Open("direct:session=on,limit=1MiB", dev)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := a.(*direct.Allocator); !ok {
		t.Fatalf("mem.Open gave a %T", a)
	}
	if _, err := a.Alloc(dev.DefaultStream(), mib+1); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("more than the limit: %v", err)
	}
	if a, err := mem.Open("direct:session=maybe", dev); err == nil {
		t.Errorf("bad settings gave a %T", a)
	}
}

// A request without retry does not give back the queued memory; the next request does.
func TestNoRetry(t *testing.T) {
	b := newBench(t, direct.Config{Session: true})
	b.a.Free(b.alloc(10 * mib))
	_, err := b.a.AllocWith(b.dev.DefaultStream(), 10*mib, mem.AllocOptions{NoRetry: true})
	if oom := (*mem.OutOfMemory)(nil); !errors.As(err, &oom) || oom.Reserved != 10*mib {
		t.Errorf("%v", err)
	}
	b.frees(0, "without a retry")
	b.a.Free(b.alloc(10 * mib))
	b.frees(1, "with one")
	if st := b.a.Stats(); st.NumAllocRetries != 1 || st.NumOOMs != 1 {
		t.Errorf("the statistics are %+v", st)
	}
}
