package engine

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

func copyTo(t testing.TB, s *Session, x *tensor.Tensor, i int) *tensor.Tensor {
	t.Helper()
	y, err := s.CopyTo(t.Context(), x, i)
	testkit.Must(t, err)
	return y
}

// A copy between devices is made once, for each session, device and view of a storage.
func TestCopiesAreCached(t *testing.T) {
	e, _ := simulated(t, 3, Config{})
	s, other := session(t, e), session(t, e)
	x, err := tensor.FromSlice(s.Place(), []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	testkit.Must(t, err)
	if copyTo(t, s, x, 0) != x {
		t.Error("a tensor that is on the device was copied")
	}
	y := copyTo(t, s, x, 1)
	if !y.Place().SameDevice(e.Place(1)) || y.Place().SameDevice(e.Place(2)) {
		t.Fatal("the copy is not on device 1")
	}
	if got, err := tensor.ToSlice[float32](y); err != nil || !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
		t.Errorf("the copy is %v, %v", got, err)
	}
	again, err := x.Reshape(2, 3) // another tensor, the same view
	testkit.Must(t, err)
	if copyTo(t, s, x, 1) != y || copyTo(t, s, again, 1) != y {
		t.Error("the copy was made again")
	}
	row, err := x.Select(0, 1)
	testkit.Must(t, err)
	if z := copyTo(t, s, row, 1); z == y || z.Len() != 3 {
		t.Errorf("a row's copy is %v", z)
	}
	bits, err := x.ViewAs(dtype.Int32)
	testkit.Must(t, err)
	if z := copyTo(t, s, bits, 1); z.DType() != dtype.Int32 {
		t.Errorf("the copy of a view of another type is %v", z)
	}
	if copyTo(t, s, x.T(), 1) == y || copyTo(t, s, x, 2) == y || copyTo(t, other, x, 1) == y {
		t.Error("one copy for two views, devices or sessions")
	}
	testkit.Must(t, x.Fill(nil, 9)) // a copy is what was there when it was made
	if got, err := tensor.ToSlice[float32](copyTo(t, s, x, 1)); err != nil || got[0] != 1 {
		t.Errorf("the copy after a write is %v, %v", got, err)
	}
	testkit.Must(t, s.ClearCopies())
	if got, err := tensor.ToSlice[float32](copyTo(t, s, x, 1)); err != nil || got[0] != 9 {
		t.Errorf("the new copy is %v, %v", got, err)
	}
	if _, err := s.CopyTo(t.Context(), x, 7); err == nil {
		t.Error("a copy to a device that is not there: no error")
	}
}

// Copies are released with their source, from any goroutine, by ClearCopies, and with their session.
func TestCopiesAreReleased(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	alive := func(want int) {
		t.Helper()
		if n := e.Place(1).Leaks().Count; n != want {
			t.Errorf("%d tensors on device 1, want %d", n, want)
		}
	}
	a, b := session(t, e), session(t, e)
	for range 3 {
		x, z := floats(t, e.Place(0), 10), floats(t, e.Place(0), 10)
		copyTo(t, a, x, 1)
		copyTo(t, b, x, 1)
		copyTo(t, a, z, 1)
		alive(3)
		elsewhere(x.Release)
		alive(1)
		testkit.Must(t, a.ClearCopies())
		alive(0)
		copyTo(t, a, z, 1)
		z.Release()
		alive(0)
	}
	x := floats(t, e.Place(0), 10)
	copyTo(t, a, x, 1)
	copyTo(t, b, x, 1)
	testkit.Must(t, a.Close())
	alive(1)
	testkit.Must(t, b.Close())
	alive(0)
	x.Release()
	if len(e.copies.bySource) != 0 {
		t.Errorf("%d sources are remembered", len(e.copies.bySource))
	}
}

// Sources are released while sessions copy others, and sessions close while sources are released.
func TestCopiesFromManyGoroutines(t *testing.T) {
	e, _ := simulated(t, 2, Config{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				s, err := e.NewSession()
				testkit.Must(t, err)
				var sources []*tensor.Tensor
				for range 3 {
					x := floats(t, e.Place(0), 10)
					copyTo(t, s, x, 1)
					sources = append(sources, x)
				}
				var release sync.WaitGroup
				release.Go(func() {
					for _, x := range sources {
						x.Release()
					}
				})
				testkit.Must(t, s.Close())
				release.Wait()
			}
		})
	}
	all.Wait()
}

// A copy without room leaves nothing behind, and succeeds once there is room.
func TestCopiesWithoutRoom(t *testing.T) {
	e, _ := simulated(t, 2, Config{Devices: []DeviceConfig{{}, {Allocator: "arena:size=1MiB"}}})
	s := session(t, e)
	x := floats(t, s.Place(), 1<<17)
	filler, err := e.Place(1).Alloc(1 << 20)
	testkit.Must(t, err)
	if _, err := s.CopyTo(t.Context(), x, 1); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("got %v, want %v", err, mem.ErrNoMemory)
	}
	if n := e.Place(1).Leaks().Count; n != 1 || len(e.copies.bySource) != 0 {
		t.Errorf("%d storages on device 1, want the filler; %d sources are remembered", n, len(e.copies.bySource))
	}
	filler.Release()
	copyTo(t, s, x, 1)
}
