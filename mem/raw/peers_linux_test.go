package raw_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// mapping lists the allocators that map memory page by page.
var mapping = map[string]func(driver.Device) (mem.Allocator, error){
	"caching": func(d driver.Device) (mem.Allocator, error) {
		cfg, _, err := caching.ParseConfig("expandable_segments:True")
		if err != nil {
			return nil, err
		}
		return caching.New(d, cfg)
	},
	"paged": func(d driver.Device) (mem.Allocator, error) { return paged.New(d, paged.Config{}) },
	"bfc": func(d driver.Device) (mem.Allocator, error) {
		return bfc.New(d, bfc.Config{Limit: 128 * mib, Virtual: true})
	},
	"arena": func(d driver.Device) (mem.Allocator, error) {
		return arena.New(d, arena.Config{Size: 128 * mib, Page: 2 * mib})
	},
}

// limits are no limit, and a limit on the memory that the allocator may reserve.
var limits = map[string]func(driver.Device) driver.Device{
	"":           func(d driver.Device) driver.Device { return d },
	" of a part": func(d driver.Device) driver.Device { return layer.NewLimitedDevice(d, 200*mib, "a test's limit") },
}

// worksIn lets the other device's default stream write to memory and reads it through the owner's.
func worksIn(t testing.TB, owner, other driver.Device, p driver.Pointer, size int64) error {
	t.Helper()
	if err := errors.Join(other.DefaultStream().Fill(p, 42, size), other.DefaultStream().Sync(context.Background())); err != nil {
		return err
	}
	got := make([]byte, size)
	testkit.Must(t, owner.DefaultStream().CopyOut(got, p))
	if !bytes.Equal(got, bytes.Repeat([]byte{42}, int(size))) {
		t.Errorf("what the other device wrote to %#x is not there", p)
	}
	return nil
}

// A peer can use memory that is mapped page by page, whether it was allocated before EnablePeer or later.
func TestDefect12_EnablePeerReachesMappedMemory(t *testing.T) {
	for name, open := range mapping {
		for which, limit := range limits {
			t.Run(name+which, func(t *testing.T) {
				owner, other := newHost(t), newHost(t)
				a, err := open(limit(owner))
				testkit.Must(t, err)
				raw.SetCurrent(owner, a)
				before := alloc(t, owner, 4*mib)
				if err := worksIn(t, owner, other, before, 4*mib); err == nil {
					t.Fatal("work used another device's memory without permission")
				}
				testkit.Must(t, raw.EnablePeer(other, owner))
				testkit.Must(t, raw.EnablePeer(other, owner)) // twice is as good
				testkit.Must(t, worksIn(t, owner, other, before, 4*mib))
				after := alloc(t, owner, 40*mib)
				testkit.Must(t, worksIn(t, owner, other, after, 40*mib))
				raw.Delete(before)
				raw.Delete(after)
				testkit.Must(t, raw.EmptyCache())
				again := alloc(t, owner, 24*mib) // unmapped and mapped anew
				testkit.Must(t, worksIn(t, owner, other, again, 24*mib))
				raw.Delete(again)
				testkit.Must(t, a.(interface{ Close() error }).Close())
			})
		}
	}
}

// NVIDIA's driver lets a peer use a page at one address only.
func TestPagesOfPeersHaveOneAddress(t *testing.T) {
	owner, other := newHost(t), newHost(t)
	a, err := paged.New(owner, paged.Config{Limit: 12 * mib})
	testkit.Must(t, err)
	churn := func() { // y separates the memory of x and z, so that w takes it to another address
		var blocks [3]mem.Block
		for i := range blocks {
			blocks[i], err = a.Alloc(owner.DefaultStream(), 4*mib)
			testkit.Must(t, err)
		}
		a.Free(blocks[0])
		a.Free(blocks[2])
		w, err := a.Alloc(owner.DefaultStream(), 8*mib)
		testkit.Must(t, err)
		a.Free(w)
		a.Free(blocks[1])
	}
	churn()
	live, err := a.Alloc(owner.DefaultStream(), 3*mib)
	testkit.Must(t, err)
	if s := a.PageStats(); s.Mappings == s.Pages {
		t.Fatal("no page has two addresses: the test shows nothing")
	}
	testkit.Must(t, mem.EnablePeer(other, owner, a))
	for _, when := range []string{"after EnablePeer", "after more work"} {
		if s := a.PageStats(); s.Mappings > s.Pages {
			t.Errorf("%s: %d pages are mapped at %d addresses", when, s.Pages, s.Mappings)
		}
		testkit.Must(t, worksIn(t, owner, other, live.Ptr, live.Size))
		a.Free(live)
		churn()
		live, err = a.Alloc(owner.DefaultStream(), 3*mib)
		testkit.Must(t, err)
	}
	a.Free(live)
	testkit.Must(t, a.Close())
}

// A closed peer does not keep an allocator from growing.
func TestDefect12_AClosedPeerIsForgotten(t *testing.T) {
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) {
			owner := newHost(t)
			other, err := host.Open(host.Options{Total: mib})
			testkit.Must(t, err)
			a, err := open(owner)
			testkit.Must(t, err)
			testkit.Must(t, mem.EnablePeer(other, owner, a))
			testkit.Must(t, other.Close())
			for _, size := range []int64{4 * mib, 40 * mib} {
				b, err := a.Alloc(owner.DefaultStream(), size)
				testkit.Must(t, err)
				a.Free(b)
			}
			testkit.Must(t, a.(interface{ Close() error }).Close())
		})
	}
}

// Pages that a peer cannot use are not mapped: the request fails, leaves nothing behind, and the next one succeeds.
func TestDefect12_AFailedShareChangesNothing(t *testing.T) {
	for name, open := range mapping {
		t.Run(name, func(t *testing.T) {
			owner, other := fault.Wrap(newHost(t)), fault.Wrap(newHost(t))
			a, err := open(owner)
			testkit.Must(t, err)
			b, err := a.Alloc(owner.DefaultStream(), 4*mib)
			testkit.Must(t, err)
			refuse := fault.Rule{Kind: intercept.Share, Nth: 1}
			owner.SetRules(refuse)
			if err := mem.EnablePeer(other, owner, a); !errors.Is(err, driver.ErrLost) {
				t.Fatalf("EnablePeer = %v, want the device's error", err)
			}
			testkit.Must(t, mem.EnablePeer(other, owner, a))
			owner.SetRules(refuse)
			before := a.(mem.StatsReporter).Stats().ReservedBytes.All.Current
			if c, err := a.Alloc(owner.DefaultStream(), 40*mib); !errors.Is(err, driver.ErrLost) {
				t.Fatalf("Alloc = %+v, %v, want the device's error", c, err)
			}
			if now := a.(mem.StatsReporter).Stats().ReservedBytes.All.Current; now != before {
				t.Errorf("%d bytes are reserved after a failed request, before %d", now, before)
			}
			c, err := a.Alloc(owner.DefaultStream(), 40*mib)
			testkit.Must(t, err)
			testkit.Must(t, worksIn(t, owner, other, c.Ptr, 40*mib))
			a.Free(b)
			a.Free(c)
			testkit.Must(t, a.(interface{ Close() error }).Close())
		})
	}
}
