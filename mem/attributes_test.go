package mem_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// Attributes are sets: additional attributes do no harm, an added attribute can be removed, and the eight of the device
// are merged and compared like the others.
func TestAttributesAreSets(t *testing.T) {
	host := mem.OnHost | mem.GPUCompatible
	for _, c := range []struct {
		has, want mem.Attributes
		ok        bool
	}{
		{0, 0, true},
		{host, 0, true},
		{host, mem.OnHost, true},
		{host, host, true},
		{mem.OnHost, host, false},
		{host, mem.NICCompatible, false},
		{mem.DeviceAttributes(3), mem.DeviceAttributes(1), true},
		{mem.DeviceAttributes(3) | host, mem.DeviceAttributes(4), false},
	} {
		if c.has.Satisfies(c.want) != c.ok {
			t.Errorf("%v satisfies %v: %v", c.has, c.want, !c.ok)
		}
	}
	a := mem.OnHost | mem.DeviceAttributes(0x81)
	if a.Device() != 0x81 || (a|mem.DeviceAttributes(2)).Device() != 0x83 || a&^mem.OnHost != mem.DeviceAttributes(0x81) {
		t.Errorf("%v, of the device %#x", a, a.Device())
	}
}

func TestAttributesAsText(t *testing.T) {
	for text, want := range map[string]mem.Attributes{
		"none":    0,
		"on_host": mem.OnHost,
		"on_host,nic_compatible,gpu_compatible,track_sizes,device=0xff": mem.OnHost | mem.NICCompatible | mem.GPUCompatible |
			mem.TrackSizes | mem.DeviceAttributes(255),
		"gpu_compatible,device=0x01": mem.GPUCompatible | mem.DeviceAttributes(1),
	} {
		got, err := mem.ParseAttributes(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]mem.Attributes{
		"": 0, " \t": 0, " device=3 , on_host ": mem.OnHost | mem.DeviceAttributes(3), "device=0b11": mem.DeviceAttributes(3),
	} {
		if got, err := mem.ParseAttributes(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, part := range map[string]string{
		"on_hosts": "none of on_host, nic_compatible", "on_host,on_host": "twice", "device=1,device=2": "twice", ",": "none of",
		"device=0": "1 to 255", "device=256": "1 to 255", "device=": "1 to 255", "on_host,none": "none of", "device=-1": "1 to 255",
	} {
		if got, err := mem.ParseAttributes(text); err == nil || got != 0 || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is %v, %v; want an error with %q", text, got, err, part)
		}
	}
	if text := mem.Attributes(1<<9 | 1).String(); text != "on_host,unknown=0x200" {
		t.Error(text)
	}
}

func FuzzParseAttributes(f *testing.F) {
	for _, text := range []string{"", "none", "on_host,gpu_compatible", "device=0xff , track_sizes", "device=08", "nic_compatible,,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := mem.ParseAttributes(text)
		if err != nil {
			return
		}
		if again, err := mem.ParseAttributes(a.String()); err != nil || again != a {
			t.Errorf("%q is %v, and that %v, %v", text, a, again, err)
		}
	})
}

func allocatorFor(t *testing.T, dev driver.Device, want mem.Attributes) mem.Allocator {
	t.Helper()
	a, err := mem.AllocatorFor(dev, want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c, ok := a.(io.Closer); !ok || c.Close() != nil {
			t.Errorf("%T does not close", a)
		}
	})
	return a
}

// A device asked for an allocator with attributes returns the one of highest priority that has them all: its own
// memory, page-locked host memory, ordinary host memory. If none fits, the error lists the available ones.
func TestADeviceIsAskedForAttributes(t *testing.T) {
	dev := drivertest.OpenDevice(t, "sim:total=1GiB") // which Go code does not reach, as a GPU
	s := dev.DefaultStream()
	for _, want := range []mem.Attributes{0, mem.GPUCompatible} {
		if _, ok := allocatorFor(t, dev, want).(*caching.Allocator); !ok {
			t.Errorf("%v memory of the device is not its own", want)
		}
	}
	locked := allocatorFor(t, dev, mem.OnHost|mem.GPUCompatible)
	if _, ok := locked.(*pinned.MemAllocator); !ok {
		t.Errorf("memory of the host for a GPU is %T", locked)
	}
	plain := allocatorFor(t, dev, mem.OnHost)
	for _, a := range []mem.Allocator{locked, plain} {
		b, err := a.Alloc(s, 1000)
		testkit.Must(t, err)
		if a.(io.Closer).Close() == nil {
			t.Errorf("%T closes with a live block", a)
		}
		v, ok := mem.Find[driver.Visible](a)
		if !ok {
			t.Fatalf("Go code does not reach %T", a)
		}
		bytes, err := v.Bytes(b.Ptr, b.Size)
		testkit.Must(t, err)
		for i := range bytes {
			bytes[i] = 7
		}
		if got := dev.Pinned().IsPinned(bytes); got != (a == locked) {
			t.Errorf("page-locked: %v, of %T", got, a)
		}
		a.Free(b)
	}
	tracked := allocatorFor(t, dev, mem.OnHost|mem.TrackSizes)
	b, err := tracked.Alloc(s, 1000)
	testkit.Must(t, err)
	if n := tracked.(mem.SizeTracker).RequestedSize(b); n != 1000 {
		t.Errorf("asked for %d bytes", n)
	}
	if below, ok := mem.Find[*layer.SizeTracker](tracked); !ok || below.AllocationID(b) != 1 {
		t.Error("the Tracked is not found")
	}
	tracked.Free(b)
	_, err = mem.AllocatorFor(dev, mem.OnHost|mem.NICCompatible)
	if !errors.Is(err, mem.ErrUnknown) {
		t.Errorf("memory for a network card: %v", err)
	}
	testkit.Contains(t, err.Error(), "on_host,nic_compatible", "sim", "caching (gpu_compatible)", "pinned (on_host,gpu_compatible)", "host (on_host)")
	host := drivertest.OpenDevice(t, "host:total=1GiB")
	if _, ok := allocatorFor(t, host, mem.OnHost|mem.GPUCompatible).(*caching.Allocator); !ok {
		t.Error("the host's own memory is not good enough for the host")
	}
}

// An allocator that the device or the program cannot provide is skipped, and its error is returned if no other is left.
func TestADeviceWithoutPageLockedMemory(t *testing.T) {
	dev := noPinned{drivertest.OpenDevice(t, "sim:total=1GiB")}
	if _, err := mem.AllocatorFor(dev, mem.OnHost|mem.GPUCompatible); !errors.Is(err, mem.ErrUnknown) || !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("page-locked memory: %v", err)
	}
	bit := mem.DeviceAttributes(0x40)
	broken := errors.New("broken")
	refuse := func(err error) mem.Factory {
		return func(driver.Device, string) (mem.Allocator, error) { return nil, err }
	}
	mem.RegisterInTest(t)
	below := fake.NewPile(1)
	mem.RegisterFor(bit, "attributes-lacking", "sim", 9, refuse(driver.ErrUnsupported))
	mem.RegisterFor(bit, "attributes-good", "sim", 8, func(driver.Device, string) (mem.Allocator, error) { return below, nil })
	mem.RegisterFor(bit, "attributes-broken", "sim", 7, refuse(broken))
	if a, err := mem.AllocatorFor(dev, bit); a != mem.Allocator(below) {
		t.Errorf("%v, %v", a, err)
	}
	mem.RegisterFor(bit, "attributes-broken", "sim:", 10, refuse(broken)) // of another driver
	mem.RegisterFor(bit|mem.DeviceAttributes(0x20), "attributes-more", "sim", 10, refuse(broken))
	if _, err := mem.AllocatorFor(dev, bit); !errors.Is(err, broken) {
		t.Errorf("an allocator that cannot be made: %v", err)
	}
}

type noPinned struct{ driver.Device }

func (noPinned) Pinned() driver.Pinned { return nil }

// unasked is a device of another driver.
type unasked struct{ driver.Device }

func (u unasked) Info() driver.Info {
	info := u.Device.Info()
	info.Driver = "unasked"
	return info
}

// Memory of the host, for another device, is opened where it is asked for, and is not taken for the device's.
func TestHostMemoryMustBeAskedFor(t *testing.T) {
	mem.RegisterInTest(t)
	mem.RegisterFor(mem.OnHost, "attributes-host", "unasked", 1<<20, func(driver.Device, string) (mem.Allocator, error) {
		return nil, errors.New("opened")
	})
	dev := unasked{drivertest.OpenDevice(t, "sim:total=1GiB")}
	a, err := mem.Open("", dev)
	testkit.Must(t, err)
	if _, ok := a.(*caching.Allocator); !ok {
		t.Errorf("without a name, the device has a %T", a)
	}
	testkit.Must(t, a.(io.Closer).Close())
	if _, ok := allocatorFor(t, dev, 0).(*caching.Allocator); !ok {
		t.Error("without OnHost, what is had is not the device's")
	}
	if _, err := mem.Open("attributes-host", dev); err == nil || err.Error() != "opened" {
		t.Errorf("by its name: %v", err)
	}
	if _, err := mem.Open("host:size=1MiB", dev); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a setting that the host does not have: %v", err)
	}
	b, err := mem.Open("host:total=1MiB", drivertest.OpenSim(t, 0))
	testkit.Must(t, err)
	if _, err := b.Alloc(dev.DefaultStream(), 2<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("beyond the host's total: %v", err)
	}
	testkit.Must(t, b.(io.Closer).Close())
}
