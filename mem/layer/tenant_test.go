package layer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/memtest"
)

// tenantsOf returns n tenants named t0, t1, ..., without reservations and limits.
func tenantsOf(t testing.TB, q *layer.Quotas, n int) (tenants []*layer.Tenant) {
	t.Helper()
	for i := range n {
		tenant, err := q.Tenant(fmt.Sprint("t", i), 0, 1<<40)
		testkit.Must(t, err)
		tenants = append(tenants, tenant)
	}
	return tenants
}

// An isolated tenant is an allocator like any other, and so are the caches of a magazine above it.
func TestIsolatedTenantConformance(t *testing.T) {
	for _, spec := range []string{"caching", "paged", "arena"} {
		for _, cached := range []bool{false, true} {
			if cached && spec != "caching" {
				continue
			}
			t.Run(fmt.Sprint(spec, cached), func(t *testing.T) {
				cfg := memtest.Config{
					Waits: spec != "caching", Ops: 300, Seeds: 2, FaultOps: 20, LowRequestedPeak: cached,
					New: func(t testing.TB, dev driver.Device) mem.Allocator {
						td := layer.NewTenantDevice(dev)
						base := map[string]func(testing.TB, driver.Device) mem.Allocator{
							"caching": newCaching, "arena": newArena,
							"paged": func(t testing.TB, dev driver.Device) mem.Allocator { return openShared(t, dev, spec) },
						}[spec](t, td)
						tenant := tenantsOf(t, layer.NewIsolatedQuotas(base, td, 1<<40), 1)[0]
						if cached {
							return magazine.New(tenant, magazine.Options{})
						}
						return closingTenant{tenant}
					},
				}
				if spec == "paged" {
					cfg.Sim.Granularity = 2 << 20
				} else if spec != "caching" {
					cfg.Sim.Total, cfg.MaxBlock = arenaSize+arenaBounce+144<<10, arenaBlock
					cfg.Reserved, cfg.Ops, cfg.Seeds, cfg.FaultOps = arenaSize+arenaBounce, 80, 1, 4
				}
				memtest.Run(t, cfg)
			})
		}
	}
}

// closingTenant closes the allocator below.
type closingTenant struct{ *layer.Tenant }

func (c closingTenant) Close() error { return c.Unwrap().(interface{ Close() error }).Close() }

// Memory that returns to its tenant keeps its contents, byte for byte; each byte that another tenant used is zero.
func TestTenantGetsItsOwnBytesBack(t *testing.T) {
	c := newCanaries(t, drivertest.OpenSim(t, 256<<20), "caching", 5)
	users := map[driver.Pointer]int{} // the tenant that used each 512 bytes last
	for range 600 {
		if len(c.live) > 0 && c.rng.IntN(2) == 0 {
			c.free(c.rng.IntN(len(c.live)))
			continue
		}
		tenant := c.rng.IntN(2)
		b, err := c.tenants[tenant].Alloc(c.streams[0], c.size())
		testkit.Must(t, err)
		got := contents(t, c.streams[0], b)
		for i := 0; i < len(got); i += 512 {
			want := byte(0)
			if user, used := users[b.Ptr+driver.Pointer(i)]; used && user == tenant {
				want = canaryOf(tenant)
			}
			for j, x := range got[i : i+512] {
				if x != want {
					t.Fatalf("byte %d of a block of tenant %d is %#x, want %#x", i+j, tenant, x, want)
				}
			}
			users[b.Ptr+driver.Pointer(i)] = tenant
		}
		testkit.Must(t, c.streams[0].Fill(b.Ptr, canaryOf(tenant), b.Size))
		c.live = append(c.live, &canaryBlock{Block: b, tenant: tenant, s: c.streams[0], fixed: true})
	}
	c.close()
}

// While one tenant is alone, each byte that an allocator takes from the device is wiped at most once, also where pages
// are mapped elsewhere or blocks are split and merged.
func TestTenantAloneIsWipedOnce(t *testing.T) {
	for _, spec := range sharedBases {
		if spec == "direct" || spec == "paged:keep=0" { // which return memory to the device
			continue
		}
		run := func(t *testing.T, dev driver.Device) {
			counted := layer.NewLimitedDevice(dev, 64<<20, "the limit of the test")
			td := layer.NewTenantDevice(counted)
			base := openShared(t, td, spec)
			tenant := tenantsOf(t, layer.NewIsolatedQuotas(base, td, 1<<40), 1)[0]
			rng := newCanaries(t, openCanarySim(t), "direct", 3)
			s, taken := td.DefaultStream(), int64(0)
			var live []mem.Block
			for range 400 {
				if n := len(live); n > 8 || n > 0 && rng.rng.IntN(2) == 0 {
					i := rng.rng.IntN(n)
					tenant.Free(live[i])
					live = append(live[:i], live[i+1:]...)
				} else if b, err := tenant.Alloc(s, rng.size()); err == nil {
					live = append(live, b)
				} else if !errors.Is(err, mem.ErrNoMemory) {
					t.Fatal(err)
				}
				taken = max(taken, counted.Taken())
			}
			if got := tenant.Stats(); got.Wiped > taken || got.Wiped == 0 {
				t.Errorf("%+v, of %d bytes that were taken from the device", got, taken)
			}
			for _, b := range live {
				tenant.Free(b)
			}
			testkit.Must(t, td.Close())
			testkit.Must(t, rng.dev.Close())
		}
		t.Run(spec+" on sim", func(t *testing.T) { run(t, drivertest.OpenSim(t, 64<<20)) })
		t.Run(spec+" on host", func(t *testing.T) { // whose pages can be shared with other processes
			run(t, drivertest.OpenDevice(t, "host:total=64MiB,granularity=64KiB"))
		})
	}
}

// A block that cannot be wiped is not given out, and is wiped once the device works again.
func TestTenantThatCannotWipeGetsNothing(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, 0))
	td := layer.NewTenantDevice(dev)
	tenant := tenantsOf(t, layer.NewIsolatedQuotas(newCaching(t, td), td, 1<<40), 1)[0]
	s := dev.DefaultStream()
	for _, kind := range []intercept.Kind{intercept.Fill, intercept.Capturing} {
		dev.SetRules(fault.Rule{Kind: kind, Onwards: true})
		b, err := tenant.Alloc(s, 1000)
		if !errors.Is(err, driver.ErrLost) || b != (mem.Block{}) || tenant.Live() != 0 {
			t.Errorf("%s fails: %+v, %v, with %d bytes live", kind, b, err, tenant.Live())
		}
		testkit.Contains(t, err.Error(), "layer: Tenant t0", "wipe")
		dev.SetRules()
	}
	b, err := tenant.Alloc(s, 1000)
	testkit.Must(t, err)
	if got := tenant.Stats(); got.Wipes != 1 || got.Wiped != 1024 || got.Peak < got.Live {
		t.Errorf("afterwards %+v", got)
	}
	tenant.Free(b)
}

// A capture cannot wipe what another tenant used; memory that is fresh from the device it can.
func TestTenantInACapture(t *testing.T) { runTenantInACapture(t, drivertest.OpenSim(t, 64<<20)) }

func runTenantInACapture(t *testing.T, dev driver.Device) {
	td := layer.NewTenantDevice(dev)
	tenants := tenantsOf(t, layer.NewIsolatedQuotas(newCaching(t, td), td, 1<<40), 2)
	s := drivertest.NewStream(t, dev)
	used, err := tenants[0].Alloc(s, 1<<20)
	testkit.Must(t, err)
	testkit.Must(t, s.Fill(used.Ptr, 0x5E, used.Size))
	tenants[0].Free(used)
	testkit.Must(t, dev.Graphs().Begin(s))
	if b, err := tenants[1].Alloc(s, 1<<20); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("memory of another tenant: %+v, %v", b, err)
	}
	own, err := tenants[0].Alloc(s, 1<<20)
	testkit.Must(t, err)
	fresh, err := tenants[1].Alloc(s, 12<<20)
	testkit.Must(t, err)
	g, err := dev.Graphs().End(s)
	testkit.Must(t, err)
	if g.Nodes() != 0 {
		t.Errorf("the graph has %d pieces of work", g.Nodes())
	}
	for i, x := range contents(t, s, fresh) {
		if x != 0 {
			t.Fatalf("byte %d of fresh memory is %#x", i, x)
		}
	}
	if got := contents(t, s, own); got[0] != 0x5E {
		t.Errorf("a tenant's own byte is %#x", got[0])
	}
	tenants[0].Free(own)
	tenants[1].Free(fresh)
	testkit.Must(t, g.Close())
}

// After a move that failed, all memory has an unknown user: copies may have left bytes anywhere. A move that was given
// up before changes nothing.
func TestTenantAfterAMoveThatFailed(t *testing.T) {
	base := &moving{Pile: fake.NewPile(512)}
	dev := drivertest.OpenSim(t, 1<<20)
	p := drivertest.Alloc(t, dev, 512<<10)
	td := layer.NewTenantDevice(onlyAlloc{dev, p})
	_, err := td.Alloc(512 << 10)
	testkit.Must(t, err)
	base.Next = p
	tenant := tenantsOf(t, layer.NewIsolatedQuotas(base, td, 1<<40), 1)[0]
	s := dev.DefaultStream()
	wiped := func() int64 {
		before := tenant.Stats().Wiped
		b, err := tenant.Alloc(s, 512)
		testkit.Must(t, err)
		tenant.Free(b)
		return tenant.Stats().Wiped - before
	}
	a, err := tenant.Alloc(s, 512)
	testkit.Must(t, err)
	k := &canaryBlock{Block: a}
	if !tenant.Movable(a, k) {
		t.Fatal("the block is not movable")
	}
	if first, again := wiped(), wiped(); first != 512 || again != 0 {
		t.Errorf("wiped %d bytes, then %d; want 512 and none", first, again)
	}
	base.holder.BeginMove()
	base.holder.EndMove(base.block, nil)
	if n := wiped(); n != 0 {
		t.Errorf("after a move that was given up: wiped %d bytes", n)
	}
	base.holder.BeginMove()
	base.holder.EndMove(base.block, s)
	if first, again := wiped(), wiped(); first != 512 || again != 0 {
		t.Errorf("after a move that failed: wiped %d bytes, then %d; want 512 and none", first, again)
	}
	tenant.Free(k.Block)
}

// moving is a Pile that keeps the holder of a block.
type moving struct {
	*fake.Pile
	block  mem.Block
	holder mem.Holder
}

func (m *moving) Movable(b mem.Block, h mem.Holder) bool {
	m.block, m.holder = b, h
	return true
}

// onlyAlloc is a device whose Alloc returns one address.
type onlyAlloc struct {
	driver.Device
	p driver.Pointer
}

func (d onlyAlloc) Alloc(int64) (driver.Pointer, error) { return d.p, nil }

// Any tenant may use all that is not reserved. Once another finds no room within its fair share, tenants above theirs
// cannot grow until it has found room.
func TestTenantsUnderPressureAreFair(t *testing.T) {
	q := layer.NewQuotas(fake.NewPile(1), 120)
	tenants := tenantsOf(t, q, 3)
	greedy, poor, other := tenants[0], tenants[1], tenants[2]
	var blocks []mem.Block
	for range 11 {
		blocks = append(blocks, fake.MustAlloc(t, greedy, 10))
	}
	if s := greedy.Stats(); s.Live != 110 || s.Share != 40 {
		t.Fatalf("alone %+v", s)
	}
	if _, err := poor.Alloc(fake.S0, 30); !errors.Is(err, mem.ErrNoMemory) || poor.Stats().Claimed != 30 || poor.Stats().Refused != 1 {
		t.Fatalf("without room: %v, %+v", err, poor.Stats())
	}
	greedy.Free(blocks[10])
	_, err := greedy.Alloc(fake.S0, 10)
	var refused *layer.QuotaError
	if !errors.As(err, &refused) || refused.Claimed != 30 || refused.Left != 20 {
		t.Errorf("above its share: %v", err)
	}
	testkit.Contains(t, err.Error(), "claim 30B")
	mine := fake.MustAlloc(t, other, 10) // below its share
	greedy.Free(blocks[9])
	greedy.Free(blocks[8])
	fake.MustAlloc(t, poor, 30)
	greedy.Free(blocks[7])
	fake.MustAlloc(t, greedy, 10) // nothing is claimed any more
	other.Free(mine)
}

// A claim ends when so much memory was freed as there is, and with its tenant.
func TestClaimsEnd(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		q := layer.NewQuotas(fake.NewPile(1), 100)
		tenants := tenantsOf(t, q, 2)
		greedy, poor := tenants[0], tenants[1]
		b := fake.MustAlloc(t, greedy, 60)
		c := fake.MustAlloc(t, greedy, 40)
		if _, err := poor.Alloc(fake.S0, 50); err == nil {
			t.Fatal("there is room")
		}
		greedy.Free(c)
		if _, err := greedy.Alloc(fake.S0, 40); err == nil {
			t.Fatal("it takes what is claimed")
		}
		if leaves {
			testkit.Must(t, poor.Leave())
		} else {
			greedy.Free(b) // with c as much as there is
			fake.MustAlloc(t, greedy, 60)
		}
		fake.MustAlloc(t, greedy, 40)
	}
}

// Shares are reservations and equal parts of the rest, within limits.
func TestFairShares(t *testing.T) {
	q := layer.NewQuotas(fake.NewPile(1), 100)
	for i, c := range []struct{ reserved, limit, share int64 }{{20, 25, 25}, {10, 1000, 42}, {0, 1000, 32}} {
		tenant, err := q.Tenant(fmt.Sprint(i), c.reserved, c.limit)
		testkit.Must(t, err)
		defer func() {
			if got := tenant.Stats().Share; got != c.share && got != c.share+1 {
				t.Errorf("tenant %d has a share of %d, want about %d", i, got, c.share)
			}
		}()
	}
}

// The tenant that is furthest above its share gives memory back first, and only as long as there is no room.
func TestTenantsGiveMemoryBack(t *testing.T) {
	q := layer.NewQuotas(fake.NewPile(1), 90)
	tenants := tenantsOf(t, q, 3)
	first, second := fake.MustAlloc(t, tenants[0], 40), fake.MustAlloc(t, tenants[1], 50)
	var asked []int
	tenants[0].OnPressure(func(int64) { asked = append(asked, 0); tenants[0].Free(first) })
	tenants[1].OnPressure(func(n int64) { asked = append(asked, int(n)); tenants[1].Free(second) })
	if _, err := tenants[2].AllocWith(fake.S0, 30, mem.AllocOptions{NoRetry: true}); err == nil || len(asked) > 0 {
		t.Errorf("with NoRetry: %v, asked %v", err, asked)
	}
	fake.MustAlloc(t, tenants[2], 30)
	if len(asked) != 1 || asked[0] != 30 || tenants[2].Stats().Refused != 1 {
		t.Errorf("asked %v, %+v; want the second tenant alone, for 30 bytes", asked, tenants[2].Stats())
	}
	if _, err := tenants[2].Alloc(fake.S0, 60); err == nil || len(asked) != 1 { // beyond its own share
		t.Errorf("beyond its share: %v, asked %v", err, asked)
	}
}

// The cache of a magazine above a tenant goes back when another needs the memory.
func TestTenantGivesItsMagazineBack(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	td := layer.NewTenantDevice(dev)
	base, err := caching.New(td, caching.Default())
	testkit.Must(t, err)
	tenants := tenantsOf(t, layer.NewIsolatedQuotas(base, td, 8<<20), 2)
	m := magazine.New(tenants[0], magazine.Options{})
	tenants[0].OnPressure(func(int64) { testkit.Must(t, m.EmptyCache()) })
	var blocks []mem.Block
	for range 100 {
		b, err := m.Alloc(dev.DefaultStream(), 64<<10)
		testkit.Must(t, err)
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		m.Free(b)
	}
	if n := tenants[0].Live(); n <= 4<<20 {
		t.Fatalf("the magazine keeps %d bytes", n)
	}
	b, err := tenants[1].Alloc(dev.DefaultStream(), 4<<20)
	if err != nil || tenants[0].Live() > 4<<20 {
		t.Errorf("%v, with %d bytes of the other tenant", err, tenants[0].Live())
	}
	tenants[1].Free(b)
	testkit.Must(t, m.Close())
}

// A request that waits gets the memory that another tenant frees.
func TestTenantAllocWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := layer.NewQuotas(fake.NewPile(1), 100)
		tenants := tenantsOf(t, q, 2)
		b := fake.MustAlloc(t, tenants[0], 100)
		done := make(chan error)
		go func() {
			_, err := tenants[1].AllocWait(t.Context(), fake.S0, 50, mem.AllocOptions{})
			done <- err
		}()
		synctest.Wait()
		tenants[0].Free(b)
		testkit.Must(t, <-done)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		go func() {
			_, err := tenants[0].AllocWait(ctx, fake.S0, 60, mem.AllocOptions{})
			done <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-done; !errors.Is(err, why) || !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("after the context ended: %v", err)
		}
	})
}

func TestTenantPeakIsOfWhatWasLive(t *testing.T) {
	tenant := tenantsOf(t, layer.NewQuotas(fake.NewPile(1), 100), 1)[0]
	a, b := fake.MustAlloc(t, tenant, 30), fake.MustAlloc(t, tenant, 20)
	tenant.Free(a)
	if s := tenant.Stats(); s.Live != 20 || s.Peak != 50 {
		t.Errorf("%d bytes live, %d at the peak; want 20 and 50", s.Live, s.Peak)
	}
	tenant.ResetPeak()
	c := fake.MustAlloc(t, tenant, 5)
	tenant.Free(b)
	tenant.Free(c)
	if s := tenant.Stats(); s.Live != 0 || s.Peak != 25 {
		t.Errorf("after ResetPeak, %d bytes live, %d at the peak; want 0 and 25", s.Live, s.Peak)
	}
}

// A request that fails for another reason than memory, or that the tenant's limit can never admit, does not wait.
func TestTenantAllocWaitReturnsOtherErrors(t *testing.T) {
	broken := fault.Wrap(drivertest.OpenSim(t, 64<<20), fault.Rule{Kind: intercept.Alloc, Code: driver.ErrLost})
	tenant, err := layer.NewQuotas(newCaching(t, broken), 32<<20).Tenant("small", 0, 2<<20)
	testkit.Must(t, err)
	for size, want := range map[int64]error{2 << 20: driver.ErrLost, 2<<20 + 1: mem.ErrNoMemory} {
		if _, err := tenant.AllocWait(t.Context(), broken.DefaultStream(), size, mem.AllocOptions{}); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// A request that waits also tries again when room comes from a tenant that leaves, from a claim that ends, and from a
// request of another tenant that failed while it was counted.
func TestTenantAllocWaitSeesAllRoom(t *testing.T) {
	for name, c := range map[string]struct {
		reserved int64                               // by the other tenant
		waiting  int64                               // live bytes of the tenant that waits
		begin    func(t *testing.T, o *layer.Tenant) // takes the room
		end      func(t *testing.T, o *layer.Tenant) // makes room
	}{
		"Leave": {
			reserved: 60,
			begin:    func(*testing.T, *layer.Tenant) {},
			end:      func(t *testing.T, o *layer.Tenant) { testkit.Must(t, o.Leave()) },
		},
		"the end of a claim": {
			waiting: 70,
			begin: func(t *testing.T, o *layer.Tenant) {
				if _, err := o.Alloc(fake.S0, 40); !errors.Is(err, mem.ErrNoMemory) {
					t.Fatal(err)
				}
			},
			end: func(t *testing.T, o *layer.Tenant) { fake.MustAlloc(t, o, 10) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := layer.NewQuotas(fake.NewPile(1), 100)
				waits := tenantsOf(t, q, 1)[0]
				other, err := q.Tenant("other", c.reserved, 100)
				testkit.Must(t, err)
				if c.waiting > 0 {
					fake.MustAlloc(t, waits, c.waiting)
				}
				c.begin(t, other)
				want := min(50, 90-c.waiting)
				if _, err := waits.Alloc(fake.S0, want); !errors.Is(err, mem.ErrNoMemory) {
					t.Fatalf("there is room for %d bytes: %v", want, err)
				}
				wantsWake(t, waits, want, func() { c.end(t, other) })
			})
		})
	}
	t.Run("a request that failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := &failing{Pile: fake.NewPile(1), size: 60, begun: make(chan bool), fail: make(chan bool)}
			tenants := tenantsOf(t, layer.NewQuotas(base, 100), 2)
			failed := make(chan error)
			go func() {
				_, err := tenants[0].Alloc(fake.S0, 60)
				failed <- err
			}()
			<-base.begun
			wantsWake(t, tenants[1], 50, func() {
				close(base.fail)
				if err := <-failed; !errors.Is(err, mem.ErrNoMemory) {
					t.Error(err)
				}
			})
		})
	})
}

// wantsWake checks that a request waits, and gets its memory after makeRoom.
func wantsWake(t *testing.T, tenant *layer.Tenant, size int64, makeRoom func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := tenant.AllocWait(ctx, fake.S0, size, mem.AllocOptions{})
		done <- err
	}()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	makeRoom()
	synctest.Wait()
	cancel(errors.New("it still waits, though there is room"))
	testkit.Must(t, <-done)
}

// failing is a Pile in which requests of one size take a while, and then fail.
type failing struct {
	*fake.Pile
	size        int64
	begun, fail chan bool
}

func (f *failing) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size != f.size {
		return f.Pile.Alloc(s, size)
	}
	f.begun <- true
	<-f.fail
	return mem.Block{}, mem.ErrNoMemory
}

// Tenants, the frees between them and their figures, from many goroutines.
func TestTenantsConcurrently(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	td := layer.NewTenantDevice(dev)
	q := layer.NewIsolatedQuotas(newCaching(t, td), td, 32<<20)
	done := make(chan error)
	tenants := tenantsOf(t, q, 4)
	for i, tenant := range tenants {
		s := drivertest.NewStream(t, dev)
		tenant.OnPressure(func(int64) { tenant.Stats() })
		go func() {
			done <- func() error {
				for n := range 200 {
					b, err := tenant.Alloc(s, int64(1+n%7)<<18)
					if errors.Is(err, mem.ErrNoMemory) {
						continue
					}
					if err != nil {
						return err
					}
					got := make([]byte, b.Size)
					if err := s.CopyOut(got, b.Ptr); err != nil {
						return err
					}
					for _, x := range got {
						if x != 0 && x != canaryOf(i) {
							return fmt.Errorf("tenant %d read %#x", i, x)
						}
					}
					if err := s.Fill(b.Ptr, canaryOf(i), b.Size); err != nil {
						return err
					}
					tenant.Free(b)
				}
				return nil
			}()
		}()
	}
	for range tenants {
		testkit.Must(t, <-done)
	}
}
