package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/paged"
)

func tenantOf(t *testing.T, e *Engine, c TenantConfig) *Tenant {
	t.Helper()
	tenant, err := e.NewTenant(c)
	testkit.Must(t, err)
	return tenant
}

func sessionOf(t *testing.T, tenant *Tenant) *Session {
	t.Helper()
	s, err := tenant.NewSession()
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// A use of memory allocates a block on a stream, wants nothing but zeros and the user's own byte in it, and fills it
// with that byte.
func use(t *testing.T, e *Engine, s driver.Stream, own byte, size int64) mem.Block {
	t.Helper()
	b, err := e.Allocator(0).Alloc(s, size)
	testkit.Must(t, err)
	got := make([]byte, b.Size)
	testkit.Must(t, s.CopyOut(got, b.Ptr))
	for i, x := range got {
		if x != 0 && x != own {
			t.Fatalf("byte %d of %d that %#x gets is %#x", i, b.Size, own, x)
		}
	}
	testkit.Must(t, s.Fill(b.Ptr, own, b.Size))
	return b
}

// Sessions of tenants, and the engine's default stream, get no byte of each other, from any allocator, nor from or
// after caches that sessions reserve, nor of blocks that were moved.
func TestTenantsOfAnEngineReadNoBytesOfOthers(t *testing.T) {
	for _, allocator := range []string{"arena:size=32MiB", "bfc:limit=32MiB", "caching", "paged", "direct"} {
		t.Run(allocator, func(t *testing.T) {
			e, _ := simulated(t, 1, Config{
				Tenants: true, Devices: []DeviceConfig{{Allocator: allocator, MemoryLimit: 48 << 20}},
			})
			a, b := tenantOf(t, e, TenantConfig{Name: "a"}), tenantOf(t, e, TenantConfig{Name: "b"})
			for round := range 3 {
				sa, sb := sessionOf(t, a), sessionOf(t, b)
				for _, c := range []struct {
					s   *Session
					own byte
				}{{sa, 0xA1}, {sb, 0xB1}, {sa, 0xA1}} {
					s := c.s.currentDevice().stream
					for size := int64(100); size < 4<<20; size = size*3 + 1 {
						first := use(t, e, s, c.own, size)
						second := use(t, e, s, c.own, size*2)
						e.Allocator(0).Free(first)
						testkit.Must(t, c.s.Collect(t.Context()))
						e.Allocator(0).Free(second)
					}
					testkit.Must(t, c.s.ReserveCache(4<<20))
					testkit.Must(t, c.s.UseCache(func() error {
						e.Allocator(0).Free(use(t, e, s, c.own, 3<<20))
						return nil
					}))
					if round == 1 {
						testkit.Must(t, c.s.FreeCache())
					}
					e.Allocator(0).Free(use(t, e, e.Place(0).Stream(), 0xE1, 1<<20))
				}
				testkit.Must(t, sa.Close())
				testkit.Must(t, sb.Close())
			}
			if got := a.On(0).Stats(); got.Wiped == 0 || got.Live != 0 {
				t.Errorf("%+v", got)
			}
			testkit.Must(t, a.Close())
		})
	}
}

// A pause cannot discard contents of tenants: afterwards their blocks could hold what others had.
func TestPauseKeepsContentsOfTenants(t *testing.T) {
	e, _ := simulated(t, 1, Config{Tenants: true, Devices: []DeviceConfig{{Allocator: "paged"}}})
	a, b := sessionOf(t, tenantOf(t, e, TenantConfig{Name: "a"})), sessionOf(t, tenantOf(t, e, TenantConfig{Name: "b"}))
	sa, sb := a.currentDevice().stream, b.currentDevice().stream
	first, second := use(t, e, sa, 0xA1, 4<<20), use(t, e, sb, 0xB1, 4<<20)
	if err := e.Pause(0, paged.PauseOptions{Discard: true}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a pause that discards: %v", err)
	}
	testkit.Must(t, e.Pause(0, paged.PauseOptions{}))
	testkit.Must(t, e.Resume(0))
	for own, k := range map[byte]mem.Block{0xA1: first, 0xB1: second} {
		got := make([]byte, k.Size)
		testkit.Must(t, sa.CopyOut(got, k.Ptr))
		if !bytes.Equal(got, bytes.Repeat([]byte{own}, len(got))) {
			t.Errorf("the block of %#x has changed", own)
		}
	}
	e.Allocator(0).Free(first)
	// A capture cannot wipe in the order of its work, so it gets no memory that a tenant used before the pause.
	graphs := e.Place(0).Device().Graphs()
	testkit.Must(t, graphs.Begin(sb))
	if k, err := b.Place().Alloc(4 << 20); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("in a capture after the pause: %+v, %v", k, err)
	}
	g, err := graphs.End(sb)
	testkit.Must(t, err)
	testkit.Must(t, g.Close())
	e.Allocator(0).Free(second)
}

// A tenant has its reservation whatever others do, and no more than its limit, also in the caches of its sessions.
func TestTenantQuotasOfAnEngine(t *testing.T) {
	e, _ := simulated(t, 2, Config{Tenants: true, Devices: []DeviceConfig{{MemoryLimit: 32 << 20}, {}}})
	anna := tenantOf(t, e, TenantConfig{Name: "anna", Reserved: 8 << 20, Limit: 12 << 20})
	bob := sessionOf(t, tenantOf(t, e, TenantConfig{Name: "bob"}))
	var refused *layer.QuotaError
	if _, err := bob.Place().Alloc(25 << 20); !errors.As(err, &refused) || refused.Tenant != "bob" {
		t.Errorf("into a reservation: %v", err)
	}
	s := sessionOf(t, anna)
	testkit.Must(t, s.ReserveCache(8<<20))
	if _, err := s.Place().Alloc(5 << 20); !errors.As(err, &refused) || refused.Limit != 12<<20 {
		t.Errorf("beyond a limit: %v", err)
	}
	if got := anna.On(0).Live(); got < 8<<20 || anna.On(1).Live() != 0 || anna.Name() != "anna" {
		t.Errorf("%d bytes live on device 0, and %d on device 1", got, anna.On(1).Live())
	}
	if _, err := e.NewTenant(TenantConfig{Name: "carl", Reserved: 30 << 20}); !errors.As(err, &refused) {
		t.Errorf("more reserved than there is: %v", err)
	}
}

func TestTenantCloses(t *testing.T) {
	e, _ := simulated(t, 1, Config{Tenants: true})
	tenant := tenantOf(t, e, TenantConfig{Name: "anna", Reserved: 60 << 20})
	s := sessionOf(t, tenant)
	kept := s.Keep(floats(t, s.Place(), 100))
	err := tenant.Close()
	testkit.Contains(t, fmt.Sprint(err), "tenant anna", "tenants_test.go")
	testkit.Must(t, s.Close())
	testkit.Contains(t, fmt.Sprint(tenant.Close()), "release its tensors")
	kept.Release()
	testkit.Must(t, tenant.Close())
	testkit.Must(t, tenant.Close())
	if _, err := tenant.NewSession(); !errors.Is(err, ErrClosed) {
		t.Errorf("a session of a closed tenant: %v", err)
	}
	testkit.Must(t, tenantOf(t, e, TenantConfig{Name: "bob", Reserved: 60 << 20}).Close())
}

func TestInvalidTenants(t *testing.T) {
	plain, _ := simulated(t, 1, Config{})
	if _, err := plain.NewTenant(TenantConfig{}); err == nil {
		t.Error("a tenant of an engine without Tenants")
	}
	e, _ := simulated(t, 1, Config{Tenants: true})
	for _, c := range []TenantConfig{{Reserved: -1}, {Limit: -1}, {Reserved: 2, Limit: 1}} {
		if _, err := e.NewTenant(c); err == nil {
			t.Errorf("a tenant with %+v", c)
		}
	}
	c, _ := onSim(t, 1, Config{Tenants: true})
	c.Devices[0].Wrap = func(a mem.Allocator) mem.Allocator { return magazine.New(a, magazine.Options{}) }
	text := testkit.Panic(t, func() { Open(t.Context(), c) })
	testkit.Contains(t, text, "magazine", "TenantRouter")
}
