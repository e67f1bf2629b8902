package remat_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/remat"
	"github.com/ashlar-go/ashlar/tensor"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const kib = 1 << 10

// open returns a runtime on a simulated device. At the end of the test nothing may be left, and no work may have raced.
func open(t *testing.T, c remat.Config) (*remat.Runtime, *rig) {
	t.Helper()
	g := newRig(t, "sim", 1)
	r, err := remat.New(g.place, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		g.close(t)
	})
	return r, g
}

func ok[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// full returns a constant of so many KiB of float32 numbers v.
func full(t *testing.T, r *remat.Runtime, size int, v float32) *remat.Tensor {
	t.Helper()
	x := ok[*tensor.Tensor](t)(tensor.Full(r.Place(), dtype.Float32, v, size*kib/4))
	defer x.Release()
	return ok[*remat.Tensor](t)(r.Constant(x))
}

// first returns the first number of x.
func first(t *testing.T, x *remat.Tensor) float32 {
	t.Helper()
	return ok[[]float32](t)(remat.ToSlice[float32](x))[0]
}

// plus returns x+v.
func plus(t *testing.T, r *remat.Runtime, x *remat.Tensor, v float32) *remat.Tensor {
	t.Helper()
	return ok[*remat.Tensor](t)(remat.Apply2(r, compute.Add, x, v))
}

// add adds v to x in place.
func add(r *remat.Runtime, x *remat.Tensor, v float32) error {
	_, err := r.Do(remat.Op{
		Name: "add", Writes: []int{0},
		Func: func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			return nil, compute.BinaryInto(p, in[0], backend.Add, in[0], v)
		},
	}, x)
	return err
}

// fill makes and releases tensors until everything that can be evicted was.
func fill(t *testing.T, r *remat.Runtime, x *remat.Tensor) {
	t.Helper()
	s := r.Scope()
	defer s.Close()
	for range 20 {
		plus(t, s.Runtime, x, 1)
	}
}

// Views are evicted and made again with their storage, and see a change in place of any of them.
func TestViewsShareStorage(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 16 * kib})
	x := full(t, r, 2, 1)
	y := plus(t, r, x, 1)
	half := ok[*remat.Tensor](t)(r.View(y, func(t *tensor.Tensor) (*tensor.Tensor, error) { return t.Narrow(0, 8, 100) }))
	whole := ok[[]*remat.Tensor](t)(r.Call("same", func(_ *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return in, nil
	}, y))[0]
	y.Release()
	fill(t, r, x)
	if half.Resident() || whole.Resident() {
		t.Error("a view is in memory after everything was evicted")
	}
	if !slices.Equal(half.Shape(), []int{100}) || first(t, half) != 2 || !whole.Resident() {
		t.Errorf("half is %v from %v, whole resident: %v", half.Shape(), first(t, half), whole.Resident())
	}
	if err := add(r, half, 5); err != nil {
		t.Fatal(err)
	}
	fill(t, r, x)
	numbers := ok[[]float32](t)(remat.ToSlice[float32](whole))
	if numbers[7] != 2 || numbers[8] != 7 || numbers[107] != 7 || numbers[108] != 2 {
		t.Errorf("after the change in place: %v", numbers[:110])
	}
}

// A change in place changes neither what was computed from the old contents nor what is computed from them again.
func TestInPlaceIsANewVersion(t *testing.T) {
	for name, constant := range map[string]bool{"constant": true, "computed": false} {
		t.Run(name, func(t *testing.T) {
			r, _ := open(t, remat.Config{Budget: 24 * kib})
			base := full(t, r, 2, 1)
			x := base
			if !constant {
				x = plus(t, r, base, 0)
			}
			before := plus(t, r, x, 10)
			fill(t, r, base)
			for range 3 {
				if err := add(r, x, 1); err != nil {
					t.Fatal(err)
				}
			}
			after := plus(t, r, x, 10)
			fill(t, r, base)
			if a, b, c := first(t, before), first(t, after), first(t, x); a != 11 || b != 14 || c != 4 {
				t.Errorf("before %v, after %v, itself %v; want 11, 14, 4", a, b, c)
			}
		})
	}
}

// Numbers drawn again are those of the first time, and the generator is left as it was.
func TestRandomNumbersAreDrawnAgain(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 16 * kib})
	x := full(t, r, 2, 0)
	g := compute.NewGenerator(7)
	noise := func() *remat.Tensor {
		return ok[[]*remat.Tensor](t)(r.Do(remat.Op{
			Name: "noise", Random: []*compute.Generator{g},
			Func: func(p *tensor.Place, _ []*tensor.Tensor) ([]*tensor.Tensor, error) {
				n, err := g.Normal(p, dtype.Float32, 512)
				return []*tensor.Tensor{n}, err
			},
		}))[0]
	}
	a, b := noise(), noise()
	wantA, wantB := ok[[]float32](t)(remat.ToSlice[float32](a)), ok[[]float32](t)(remat.ToSlice[float32](b))
	for range 3 {
		fill(t, r, x)
		if got := ok[[]float32](t)(remat.ToSlice[float32](b)); !slices.Equal(got, wantB) {
			t.Error("the second numbers differ")
		}
		if got := ok[[]float32](t)(remat.ToSlice[float32](a)); !slices.Equal(got, wantA) {
			t.Error("the first numbers differ")
		}
	}
	if g.Offset() != 1024 {
		t.Errorf("the generator is at %d, want 1024", g.Offset())
	}
}

// A release frees memory at once, and a released tensor is made again only to make others.
func TestReleaseFreesAtOnce(t *testing.T) {
	r, g := open(t, remat.Config{})
	x := full(t, r, 4, 1)
	before := g.limit.Live()
	y := plus(t, r, x, 1)
	z := plus(t, r, y, 1)
	y.Release()
	if got := g.limit.Live() - before; got != 4*kib {
		t.Errorf("%d bytes are live beside the constant, want those of one tensor", got)
	}
	z.Release()
	if got := g.limit.Live(); got != before {
		t.Errorf("%d bytes are live, want %d", got, before)
	}
	x.Release()
	if got := g.limit.Live(); got != 0 {
		t.Errorf("%d bytes are live after the last release", got)
	}
}

// Locked tensors and results of operations that run once stay. What does not fit beside them is an error, after which
// work goes on.
func TestWhatStays(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 17 * kib})
	x := full(t, r, 4, 1)
	y := plus(t, r, x, 1)
	locked := ok[*tensor.Tensor](t)(y.Lock())
	once := ok[[]*remat.Tensor](t)(r.Do(remat.Op{
		Name: "read", Once: true,
		Func: func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			c, err := in[0].Clone(p)
			return []*tensor.Tensor{c}, err
		},
	}, x))[0]
	plus(t, r, x, 1).Release()
	two := func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		a, err := in[0].Clone(p)
		if err != nil {
			return nil, err
		}
		b, err := a.Clone(p)
		return []*tensor.Tensor{a, b}, err
	}
	if _, err := r.Call("two", two, x); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v, want one that matches mem.ErrNoMemory", err)
	}
	if !y.Resident() || !once.Resident() {
		t.Error("a tensor that stays was evicted")
	}
	if got := ok[[]float32](t)(tensor.ToSlice[float32](locked)); got[0] != 2 {
		t.Errorf("the locked tensor is %v", got[0])
	}
	if err := add(r, y, 1); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("a change in place of a locked tensor: %v", err)
	}
	y.Unlock()
	out := ok[[]*remat.Tensor](t)(r.Call("two", two, x))
	if y.Resident() || first(t, out[1]) != 1 {
		t.Error("the tensor that was unlocked was not evicted")
	}
	out[0].Release()
	if first(t, y) != 2 {
		t.Errorf("it is %v", first(t, y))
	}
}

// Without a budget, an allocator that has no room evicts, and also the memory of other code on the same place.
func TestAllocatorWithoutRoom(t *testing.T) {
	r, g := open(t, remat.Config{})
	g.limit.SetLimit(16 * kib)
	x := full(t, r, 4, 1)
	var all []*remat.Tensor
	for i := range 8 {
		all = append(all, plus(t, r, x, float32(i)))
	}
	other := ok[*tensor.Tensor](t)(tensor.Empty(r.Place(), dtype.Uint8, 8*kib)) // outside of an operation
	impatient := r.Place().WithAllocOptions(mem.AllocOptions{NoRetry: true})
	if _, err := tensor.Empty(impatient, dtype.Uint8, 8*kib); err == nil {
		t.Error("a request with NoRetry evicted")
	}
	other.Release()
	for i, y := range all {
		if first(t, y) != 1+float32(i) {
			t.Errorf("tensor %d is %v", i, first(t, y))
		}
	}
	if s := r.Stats(); s.Evictions == 0 || s.Peak > 16*kib {
		t.Errorf("stats: %+v", s)
	}
}

// With copies to the host, tensors are copied back instead of made again where that is faster by the device's clock.
func TestCopiesBack(t *testing.T) {
	const size = 256 // KiB
	for name, link := range map[string]float64{"timed": 0, "given": 1e12} {
		t.Run(name, func(t *testing.T) {
			c := remat.Config{Budget: 8 * size * kib, Spill: remat.Spill{Limit: 64 * size * kib, Bandwidth: link}}
			r, _ := open(t, c)
			x := full(t, r, size, 1)
			var all []*remat.Tensor
			for range 20 {
				all = append(all, ok[[]*remat.Tensor](t)(r.Call("slow", slowly, x))[0])
			}
			for i := len(all) - 1; i >= 0; i-- {
				if got := first(t, all[i]); got != 41 {
					t.Fatalf("tensor %d is %v, want 41", i, got)
				}
				all[i].Release()
			}
			s := r.Stats()
			if s.CopiedOut == 0 || s.CopiedIn == 0 || s.HostPeak > c.Spill.Limit || s.Host != 0 || s.Peak > c.Budget {
				t.Errorf("%+v", s)
			}
			t.Logf("%d operations run again, %d bytes copied back", s.Remade, s.CopiedIn)
		})
	}
}

// slowly adds 1 forty times.
func slowly(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	y, err := in[0].Clone(p)
	for range 40 {
		if err == nil {
			err = compute.BinaryInto(p, y, backend.Add, y, 1)
		}
	}
	return []*tensor.Tensor{y}, err
}

// A device without page-locked memory cannot spill.
func TestSpillWithoutPinnedMemory(t *testing.T) {
	g := newRig(t, "sim", 1)
	p := tensor.NewPlace(tensor.Config{Device: unpinned{g.dev}, Allocator: g.limit, Backend: g.back})
	_, err := remat.New(p, remat.Config{Spill: remat.Spill{Limit: 1}})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("the error is %v, want one that matches driver.ErrUnsupported", err)
	}
	g.close(t)
}

// unpinned is a device without page-locked memory.
type unpinned struct{ driver.Device }

func (unpinned) Pinned() driver.Pinned { return nil }

// Other code on the device can have tensors evicted when it runs out of memory.
func TestEvictForOthers(t *testing.T) {
	g := newRig(t, "sim", 1)
	g.limit.SetLimit(16 * kib)
	var r *remat.Runtime
	a := layer.NewRetry(g.limit, layer.RetryOptions{Steps: []layer.Step{func(_ driver.Stream, size int64) error {
		if r.Evict(size) == 0 {
			return errors.New("nothing to evict")
		}
		return nil
	}}})
	r = ok[*remat.Runtime](t)(remat.New(g.place.WithAllocator(a), remat.Config{}))
	x := full(t, r, 4, 1)
	y, z := plus(t, r, x, 1), plus(t, r, x, 2)
	b := ok[mem.Block](t)(a.Alloc(g.place.Stream(), 6*kib))
	if y.Resident() && z.Resident() {
		t.Error("nothing was evicted")
	}
	if _, err := a.Alloc(g.place.Stream(), 12*kib); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("the error is %v, want one that matches mem.ErrNoMemory", err)
	}
	a.Free(b)
	if first(t, y) != 2 || first(t, z) != 3 {
		t.Errorf("they are %v and %v", first(t, y), first(t, z))
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	g.close(t)
}

// A function that fails leaves everything as it was, and so does one that panics.
func TestFunctionsThatFail(t *testing.T) {
	r, g := open(t, remat.Config{Budget: 16 * kib})
	x := full(t, r, 2, 1)
	y := plus(t, r, x, 1)
	live := g.limit.Live()
	broken := errors.New("broken")
	fail := func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		if _, err := in[0].Clone(p); err != nil {
			return nil, err
		}
		return nil, errors.Join(broken, compute.BinaryInto(p, in[0], backend.Add, in[0], 100))
	}
	if _, err := r.Do(remat.Op{Name: "fail", Func: fail, Writes: []int{0}}, y); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if got := first(t, y); got != 2 {
		t.Errorf("after a change in place that failed: %v, want 2", got)
	}
	func() {
		defer func() {
			if v := recover(); v != "oh" {
				t.Errorf("recovered %v", v)
			}
		}()
		r.Call("panic", func(p *tensor.Place, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			tensor.Must(in[0].Clone(p))
			panic("oh")
		}, y)
	}()
	if g.limit.Live() != live || first(t, y) != 2 {
		t.Errorf("%d bytes are live, want %d", g.limit.Live(), live)
	}
}

// Misuse is an error or a panic that says what is wrong.
func TestMisuse(t *testing.T) {
	r, g := open(t, remat.Config{Budget: 16 * kib})
	other, _ := open(t, remat.Config{})
	x := full(t, r, 1, 1)
	captured := ok[*tensor.Tensor](t)(tensor.Zeros(g.place, dtype.Float32, 1))
	defer captured.Release()
	errorsOf := map[string]func() error{
		"another runtime": func() error { _, err := remat.Apply(other, compute.Relu, x); return err },
		"undefined": func() error {
			_, err := r.Call("none", func(*tensor.Place, []*tensor.Tensor) ([]*tensor.Tensor, error) {
				return []*tensor.Tensor{nil}, nil
			})
			return err
		},
		"not made at the place": func() error {
			_, err := r.Call("captured", func(*tensor.Place, []*tensor.Tensor) ([]*tensor.Tensor, error) {
				return []*tensor.Tensor{captured}, nil
			})
			return err
		},
		"writes input 1 of 1": func() error { _, err := r.Do(remat.Op{Name: "w", Writes: []int{1}}, x); return err },
		"want a *remat.Tensor or a number": func() error {
			_, err := remat.Apply2(r, compute.MatMul, x, 3)
			return err
		},
		"budget of -1": func() error { _, err := remat.New(g.place, remat.Config{Budget: -1}); return err },
		"no policy":    func() error { _, err := remat.New(g.place, remat.Config{Policy: "best"}); return err },
		"not a view": func() error {
			_, err := r.View(x, func(*tensor.Tensor) (*tensor.Tensor, error) { return captured, nil })
			return err
		},
	}
	for want, f := range errorsOf {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	gone := plus(t, r, x, 1)
	gone.Release()
	panics := map[string]func(){
		"released":   func() { gone.Release() },
		"not locked": func() { x.Unlock() },
		"inside an": func() {
			closing := func(*tensor.Place, []*tensor.Tensor) ([]*tensor.Tensor, error) { return nil, r.Close() }
			r.Call("close", closing)
		},
		"axis 2":         func() { x.Dim(2) },
		"closed runtime": func() { other.Close(); other.Stats() },
		"that is locked": func() { x.Lock(); defer x.Unlock(); x.Release() },
	}
	for want, f := range panics {
		func() {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
					t.Errorf("the panic is %v, want one with %q", v, want)
				}
			}()
			f()
		}()
	}
}

// Scopes release what was made with them, but not what is kept.
func TestScopes(t *testing.T) {
	r, g := open(t, remat.Config{})
	x := full(t, r, 1, 1)
	before := g.limit.Live()
	outer := r.Scope()
	inner := outer.Scope()
	plus(t, inner.Runtime, x, 1)
	kept := inner.Keep(plus(t, inner.Runtime, x, 2))
	inner.Close()
	if got := g.limit.Live() - before; got != kib || first(t, kept) != 3 {
		t.Errorf("%d bytes are live after the scope, want those of the tensor that was kept", got)
	}
	outer.Close()
	if got := g.limit.Live(); got != before {
		t.Errorf("%d bytes are live, want %d: the outer scope has what the inner one kept", got, before)
	}
}

// Several goroutines use a runtime at once.
func TestGoroutines(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 24 * kib})
	x := full(t, r, 1, 1)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			s := r.Scope()
			defer s.Close()
			y := x
			for range 20 {
				var err error
				if y, err = remat.Apply2(s.Runtime, compute.Add, y, float32(n)); err != nil {
					t.Error(err)
					return
				}
				if z, err := tensor.Empty(r.Place(), dtype.Uint8, kib); err != nil {
					t.Error(err)
				} else {
					z.Release()
				}
			}
			if v, err := remat.ToSlice[float32](y); err != nil || v[0] != 1+20*float32(n) {
				t.Errorf("goroutine %d: %v, %v", n, v, err)
			}
		})
	}
	all.Wait()
}
