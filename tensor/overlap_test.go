package tensor_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// TestDefect05_CopyFromOverlapsByAddress: two storages over one slice of 64 MiB overlap as two views of one storage do.
func TestDefect05_CopyFromOverlapsByAddress(t *testing.T) {
	p := tensortest.Scope(t, "host")
	data := make([]uint64, 8<<20)
	for i := range data {
		data[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	const by = 100_003
	n := len(data) - by
	want := slices.Clone(data)
	copy(want[by:], data[:n])
	src := tensor.Must(tensor.View(p.Place, data[:n]))
	dst := tensor.Must(tensor.View(p.Place, data[by:]))
	if src.SameStorage(dst) || !dst.Overlaps(src) || !src.Overlaps(dst) || dst.SameElements(src) {
		t.Errorf("overlap %v, %v; same elements %v", dst.Overlaps(src), src.Overlaps(dst), dst.SameElements(src))
	}
	if err := dst.CopyFrom(nil, src); err != nil {
		t.Fatal(err)
	}
	if err := p.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for i := range data {
		if data[i] != want[i] {
			wrong += 8
		}
	}
	if wrong > 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	if err := src.CopyFrom(nil, tensor.Must(tensor.View(p.Place, data[:n]))); err != nil { // onto itself
		t.Error(err)
	}
}

// window returns the elements of x, contiguous, from one on, as foreign memory at p.
func window(t *testing.T, p *tensor.Place, x *tensor.Tensor, from, length int) *tensor.Tensor {
	t.Helper()
	size := int64(x.DType().Size())
	s, err := tensor.FromPointer(p, x.Pointer()+driver.Pointer(int64(from)*size), int64(length)*size, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	return tensor.Must(tensor.FromStorage(p, s, x.DType(), 0, []int{length}, nil))
}

// TestCopyFromOverlapsInForeignMemory: addresses inside an allocated block, in storages of their own, on every device.
func TestCopyFromOverlapsInForeignMemory(t *testing.T) {
	for _, spec := range []string{"host", "sim:total=1GiB"} {
		p := tensortest.Scope(t, spec)
		seed := testkit.Seed(t)
		r := rand.New(rand.NewPCG(seed, seed))
		for range 200 {
			data, length, to, from := overlapping(r)
			x := tensor.Must(tensor.FromSlice(p.Place, data))
			dst, src := window(t, p.Place, x, to, length), window(t, p.Place, x, from, length)
			overlap, same := dst.Overlaps(src), dst.SameElements(src)
			if meet := max(to, from)-min(to, from) < length; overlap != meet || same != (to == from) {
				t.Errorf("%d elements at %d and %d: overlap %v, same %v", length, to, from, overlap, same)
			}
			want := slices.Clone(data)
			copy(want[to:to+length], data[from:from+length])
			if r.IntN(2) == 0 {
				src = tensor.Must(src.Flip(0))
				slices.Reverse(want[to : to+length])
			}
			if err := dst.CopyFrom(nil, src); err != nil {
				t.Fatal(err)
			}
			if err := p.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			holds(t, spec, x, want...)
		}
	}
}

// TestCopyFromOverlapsBetweenPlaces: a copy in pieces between two places of one device.
func TestCopyFromOverlapsBetweenPlaces(t *testing.T) {
	dev := drivertest.OpenSim(t, 1<<30)
	p := tensortest.On(t, dev).Scope()
	t.Cleanup(p.Close)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b := host.New(dev, host.Options{})
	q := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: b})
	const n, by = 40 << 20, 1 << 20
	x := tensor.Must(tensor.Empty(p.Place, dtype.Uint8, n))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	for _, to := range []int{0, by} {
		if err := x.CopyFrom(nil, tensor.Must(tensor.FromSlice(p.Place, data))); err != nil {
			t.Fatal(err)
		}
		dst, src := window(t, p.Place, x, to, n-by), window(t, q, x, by-to, n-by)
		if err := x.Use(src.Place().Stream(), false); err != nil {
			t.Fatal(err)
		}
		if err := dst.CopyFrom(nil, src); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(data)
		copy(want[to:], data[by-to:by-to+n-by])
		if !slices.Equal(tensortest.Content(t, x), want) {
			t.Errorf("copied to %d: the bytes differ", to)
		}
		src.Release()
	}
	for _, err := range []error{q.Close(), b.Close(), a.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

// If a device has its own address space, equal addresses on two devices do not overlap.
func TestEqualAddressesOfTwoDevicesDoNotOverlap(t *testing.T) {
	p, q := tensortest.Scope(t, "sim:total=1GiB"), tensortest.Scope(t, "sim:total=1GiB")
	x, y := tensor.Must(tensor.Zeros(p.Place, dtype.Int8, 4)), tensor.Must(tensor.Zeros(q.Place, dtype.Int8, 4))
	if x.Pointer() != y.Pointer() {
		t.Fatalf("the first blocks of two simulated devices lie at %#x and %#x", x.Pointer(), y.Pointer())
	}
	if x.Overlaps(y) || x.SameElements(y) {
		t.Error("they overlap")
	}
	none := tensor.Must(tensor.Empty(p.Place, dtype.Int8, 0))
	if none.Overlaps(x) || x.Overlaps(none) || none.Overlaps(none) {
		t.Error("a tensor of no elements overlaps")
	}
}
