package region

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestFaults fails each driver call in turn: of Open, of growing and shrinking, of moving in every way, and of Close. A
// failed operation has no effect, and succeeds when repeated.
func TestFaults(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			seed := testkit.Seed(t)
			dev := fault.Wrap(p.open(t))
			s := drivertest.NewStream(t, dev)
			nth := int64(1)
			for ; workFailing(t, p, dev, s, rand.New(rand.NewPCG(seed, 0)), nth); nth++ {
			}
			if nth < 15 {
				t.Errorf("only %d calls", nth-1)
			}
		})
	}
}

// workFailing does everything with a region while the nth call fails, and reports whether there was such a call.
func workFailing(t *testing.T, p place, dev *fault.Device, s driver.Stream, rng *rand.Rand, nth int64) bool {
	const size, bounce = 10 * testPage, 16 << 10
	inner := dev.Unwrap()
	free := available(t, inner)
	dev.SetRules(fault.Rule{Nth: nth})
	// again calls f, and again if it fails and a call of the device did.
	again := func(f func() error) {
		t.Helper()
		if err := f(); err != nil {
			if dev.Failed() == 0 || !errors.Is(err, driver.ErrNoMemory) && !errors.Is(err, driver.ErrLost) {
				t.Fatalf("call %d, %d failed: %v", nth, dev.Failed(), err)
			}
			if err := f(); err != nil {
				t.Fatalf("call %d failed, and again: %v", nth, err)
			}
		}
	}
	var r *Region
	again(func() (err error) {
		r, err = Open(dev, Options{Size: size, Page: p.page, Bounce: bounce})
		if err != nil && available(t, inner) != free {
			t.Fatalf("Open failed and kept %d bytes: %v", free-available(t, inner), err)
		}
		return err
	})
	r.remapFrom = p.remapFrom
	if r.kernel != nil {
		r.kernel.soon = 2 // so that lists have several parts
	}
	whole := r.Base() + driver.Pointer(r.Size())
	again(func() error { return r.Extend(r.Base() + testPage) })
	again(func() error { return r.Extend(whole) })
	again(func() error { return r.Trim(r.Base() + 1) })
	again(func() error { return r.Extend(whole) })

	before, got := make([]byte, size), make([]byte, size)
	fill(rng, before)
	for _, moves := range [][]Move{
		{{r.Base(), r.Base() + 512, size - 512}},
		{{r.Base(), r.Base() + 2*testPage, size - 2*testPage}},
		randomMoves(rng, r.Base(), size, 10),
		{{r.Base() + 512, r.Base() + 512 + 2*testPage, size - 2*testPage - 1024}},
		{{r.Base() + 1024, r.Base() + 1024 + 6*testPage, 3*testPage + 512}},
		pagedMoves(rng, r.Base(), size, testPage),
	} {
		again(func() error { return s.CopyIn(r.Base(), before) })
		done := 0
		again(func() error {
			n, err := r.Move(s, moves[done:])
			if done += n; err != nil {
				testkit.Must(t, s.CopyOut(got, r.Base()))
				checkMoved(t, r.Base(), before, got, moves, done)
			}
			return err
		})
		if done != len(moves) {
			t.Fatalf("call %d: %d of %d moves done, and no error", nth, done, len(moves))
		}
		again(func() error { return s.CopyOut(got, r.Base()) })
		checkMoved(t, r.Base(), before, got, moves, done)
		copy(before, got)
	}
	again(func() error { return r.Trim(r.Base() + 3*testPage) })
	again(r.Close)
	if now := available(t, inner); now != free {
		t.Fatalf("call %d failed: %d bytes available after Close, %d before", nth, now, free)
	}
	return dev.Failed() > 0
}

// TestLost also fails the calls that undo a failure: moves report it from then on, and Close still finds all memory.
// After copies, whose pages are all mapped, the region still grows and shrinks.
func TestLost(t *testing.T) {
	for _, p := range places() {
		var rule fault.Rule
		switch p.name {
		case "host/copies", "sim/copies", "sim/copies, pages":
			rule = fault.Rule{Kind: intercept.Copy, Nth: 3, Onwards: true}
		case "host/remapped", "sim/remapped":
			rule = fault.Rule{Kind: intercept.Map, Onwards: true, Nth: 1}
		case "host/remapped, copies", "sim/remapped, copies":
			rule = fault.Rule{Kind: intercept.Unmap, Onwards: true, Nth: 2}
		default:
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			dev := fault.Wrap(p.open(t))
			s := drivertest.NewStream(t, dev)
			free := available(t, dev)
			const size = 16 * testPage
			r := p.region(t, dev, size, 16<<10)
			testkit.Must(t, s.Fill(r.Base(), 1, size))
			testkit.Must(t, s.Sync(context.Background()))
			shift := driver.Pointer(max(512, 2*p.page))
			moves := []Move{{r.Base(), r.Base() + shift, size - int64(shift)}}
			if rule.Kind == intercept.Unmap { // two rows, of which the second cannot be taken, and the first not be put back
				moves = []Move{{r.Base(), r.Base() + 6*testPage, 4 * testPage}}
				dev.SetRules(rule, fault.Rule{Kind: intercept.Map, Onwards: true, Nth: 1})
			} else {
				dev.SetRules(rule)
			}
			n, err := r.Move(s, moves)
			if n != 0 || err == nil {
				t.Fatalf("%d moves done, %v", n, err)
			}
			dev.SetRules()
			testkit.Must(t, s.Sync(context.Background()))
			mapped := rule.Kind == intercept.Copy
			for _, f := range []struct {
				call  func() error
				works bool
			}{
				{func() error { _, err := r.Move(s, moves); return err }, false},
				{func() error { return r.Trim(r.Base()) }, mapped},
				{func() error { return r.Extend(r.Base() + size) }, mapped},
			} {
				again := f.call()
				if f.works && again != nil || !f.works && !errors.Is(again, driver.ErrLost) && !errors.Is(again, driver.ErrNoMemory) {
					t.Errorf("afterwards: %v; works: %v, else want what went wrong", again, f.works)
				}
			}
			if r.Reserved() != size {
				t.Errorf("%d bytes reserved, want %d", r.Reserved(), size)
			}
			testkit.Must(t, r.Close())
			if now := available(t, dev); now != free {
				t.Errorf("%d bytes available after Close, %d before", now, free)
			}
		})
	}
}
