package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/magazine"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// contents returns a block's bytes, rounding tail and all, as its stream sees them.
func contents(t testing.TB, s driver.Stream, b mem.Block) []byte {
	t.Helper()
	got := make([]byte, b.Size)
	if err := s.CopyOut(got, b.Ptr); err != nil {
		t.Fatal(err)
	}
	return got
}

// A tenant that fills all that it is given leaves the next one nothing, of whatever sizes and on whatever streams, also
// in the bytes that the allocator rounded up, and though a free is told of a stream that has not even begun.
func TestZeroKeepsTenantsApart(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	other := drivertest.NewStream(t, dev)
	streams := []driver.Stream{dev.DefaultStream(), other}
	below, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	quotas := layer.NewQuotas(layer.NewZeroer(below), 32<<20)
	secret, err := quotas.Tenant("secret", 0, 16<<20)
	testkit.Must(t, err)
	curious, err := quotas.Tenant("curious", 0, 16<<20)
	testkit.Must(t, err)
	reused := 0
	seen := map[driver.Pointer]bool{}
	for round, size := range []int64{1, 100, 511, 513, 4096, 100_000, 1<<20 + 1, 3<<20 - 7} {
		s, u := streams[round%2], streams[1-round%2]
		for range 3 {
			b, err := secret.Alloc(s, size)
			testkit.Must(t, err)
			seen[b.Ptr] = true
			m, err := s.Mark()
			testkit.Must(t, err)
			testkit.Must(t, u.WaitFor(s, m))
			dev.Hold(u.ID())
			testkit.Must(t, u.Fill(b.Ptr, 0x5E, b.Size))
			secret.Free(b, u)
			c, err := curious.Alloc(s, size) // the other stream is still to write its secret
			testkit.Must(t, err)
			dev.Resume(u.ID())
			d, err := curious.Alloc(s, size)
			testkit.Must(t, err)
			for _, b := range []mem.Block{c, d} {
				if seen[b.Ptr] {
					reused++
				}
				if got := contents(t, s, b); !bytes.Equal(got, make([]byte, b.Size)) {
					t.Errorf("%+v for %d bytes holds what was another's", b, size)
				}
				curious.Free(b)
			}
		}
	}
	if reused == 0 {
		t.Error("no memory changed hands")
	}
}

func TestZeroThatCannotWipeGivesNothing(t *testing.T) {
	dev := fault.Wrap(drivertest.OpenSim(t, 0))
	defer dev.Close()
	base := fake.NewPile(512)
	p := drivertest.Alloc(t, dev, 1<<20)
	base.Next = p
	z := layer.NewZeroer(base)
	dev.SetRules(fault.Rule{Kind: intercept.Fill})
	b, err := z.Alloc(dev.DefaultStream(), 1000)
	if !errors.Is(err, driver.ErrLost) || b != (mem.Block{}) || len(base.Live) != 0 {
		t.Errorf("got %+v, %v, with %d blocks live below", b, err, len(base.Live))
	}
	dev.SetRules()
	if b, err := z.Alloc(dev.DefaultStream(), 1000); err != nil || b.Size != 1024 {
		t.Errorf("afterwards %+v, %v", b, err)
	}
}

// Allocators that reuse memory refuse a Zeroer below them, at any depth: their blocks would not be zeroed.
func TestNothingReusesMemoryAboveAZeroer(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	base, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	zeroed := layer.NewLimiter(layer.NewZeroer(base), 32<<20)
	refusal := func(f func() error) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		return f()
	}
	for name, open := range map[string]func(below mem.Allocator) error{
		"magazine": func(below mem.Allocator) error { magazine.New(below, magazine.Options{}); return nil },
		"slabs":    func(below mem.Allocator) error { layer.NewSlabs(below, 512, 8); return nil },
		"arena": func(below mem.Allocator) error {
			a, err := arena.NewFrom(below, dev, dev.DefaultStream(), arena.Config{Size: 1 << 20})
			if err == nil {
				err = a.Close()
			}
			return err
		},
		"planned": func(below mem.Allocator) error {
			_, err := planned.New(dev, &planned.Plan{}, planned.Settings{Fallback: below})
			return err
		},
	} {
		if err := refusal(func() error { return open(zeroed) }); err == nil || !strings.Contains(err.Error(), "put that on top") {
			t.Errorf("%s above a Zeroer: %v", name, err)
		}
		if err := refusal(func() error { return open(base) }); err != nil {
			t.Errorf("%s below a Zeroer: %v", name, err)
		}
	}
}
