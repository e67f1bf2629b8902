package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// refusing is physical memory made of numbers that refuses the nth call to show.
type refusing struct {
	shown map[driver.Pointer]int64 // what is mapped: size by address
	nth   int
	next  driver.Pointer
}

func (r *refusing) reserve(size, align int64) (driver.Pointer, error) {
	r.next += driver.Pointer(align)
	p := r.next
	r.next += driver.Pointer(size)
	return p, nil
}
func (r *refusing) release(driver.Pointer, int64) error { return nil }
func (r *refusing) create(int64) (int64, error)         { return 0, nil }
func (r *refusing) discard(int64, int64) error          { return nil }
func (r *refusing) close() error                        { return nil }

func (r *refusing) mapAt(p driver.Pointer, _, size int64) error {
	if r.nth--; r.nth == 0 {
		return errors.New("too many mappings")
	}
	r.shown[p] = size
	return nil
}

func (r *refusing) unmapAt(p driver.Pointer, size int64) error {
	for at, n := range r.shown {
		if at >= p && at+driver.Pointer(n) <= p+driver.Pointer(size) {
			delete(r.shown, at)
		}
	}
	return nil
}

// TestMapIsAllOrNothing: when the system refuses a page, those before it go away again.
func TestMapIsAllOrNothing(t *testing.T) {
	const g = 1 << 16
	for nth := 1; nth <= 3; nth++ {
		r := &refusing{shown: map[driver.Pointer]int64{}, nth: nth}
		d := newDevice(Options{Total: 1 << 20, Granularity: g}, r)
		vm := d.VirtualMemory()
		p, err := vm.Reserve(4 * g)
		testkit.Must(t, err)
		var pages []driver.Page
		for range 3 {
			page, err := vm.Create(g)
			testkit.Must(t, err)
			pages = append(pages, page)
		}
		if err := vm.Map(p, pages...); !errors.Is(err, driver.ErrNoMemory) || len(r.shown) != 0 {
			t.Errorf("Map with page %d refused: %v, and %d pages are mapped", nth, err, len(r.shown))
		}
		if err := d.DefaultStream().Fill(p, 0, 1); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Fill of what was not mapped: %v", err)
		}
		testkit.Must(t, vm.Map(p, pages...))
		testkit.Must(t, vm.Unmap(p, 3*g))
		testkit.Must(t, vm.Release(p, 4*g))
		testkit.Must(t, d.Close())
	}
}

// mapPage maps one page of g bytes.
func mapPage(t *testing.T, vm driver.VirtualMemory, g int64) (driver.Pointer, driver.Page) {
	t.Helper()
	p, err := vm.Reserve(g)
	testkit.Must(t, err)
	page, err := vm.Create(g)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(p, page))
	return p, page
}

// TestUnmapUnderQueuedWork: unmapping memory that queued work uses is a bug, and causes an error, not a crash.
func TestUnmapUnderQueuedWork(t *testing.T) {
	d := open(t)
	vm := d.VirtualMemory()
	if vm == nil {
		return // not on this operating system
	}
	s, g := d.DefaultStream(), d.Info().Granularity
	p, page := mapPage(t, vm, g)
	block := drivertest.Alloc(t, d, 4096)
	for what, work := range map[string]func() error{
		"Fill":         func() error { return s.Fill(p, 1, g) },
		"Copy from it": func() error { return s.Copy(block, p, 4096) },
		"Copy to it":   func() error { return s.Copy(p+8, block, 4096) },
	} {
		release := hold(t, d, s)
		testkit.Must(t, work())
		testkit.Must(t, vm.Unmap(p, g))
		release()
		if err := s.Sync(context.Background()); !errors.Is(err, ErrFault) {
			t.Errorf("%s: Sync returned %v, want ErrFault", what, err)
		}
		testkit.Must(t, vm.Map(p, page))
	}
	testkit.Must(t, s.Fill(p, 1, g))
	testkit.Must(t, s.Sync(context.Background()))

	// A kernel that is in the middle of its work looks addresses up, and sees that they are gone.
	release := hold(t, d, s)
	testkit.Must(t, d.Kernels().Launch(s, driver.Kernel{Name: "late", Func: func(m driver.Memory) error {
		return m.Store(p, []byte{1})
	}}))
	testkit.Must(t, vm.Unmap(p, g))
	release()
	if err := s.Sync(context.Background()); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Sync: %v, want ErrInvalid", err)
	}
}

// TestCopyOutReturnsItsOwnError and leaves none to Sync.
func TestCopyOutReturnsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		vm := d.VirtualMemory()
		if vm == nil {
			return // not on this operating system
		}
		s, g := d.DefaultStream(), d.Info().Granularity
		p, _ := mapPage(t, vm, g)
		release := hold(t, d, s)
		result := make(chan error)
		go func() { result <- s.CopyOut(make([]byte, 8), p) }()
		synctest.Wait() // until it is queued
		testkit.Must(t, vm.Unmap(p, g))
		release()
		if err := <-result; !errors.Is(err, ErrFault) {
			t.Errorf("CopyOut: %v, want ErrFault", err)
		}
		testkit.Must(t, s.Sync(context.Background()))
	})
}

// TestWorkStaysInOneReservation: addresses that happen to be next to each other are not one range.
func TestWorkStaysInOneReservation(t *testing.T) {
	const g = 1 << 16
	// This physical memory leaves one granule between reservations; with none they would be neighbours.
	r := &refusing{shown: map[driver.Pointer]int64{}}
	d := newDevice(Options{Total: 1 << 20, Granularity: g}, r)
	vm := d.VirtualMemory()
	p, err := vm.Reserve(g)
	testkit.Must(t, err)
	r.next -= g
	q, err := vm.Reserve(g)
	testkit.Must(t, err)
	if q != p+g {
		t.Fatalf("reservations at %#x and %#x are not neighbours", p, q)
	}
	a, err := vm.Create(g)
	testkit.Must(t, err)
	testkit.Must(t, vm.Map(p, a))
	testkit.Must(t, vm.Map(q, a))
	if err := vm.Unmap(p, 2*g); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Unmap across two reservations: %v", err)
	}
	if err := d.lookUp("test", p+g-1, 2); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an access across two reservations: %v", err)
	}
	testkit.Must(t, d.lookUp("test", p, g))
	testkit.Must(t, d.Close())
}
