package fault_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/intercept"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func open(t testing.TB, spec string) driver.Device {
	t.Helper()
	d, err := driver.Open(spec)
	testkit.Must(t, err)
	return d
}

// TestDriver: with rules that never strike, a wrapped device is as good as the inner one.
func TestDriver(t *testing.T) {
	drivertest.Run(t, func(t testing.TB) driver.Device {
		return open(t, "fault:nth=1000000000;rate=1e-300,code=lost/fault:/host:total=64MiB")
	})
}

// TestPeers: wrapped devices are each other's peers, also when one is wrapped by other rules.
func TestPeers(t *testing.T) {
	drivertest.RunPeers(t, func(t testing.TB) (a, b driver.Device) {
		return open(t, "fault:/host:total=64MiB"), open(t, "fault:nth=1000000000/host:total=64MiB,ordinal=1")
	})
}

// A bench is a device on which a call of each kind succeeds: it has a stream s, a block p, a reservation v with a page
// mapped at its first granule, an empty reservation v2, a page spare to map, and another, gone, to drop.
type bench struct {
	d           *fault.Device
	s           driver.Stream
	p, v, v2    driver.Pointer
	spare, gone driver.Page
	g           int64
}

func newBench(t *testing.T, spec string) *bench {
	t.Helper()
	d := fault.Wrap(open(t, spec))
	t.Cleanup(func() { testkit.Must(t, d.Close()) })
	b := &bench{d: d, g: d.Info().Granularity}
	var err error
	b.s = drivertest.NewStream(t, d)
	b.p = drivertest.Alloc(t, d, 4096)
	testkit.Must(t, b.s.Fill(b.p, 1, 4096))
	testkit.Must(t, b.s.Sync(context.Background()))
	vm := d.VirtualMemory()
	b.v, err = vm.Reserve(2 * b.g)
	testkit.Must(t, err)
	b.v2, err = vm.Reserve(b.g)
	testkit.Must(t, err)
	b.spare, err = vm.Create(b.g)
	testkit.Must(t, err)
	b.gone, err = vm.Create(b.g)
	testkit.Must(t, err)
	first, err := vm.Create(b.g)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(b.v, first))
	return b
}

// calls returns a call of each kind, such that each would succeed if it reached the device.
func (b *bench) calls() map[intercept.Kind]func() error {
	d, s, vm, p := b.d, b.s, b.d.VirtualMemory(), b.p
	return map[intercept.Kind]func() error{
		intercept.Available:   func() error { _, _, err := d.Available(); return err },
		intercept.Alloc:       func() error { _, err := d.Alloc(1); return err },
		intercept.Free:        func() error { return d.Free(p) },
		intercept.NewStream:   func() error { _, err := d.NewStream(driver.StreamOptions{}); return err },
		intercept.Copy:        func() error { return s.Copy(p, p+2048, 8) },
		intercept.CopyIn:      func() error { return s.CopyIn(p, []byte{9}) },
		intercept.CopyOut:     func() error { return s.CopyOut(make([]byte, 1), p) },
		intercept.Fill:        func() error { return s.Fill(p, 9, 8) },
		intercept.Mark:        func() error { _, err := s.Mark(); return err },
		intercept.Reached:     func() error { _, err := s.Reached(driver.Mark{Stream: s.ID()}); return err },
		intercept.WaitFor:     func() error { return d.DefaultStream().WaitFor(s, driver.Mark{Stream: s.ID()}) },
		intercept.Sync:        func() error { return s.Sync(context.Background()) },
		intercept.CloseStream: func() error { return s.Close() },
		intercept.Reserve:     func() error { _, err := vm.Reserve(b.g); return err },
		intercept.Release:     func() error { return vm.Release(b.v2, b.g) },
		intercept.Create:      func() error { _, err := vm.Create(b.g); return err },
		intercept.Drop:        func() error { return vm.Drop(b.gone) },
		intercept.Map:         func() error { return vm.Map(b.v+driver.Pointer(b.g), b.spare) },
		intercept.Unmap:       func() error { return vm.Unmap(b.v, b.g) },
		intercept.Launch:      func() error { return d.Kernels().Launch(s, driver.Kernel{Name: "k"}) },
	}
}

// TestEveryKind: each kind of call of a device's core fails by its rule with a *driver.Error and the code that was
// chosen, does not reach the device, leaves the other kinds alone, and works when it is called again.
func TestEveryKind(t *testing.T) {
	own := errors.New("a code of the test's own")
	needsMemory := []intercept.Kind{intercept.Alloc, intercept.NewStream, intercept.Reserve, intercept.Create, intercept.Map}
	abilities := abilityCalls(fault.Wrap(&stub{}), nil)
	for _, spec := range []string{"host:total=64MiB", "sim:total=64MiB"} {
		for _, kind := range intercept.Kinds() {
			if abilities[kind] != nil {
				continue // see TestEveryAbility
			}
			t.Run(spec+"/"+string(kind), func(t *testing.T) {
				b := newBench(t, spec)
				call := b.calls()[kind]
				if call == nil {
					t.Fatal("no call of this kind in the test")
				}
				free, _, err := b.d.Available()
				testkit.Must(t, err)
				want := driver.ErrLost
				if slices.Contains(needsMemory, kind) {
					want = driver.ErrNoMemory
				}
				for _, code := range []error{nil, own} {
					if code != nil {
						want = code
					}
					b.d.SetRules(fault.Rule{Kind: kind, Code: code})
					err := call()
					if e := (*driver.Error)(nil); !errors.Is(err, want) || !errors.As(err, &e) || e.Call != string(kind) {
						t.Errorf("got %v, want a *driver.Error of %s with %v", err, kind, want)
					}
					if b.d.Calls() != 1 || b.d.CallsOf(kind) != 1 || b.d.Failed() != 1 {
						t.Errorf("%d calls, %d of the kind, %d failed: want 1 of each",
							b.d.Calls(), b.d.CallsOf(kind), b.d.Failed())
					}
					if code == nil {
						for other, f := range harmless(b, kind) {
							testkit.Must(t, f())
							if other == kind {
								t.Fatal("the call that fails was called")
							}
						}
					}
				}
				b.d.SetRules()
				if now, _, err := b.d.Available(); err != nil || now != free {
					t.Errorf("%d bytes free, %v; before the calls that failed %d", now, err, free)
				}
				if b.d.Kernels() == nil || b.d.Unwrap() == nil {
					t.Error("no kernels or no inner device")
				}
				// a Free, Release, Drop, Map or Unmap that had reached the device would not work twice
				testkit.Must(t, call())
			})
		}
	}
}

// harmless returns calls of other kinds that change nothing.
func harmless(b *bench, but intercept.Kind) map[intercept.Kind]func() error {
	calls := b.calls()
	for kind := range calls {
		switch kind {
		case intercept.Available, intercept.CopyOut, intercept.Mark, intercept.Reached, intercept.Sync, intercept.Launch:
			if kind != but {
				continue
			}
		}
		delete(calls, kind)
	}
	return calls
}

// TestEachCallInTurn is the loop of the package's documentation: it ends, and each round fails another call.
func TestEachCallInTurn(t *testing.T) {
	d := fault.Wrap(open(t, "host:total=64MiB"))
	defer d.Close()
	work := func() (err error) {
		p, err := d.Alloc(4096)
		if err != nil {
			return err
		}
		defer func() {
			if e := d.Free(p); e != nil {
				err = errors.Join(err, e, d.Unwrap().Free(p))
			}
		}()
		s := d.DefaultStream()
		return errors.Join(s.Fill(p, 1, 10), s.Sync(context.Background()))
	}
	testkit.Must(t, work())
	calls := d.Calls()
	var kinds []string
	for n := int64(1); ; n++ {
		d.SetRules(fault.Rule{Nth: n})
		err := work()
		if d.Failed() == 0 {
			testkit.Must(t, err)
			if n != calls+1 {
				t.Errorf("round %d failed nothing; work makes %d calls", n, calls)
			}
			break
		}
		e := (*driver.Error)(nil)
		if !errors.As(err, &e) {
			t.Fatalf("round %d: %v", n, err)
		}
		kinds = append(kinds, e.Call)
	}
	if want := []string{"Alloc", "Stream.Fill", "Stream.Sync", "Free"}; !slices.Equal(kinds, want) {
		t.Errorf("failed in turn: %v, want %v", kinds, want)
	}
	if free, total, err := d.Unwrap().Available(); err != nil || free != total {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
}

// TestCountsAreExact, also when many goroutines call at once.
func TestCountsAreExact(t *testing.T) {
	d := fault.Wrap(open(t, "host:total=64MiB"), fault.Rule{Kind: intercept.Mark, Nth: 100, Onwards: true})
	defer d.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				_, _ = d.DefaultStream().Mark()
				_, _, _ = d.Available()
			}
		})
	}
	wg.Wait()
	if d.Calls() != 800 || d.CallsOf(intercept.Mark) != 400 || d.Failed() != 301 {
		t.Errorf("%d calls, %d marks, %d failed: want 800, 400, 301", d.Calls(), d.CallsOf(intercept.Mark), d.Failed())
	}
}
