package layer_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// scripted is an allocator whose next block a test chooses.
type scripted struct{ next mem.Block }

func (a *scripted) Alloc(driver.Stream, int64) (mem.Block, error) { return a.next, nil }
func (a *scripted) Free(mem.Block, ...driver.Stream)              {}

// handover is two tenants over memory that a test maps and frees itself.
type handover struct {
	t       *testing.T
	dev     *fault.Device
	device  *layer.TenantDevice
	base    scripted
	tenants []*layer.Tenant
}

func newHandover(t *testing.T) *handover {
	h := &handover{t: t, dev: fault.Wrap(drivertest.OpenSim(t, 64<<20))}
	h.device = layer.NewTenantDevice(h.dev)
	h.tenants = tenantsOf(t, layer.NewIsolatedQuotas(&h.base, h.device, 1<<40), 2)
	return h
}

// want lets a tenant use memory, of which so many bytes must be wiped.
func (h *handover) want(what string, tenant int, p driver.Pointer, size, wiped int64) {
	h.t.Helper()
	h.base.next = mem.Block{Ptr: p, Size: size}
	before := h.tenants[tenant].Stats().Wiped
	b, err := h.tenants[tenant].Alloc(h.dev.DefaultStream(), size)
	testkit.Must(h.t, err)
	h.tenants[tenant].Free(b)
	testkit.Must(h.t, h.dev.DefaultStream().Sync(h.t.Context()))
	if got := h.tenants[tenant].Stats().Wiped - before; got != wiped {
		h.t.Errorf("%s: %d of %d bytes were wiped, want %d", what, got, size, wiped)
	}
}

// Users are those of pages, wherever they are mapped, until the device has the pages back.
func TestTenantDeviceFollowsPages(t *testing.T) {
	const page = 2 << 20
	h := newHandover(t)
	vm := h.device.VirtualMemory()
	at, err := vm.Reserve(4 * page)
	testkit.Must(t, err)
	first, err := vm.Create(page)
	testkit.Must(t, err)
	second, err := vm.Create(page)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(at, first, second))
	h.want("two new pages", 0, at, 2*page, 2*page)
	h.want("the same", 0, at, 2*page, 0)
	h.want("across both pages, of another", 1, at+page-512, 1024, 1024)
	h.want("with neighbours", 1, at+page-1024, 2048, 1024)
	testkit.Must(t, vm.Map(at+2*page, first))
	h.want("an alias", 0, at+2*page, page, 1024)
	h.want("the page itself", 0, at, page, 0)
	testkit.Must(t, vm.Unmap(at, page))
	testkit.Must(t, vm.Map(at+3*page, first))
	testkit.Must(t, vm.Drop(first))
	h.want("elsewhere, and dropped", 0, at+3*page, page, 0)
	h.want("elsewhere, of another", 1, at+3*page, page, page)
	raw := h.dev.VirtualMemory()
	foreign, err := raw.Create(page)
	testkit.Must(t, err)
	testkit.Must(t, raw.Map(at, foreign))
	h.want("a page that other code mapped where one was", 1, at, 512, 512)
	h.want("again", 1, at, 512, 512)
	testkit.Must(t, raw.Unmap(at, page))
	testkit.Must(t, vm.Map(at, foreign))
	h.want("a page that other code made", 1, at, 512, 512)
	h.want("the same page", 1, at, 512, 0)
	testkit.Must(t, vm.Unmap(at+2*page, 2*page))
	testkit.Must(t, vm.Unmap(at+page, page))
	testkit.Must(t, vm.Drop(second))
	third, err := vm.Create(page)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(at+3*page, third))
	h.want("a new page at an old address", 1, at+3*page, page, page)
	if h.dev.SetRules(fault.Rule{Kind: intercept.Unmap}); vm.Unmap(at+3*page, page) == nil {
		t.Fatal("Unmap did not fail")
	}
	h.dev.SetRules()
	h.want("after an Unmap that failed", 1, at+3*page, page, 0)
}

// A block of the device has no user until it is allocated to one, and none after it is freed.
func TestTenantDeviceFollowsBlocks(t *testing.T) {
	const size = 8 << 20
	h := newHandover(t)
	p, err := h.device.Alloc(size)
	testkit.Must(t, err)
	h.want("a new block", 0, p, size, size)
	h.want("the same", 0, p, size, 0)
	h.want("a part, of another", 1, p+512, 512, 512)
	h.want("all of it again", 0, p, size, 512)
	h.dev.SetRules(fault.Rule{Kind: intercept.Free})
	if err := h.device.Free(p); !errors.Is(err, driver.ErrLost) {
		t.Fatal(err)
	}
	h.want("after a Free that failed", 0, p, size, 0)
	h.dev.SetRules()
	testkit.Must(t, h.device.Free(p))
	same, err := h.dev.Alloc(size) // not through the TenantDevice
	testkit.Must(t, err)
	if same != p {
		t.Fatalf("the device has chosen %#x, not %#x again", same, p)
	}
	h.want("memory of other code", 0, p, size, size)
	h.want("again", 0, p, size, size)
	if h.device.Underlying() != driver.Device(h.dev) {
		t.Error("Underlying is another device")
	}
}

// Fresh memory that a failed wipe may still write to is not wiped beside it in a capture.
func TestTenantDeviceAfterAWipeThatFailed(t *testing.T) {
	h := newHandover(t)
	s := drivertest.NewStream(t, h.dev)
	p, err := h.device.Alloc(1024)
	testkit.Must(t, err)
	h.base.next = mem.Block{Ptr: p, Size: 1024}
	h.dev.SetRules(fault.Rule{Kind: intercept.Fill})
	if _, err := h.tenants[0].Alloc(s, 1024); !errors.Is(err, driver.ErrLost) {
		t.Fatal(err)
	}
	h.dev.SetRules()
	testkit.Must(t, h.dev.Graphs().Begin(s))
	if _, err := h.tenants[0].Alloc(s, 1024); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("in a capture: %v", err)
	}
	g, err := h.dev.Graphs().End(s)
	testkit.Must(t, err)
	testkit.Must(t, g.Close())
	h.want("afterwards", 0, p, 1024, 1024)
}

// A wipe in a capture whose stream cannot be closed may still be queued: the memory is not used before it is done. The
// next such wipe closes the stream.
func TestTenantDeviceAfterAWipeInACaptureThatFailed(t *testing.T) {
	simulated := drivertest.OpenSim(t, 256<<20)
	dev := fault.Wrap(simulated)
	td := layer.NewTenantDevice(dev)
	base := openShared(t, td, "caching:expandable_segments:True")
	tenant := tenantsOf(t, layer.NewIsolatedQuotas(base, td, 1<<40), 1)[0]
	s := drivertest.NewStream(t, dev)
	capture := func(rules ...fault.Rule) (mem.Block, error) {
		testkit.Must(t, dev.Graphs().Begin(s))
		dev.SetRules(rules...)
		b, err := tenant.Alloc(s, 4<<20)
		dev.SetRules()
		g, failed := dev.Graphs().End(s)
		testkit.Must(t, errors.Join(failed, g.Close()))
		return b, err
	}
	if _, err := capture(fault.Rule{Kind: intercept.CloseStream}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the stream cannot be closed: %v", err)
	}
	trimmer, _ := mem.Find[mem.Trimmer](base)
	testkit.Must(t, trimmer.EmptyCache()) // sim reports memory that is unmapped too early
	b, err := capture()
	testkit.Must(t, err)
	if open := simulated.Leaks().Streams; len(open) != 1 {
		t.Errorf("streams %v are open, want one", open)
	}
	tenant.Free(b)
	testkit.Must(t, dev.Close())
}
