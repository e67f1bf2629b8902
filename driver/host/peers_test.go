package host

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestPeersAreAsked: memory of another device is inaccessible unless peer access is enabled or the memory is shared.
func TestPeersAreAsked(t *testing.T) {
	a, b := open(t), open(t)
	s := b.DefaultStream()
	block, err := a.Alloc(4096)
	testkit.Must(t, err)
	reach := func(p driver.Pointer, when string, want bool) {
		t.Helper()
		err := s.Fill(p, 1, 100)
		if want && err != nil || !want && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("work on a peer's memory %s: %v, allowed %v", when, err, want)
		}
	}
	reach(block, "before Enable", false)
	testkit.Must(t, b.Peers().Enable(a))
	reach(block, "after Enable", true)
	if err := a.DefaultStream().Fill(block, 1, 1); err != nil {
		t.Errorf("the owner's own work: %v", err)
	}
	testkit.Must(t, b.Peers().Disable(a))
	reach(block, "after Disable", false)
	if err := s.Fill(block, 1, 0); err != nil {
		t.Errorf("no bytes of a peer: %v", err)
	}

	if vm := a.VirtualMemory(); vm != nil {
		g := a.Info().Granularity
		p, err := vm.Reserve(2 * g)
		testkit.Must(t, err)
		one, err := vm.Create(g)
		testkit.Must(t, err)
		testkit.Must(t, vm.Map(p, one))
		testkit.Must(t, vm.Map(p+driver.Pointer(g), one))
		testkit.Must(t, b.Peers().Enable(a))
		reach(p, "in pages that are not shared", false)
		testkit.Must(t, a.Peers().Share(p, g, b))
		reach(p, "in shared pages", true)
		reach(p+driver.Pointer(g), "in the same page, at an address that is not shared", false)
		if err := s.Fill(p+driver.Pointer(g)-50, 1, 100); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("work that leaves shared pages: %v, want ErrInvalid", err)
		}
		testkit.Must(t, b.Peers().Disable(a))
		reach(p, "in shared pages after Disable", true)
		testkit.Must(t, s.Sync(context.Background()))
		testkit.Must(t, vm.Unmap(p, g))
		testkit.Must(t, vm.Map(p, one))
		reach(p, "in pages that were unmapped and mapped again", false)
		testkit.Must(t, errors.Join(vm.Unmap(p, 2*g), vm.Drop(one), vm.Release(p, 2*g)))
	}
	testkit.Must(t, s.Sync(context.Background()))
	testkit.Must(t, b.Peers().Enable(a))
	testkit.Must(t, a.Close())
	reach(block, "of a device that was closed", false)
	if err := b.Peers().Enable(a); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Enable of a device that was closed: %v, want ErrClosed", err)
	}
}
