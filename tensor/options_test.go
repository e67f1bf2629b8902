package tensor_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

// A wishList notes the options of each request.
type wishList struct {
	*caching.Allocator
	got []mem.AllocOptions
}

func (w *wishList) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	w.got = append(w.got, o)
	return w.Allocator.AllocWith(s, size, o)
}

// wishes returns a place whose allocator notes options, on a device of so many bytes.
func wishes(t *testing.T, total int64) (*tensor.Place, *wishList) {
	t.Helper()
	dev := drivertest.OpenSim(t, total)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	list := &wishList{Allocator: a}
	b := host.New(dev, host.Options{})
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: list, Backend: b})
	t.Cleanup(func() {
		for _, err := range []error{p.Close(), b.Close(), a.Close(), dev.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return p, list
}

// TestDefect19_PlacesPassAllocOptions: every allocation at a place reaches the allocator with the place's options, also
// on other streams and in scopes; an allocation without a place has none.
func TestDefect19_PlacesPassAllocOptions(t *testing.T) {
	p, list := wishes(t, 1<<30)
	side := drivertest.NewStream(t, p.Device())
	all := p.Scope()
	defer all.Close()
	o := mem.AllocOptions{
		NoRetry: true, Logged: true, Key: "anna", RoundUp: 4096, FreedBefore: func() uint64 { return 7 },
	}
	with := all.WithAllocOptions(o)
	x := tensor.Must(tensor.FromSlice(all.Place, []float32{1, 2, 3, 4}, 2, 2))
	transposed := x.T()
	for name, make := range map[string]func() (*tensor.Tensor, error){
		"Empty":          func() (*tensor.Tensor, error) { return tensor.Empty(with, dtype.Float32, 5) },
		"Zeros":          func() (*tensor.Tensor, error) { return tensor.Zeros(with, dtype.Float32, 5) },
		"FromSlice":      func() (*tensor.Tensor, error) { return tensor.FromSlice(with, []int8{1, 2}) },
		"Clone":          func() (*tensor.Tensor, error) { return x.Clone(with) },
		"Contiguous":     func() (*tensor.Tensor, error) { return transposed.Contiguous(with) },
		"Cast":           func() (*tensor.Tensor, error) { return x.Cast(with, dtype.Int64) },
		"another stream": func() (*tensor.Tensor, error) { return tensor.Empty(with.On(side), dtype.Int8, 5) },
		"without scope":  func() (*tensor.Tensor, error) { return tensor.Empty(with.Unscoped(), dtype.Int8, 5) },
		"a scope within": func() (*tensor.Tensor, error) { return tensor.Empty(with.Scope().Place, dtype.Int8, 5) },
		"scope and stream": func() (*tensor.Tensor, error) {
			return tensor.Empty(with.Scope().On(side).Unscoped(), dtype.Int8, 5)
		},
	} {
		list.got = nil
		y, err := make()
		if err != nil || len(list.got) == 0 {
			t.Fatalf("%s: %v after %d requests with options", name, err, len(list.got))
		}
		for _, got := range list.got {
			if !got.NoRetry || !got.Logged || got.Key != "anna" || got.FreedBefore == nil || got.FreedBefore() != 7 {
				t.Errorf("%s: a request has %+v", name, got)
			}
		}
		if b := y.Storage(); b.Size() >= 4096 {
			t.Errorf("%s: a storage of %d bytes", name, b.Size())
		}
		list.got = nil
		z, err := y.Clone(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range list.got {
			if got.NoRetry || got.Logged || got.Key != nil {
				t.Errorf("%s: a copy at no place is asked for with %+v", name, got)
			}
		}
		z.Release()
		if name == "a scope within" || name == "without scope" || name == "scope and stream" {
			y.Release()
		}
	}
	if q := with.WithAllocOptions(mem.AllocOptions{}); q.Device() != p.Device() || q.Stream() != p.Stream() {
		t.Error("a place with other options is another")
	}
	list.got = nil
	scratch := with.Queue().Scratch
	b, err := mem.AllocWith(scratch, with.Stream(), 100, mem.AllocOptions{Key: "berta"})
	if err != nil || len(list.got) != 1 || list.got[0].Key != "berta" || !list.got[0].Logged {
		t.Errorf("scratch memory: %v with %+v", err, list.got)
	}
	scratch.Free(b)
	if err := side.Close(); err != nil {
		t.Error(err)
	}
}

// With NoRetry dropped tensors are not reclaimed; without, a request that they make room for does not count as out of
// memory, and one that fails counts once.
func TestNoRetryOfAPlace(t *testing.T) {
	p, list := wishes(t, 64<<20)
	drop := func() { tensor.Must(tensor.Empty(p, dtype.Uint8, 40<<20)) }
	drop()
	hasty := p.WithAllocOptions(mem.AllocOptions{NoRetry: true})
	if _, err := tensor.Empty(hasty, dtype.Uint8, 40<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("beside a dropped tensor: %v", err)
	}
	before := list.Stats().NumOOMs
	x, err := tensor.Empty(p, dtype.Uint8, 40<<20)
	if err != nil || list.Stats().NumOOMs != before {
		t.Errorf("%v, and %d requests out of memory", err, list.Stats().NumOOMs-before)
	}
	_, err = tensor.Empty(p, dtype.Uint8, 40<<20)
	if !errors.Is(err, mem.ErrNoMemory) || list.Stats().NumOOMs != before+1 {
		t.Errorf("%v, and %d requests out of memory, want one", err, list.Stats().NumOOMs-before)
	}
	runtime.KeepAlive(x)
	x.Release()
}
