package tensor_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// Tensors of a place with another allocator take their memory from it, give it back there, and work with tensors of the
// first place as on one device.
func TestWithAllocator(t *testing.T) {
	for name, p := range tensortest.HostAndSim(t) {
		counted := layer.NewLimiter(p.Allocator(), 1<<20)
		q := p.WithAllocator(counted)
		if !p.SameDevice(q) || !q.SameDevice(p) || q.Allocator() != counted {
			t.Errorf("%s: the places are not on one device, or the allocator is not the one given", name)
		}
		x := tensor.Must(tensor.FromSlice(p, []float32{1, 2, 3}))
		y := tensor.Must(x.Clone(q))
		if got := y.Storage().BlockSize(); counted.Live() != got || got < y.Size() || y.Storage().Allocator() != counted {
			t.Errorf("%s: %d bytes are live, the block of %d bytes has %d", name, counted.Live(), y.Size(), got)
		}
		shared := tensor.Must(x.To(q)) // no copy
		if !shared.SameStorage(x) {
			t.Errorf("%s: To copied on one device", name)
		}
		back := tensor.Must(tensor.Empty(p, dtype.Float32, 3))
		if err := back.CopyFrom(nil, y); err != nil {
			t.Fatal(err)
		}
		if got, err := tensor.ToSlice[float32](back); err != nil || !slices.Equal(got, []float32{1, 2, 3}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if leaks := p.Leaks(); leaks.Count != 3 {
			t.Errorf("%s: %d live storages, want those of both allocators: 3", name, leaks.Count)
		}
		for _, x := range []*tensor.Tensor{x, y, shared, back} {
			x.Release()
		}
		if counted.Live() != 0 {
			t.Errorf("%s: %d bytes are live after the last release", name, counted.Live())
		}
	}
}

// A storage has the bytes asked for until it is released, and there is none if the allocator has no room.
func TestAlloc(t *testing.T) {
	for name, p := range tensortest.HostAndSim(t) {
		counted := layer.NewLimiter(p.Allocator(), 1<<20)
		q := p.WithAllocator(counted)
		s, err := q.Alloc(1000)
		if err != nil || s == nil || s.Size() != 1000 || counted.Live() < 1000 {
			t.Fatalf("%s: Alloc of 1000 bytes: %v, %v, %d bytes are live", name, s, err, counted.Live())
		}
		if more, err := q.Alloc(1 << 20); !errors.Is(err, mem.ErrNoMemory) || more != nil {
			t.Errorf("%s: Alloc of more than there is room for: %v, %v", name, more, err)
		}
		s.Release()
		if counted.Live() != 0 {
			t.Errorf("%s: %d bytes are live after the release", name, counted.Live())
		}
	}
}

// Foreign memory takes nothing from an allocator.
func TestBlockSizeOfForeignMemory(t *testing.T) {
	p := tensortest.Host(t)
	s, err := tensor.FromBytes(p, make([]byte, 100), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if s.BlockSize() != 0 || s.Allocator() != nil {
		t.Errorf("a block of %d bytes of %v", s.BlockSize(), s.Allocator())
	}
}

// A dropped storage whose memory is not reclaimed yet is live, and its site says that it was dropped.
func TestLeaksOfDroppedStorages(t *testing.T) {
	p := tensortest.Host(t)
	func() {
		if _, err := p.Alloc(1000); err != nil {
			t.Fatal(err)
		}
	}()
	runtime.GC()
	l := p.Leaks()
	if l.Count != 1 || l.Dropped != 0 || len(l.Sites) != 1 || l.Sites[0].Count != 1 || l.Sites[0].Dropped != 1 {
		t.Errorf("%+v, want one live storage, and that its site dropped it", l)
	}
	testkit.Contains(t, l.String(), "1 of them dropped without Release")
	if n := p.Reclaim(); n != 1 {
		t.Errorf("Reclaim of one storage freed %d", n)
	}
	if l := p.Leaks(); l.Count != 0 || l.Dropped != 1 {
		t.Errorf("after Reclaim: %+v", l)
	}
}
