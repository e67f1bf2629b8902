package tensor_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
)

// noBackend computes nothing: these tests are about memory.
type noBackend struct{ backend.Backend }

func (noBackend) Name() string  { return "none" }
func (noBackend) Failed() error { return nil }

// placeOn returns a place on a device, with a caching allocator.
func placeOn(t *testing.T, dev driver.Device, change ...func(*tensor.Config)) *tensor.Place {
	t.Helper()
	alloc, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	c := tensor.Config{Device: dev, Allocator: alloc, Backend: noBackend{}}
	for _, f := range change {
		f(&c)
	}
	return tensor.NewPlace(c)
}

// hostPlace returns a place on the host.
func hostPlace(t *testing.T, change ...func(*tensor.Config)) *tensor.Place {
	t.Helper()
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	return placeOn(t, dev, change...)
}

// sites is a Config that records who made storages.
func sites(c *tensor.Config) { c.Sites = true }

// limited is a Config with that many bytes of memory.
func limited(bytes int64) func(*tensor.Config) {
	return func(c *tensor.Config) { c.Allocator = layer.NewLimiter(c.Allocator, bytes) }
}

func empty(t *testing.T, p *tensor.Place, shape ...int) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Empty(p, dtype.Float32, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// above is the line over the one that calls it.
func above() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line-1)
}

func TestOwnersKeepMemoryAndBorrowersDoNot(t *testing.T) {
	p := hostPlace(t)
	x := empty(t, p, 2, 3)
	s := x.Storage()
	ended := 0
	s.OnRelease(func() { ended++ })
	v := x.T()
	if !x.Owns() || v.Owns() || s.Owners() != 1 {
		t.Fatal("of a tensor and its view, just the tensor owns", x.Owns(), v.Owns(), s.Owners())
	}
	if v.Retain() != v || !v.Owns() || s.Owners() != 2 {
		t.Fatal("Retain makes an owner", s.Owners())
	}
	x.Release()
	if ended != 0 || s.Owners() != 1 || x.Owns() {
		t.Fatal("the view keeps the memory", ended, s.Owners())
	}
	v.T() // may still be used
	x.Storage().Retain()
	v.Release()
	if ended != 0 {
		t.Fatal("the storage's own Retain keeps the memory")
	}
	s.Release()
	if ended != 1 || s.Owners() != 0 || p.Leaks().Count != 0 {
		t.Fatal("the last owner ends it, once", ended, s.Owners(), p.Leaks())
	}
	stats, ok := mem.Find[mem.StatsReporter](p.Allocator())
	if n := stats.Stats().AllocatedBytes.All.Current; !ok || n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}

func TestMisuseNamesBothPlaces(t *testing.T) {
	p := hostPlace(t)
	x := empty(t, p, 2, 3)
	v := x.T()
	testkit.Contains(t, testkit.Panic(t, v.Release), "tensor: Release", "float32[3 2]", "owns nothing", "lifetime_test.go")
	x.Release()
	released := above()
	check := func(call string, f func()) {
		t.Helper()
		testkit.Contains(t, testkit.Panic(t, f), "tensor: "+call+" at ", "float32[", released)
	}
	check("Release", x.Release)
	check("Retain", func() { x.Retain() })
	check("Retain", func() { v.Retain() })
	check("Pointer", func() { v.Pointer() })
	check("Array", func() { v.Array() })
	check("Use", func() { _ = v.Use(p.Stream(), true) })
	for call, f := range map[string]func(*tensor.Tensor){
		"T":         func(t *tensor.Tensor) { t.T() },
		"MT":        func(t *tensor.Tensor) { _, _ = t.MT() },
		"Transpose": func(t *tensor.Tensor) { _, _ = t.Transpose(0, 1) },
		"Permute":   func(t *tensor.Tensor) { _, _ = t.Permute(1, 0) },
		"Squeeze":   func(t *tensor.Tensor) { _, _ = t.Squeeze() },
		"Unsqueeze": func(t *tensor.Tensor) { _, _ = t.Unsqueeze(0) },
		"Slice":     func(t *tensor.Tensor) { _, _ = t.Slice() },
		"Select":    func(t *tensor.Tensor) { _, _ = t.Select(0, 0) },
		"Narrow":    func(t *tensor.Tensor) { _, _ = t.Narrow(0, 0, 1) },
		"Split":     func(t *tensor.Tensor) { _, _ = t.Split(0, 1, 1) },
		"Chunk":     func(t *tensor.Tensor) { _, _ = t.Chunk(0, 2) },
		"Flip":      func(t *tensor.Tensor) { _, _ = t.Flip() },
		"Reshape":   func(t *tensor.Tensor) { _, _ = t.Reshape(-1) },
		"Flatten":   func(t *tensor.Tensor) { _, _ = t.Flatten(0, -1) },
		"Expand":    func(t *tensor.Tensor) { _, _ = t.Expand(1, 2, 3) },
		"AsStrided": func(t *tensor.Tensor) { _, _ = t.AsStrided(nil, nil, 0) },
		"Unfold":    func(t *tensor.Tensor) { _, _ = t.Unfold(0, 1, 1) },
		"Diagonal":  func(t *tensor.Tensor) { _, _ = t.Diagonal(0, 0, 1) },
		"ViewAs":    func(t *tensor.Tensor) { _, _ = t.ViewAs(dtype.Int32) },
		"Real":      func(t *tensor.Tensor) { t.Real() },
		"Imag":      func(t *tensor.Tensor) { _, _ = t.Imag() },
		"Along":     func(t *tensor.Tensor) { _, _ = t.Along(0) },
		"Values":    func(t *tensor.Tensor) { _, _ = tensor.Values[float32](t) },
	} {
		check(call, func() { f(x) })
		check(call, func() { f(v) })
		testkit.Contains(t, testkit.Panic(t, func() { f(nil) }), "tensor: "+call+" of the undefined tensor")
	}
	testkit.Contains(t, testkit.Panic(t, (*tensor.Tensor)(nil).Release), "tensor: Release of the undefined tensor")
	s := x.Storage()
	testkit.Contains(t, testkit.Panic(t, s.Release), "tensor: Release at lifetime_test.go:", "24 bytes", released)
	testkit.Contains(t, testkit.Panic(t, func() { s.Retain() }), "tensor: Retain at lifetime_test.go:", "24 bytes", released)
	testkit.Contains(t, testkit.Panic(t, func() { s.OnRelease(func() {}) }), "tensor: OnRelease at ", released)
	testkit.Contains(t, testkit.Panic(t, func() { _, _, _ = s.ReleaseBlock() }), "tensor: ReleaseBlock at ", released)
	if s.Owners() != 0 { // and no lock was left held
		t.Error("owners after the panics:", s.Owners())
	}

	// A released tensor must not be used, even if another tensor keeps its memory alive.
	y := empty(t, p, 2)
	w := y.T().Retain()
	y.Release()
	released = above()
	testkit.Contains(t, testkit.Panic(t, func() { y.T() }), "tensor: T at lifetime_test.go:", "float32[2]", released)
	w.Release()
}

func TestReleaseCallsBackInOrderAfterTheMemoryIsFree(t *testing.T) {
	p := hostPlace(t, limited(4096))
	x := empty(t, p, 1024)
	var order []int
	for i := range 5 {
		x.Storage().OnRelease(func() {
			y := empty(t, p, 1024) // the memory is free, and no lock held
			y.Release()
			order = append(order, i)
		})
	}
	x.Release()
	if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
		t.Error("order", order)
	}
}

func TestScopes(t *testing.T) {
	p := hostPlace(t)
	var ended []string
	named := func(p *tensor.Place, name string) *tensor.Tensor {
		x := empty(t, p, 2)
		x.Storage().OnRelease(func() { ended = append(ended, name) })
		return x
	}
	want := func(names ...string) {
		t.Helper()
		if !slices.Equal(ended, names) {
			t.Errorf("released are %q, want %q", ended, names)
		}
		ended = nil
	}

	outer := p.Scope()
	named(outer.Place, "a")
	inner := outer.Scope()
	b, c := named(inner.Place, "b"), named(inner.Place, "c")
	named(inner.Place, "d")
	e := named(inner.Place, "e")
	e.Release()
	want("e")
	if inner.Keep(b) != b || b.Place() != p {
		t.Error("a tensor's place has a scope")
	}
	view, err := inner.Keep(c.T()).Transpose(0, 0) // a borrower becomes an owner
	if err != nil {
		t.Fatal(err)
	}
	inner.Close()
	want("d")
	inner.Close()
	view.T()
	f := outer.Keep(named(outer.Place, "f"))
	if !p.SameDevice(f.Place()) || f.Place() != p {
		t.Error("what the outermost scope keeps has a place on its device")
	}
	foreign := named(p, "g")
	outer.Adopt(foreign)
	x := named(outer.Place, "x")
	x.Retain()
	other := outer.On(p.Stream()) // another stream, but the same scope
	named(other, "y")
	outer.Close()
	want("y", "g", "c", "b", "a")
	x.Release()
	f.Release()
	want("x", "f")
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = tensor.Empty(outer.Place, dtype.Int8, 3) }),
		"Empty", "lifetime_test.go", "in a scope that is closed")
	testkit.Contains(t, testkit.Panic(t, func() { outer.Keep(f) }), "tensor: Keep", "float32[2]")
	testkit.Contains(t, testkit.Panic(t, func() { outer.Adopt(f) }), "tensor: Adopt", "float32[2]")
}

func TestWeakStorages(t *testing.T) {
	p := hostPlace(t)
	x := empty(t, p, 2)
	w := x.Storage().Weak()
	s, ok := w.Retain()
	if !ok || s != x.Storage() || s.Owners() != 2 || w.Expired() {
		t.Fatal("of memory that is alive", ok, s.Owners(), w.Expired())
	}
	s.Release()
	x.Release()
	if _, ok := w.Retain(); ok || !w.Expired() {
		t.Error("of memory that is gone", ok, w.Expired())
	}
	var zero tensor.WeakStorage
	if _, ok := zero.Retain(); ok || !zero.Expired() {
		t.Error("of none", ok, zero.Expired())
	}
	dropped := drop(t, p)
	runtime.GC()
	if _, ok := dropped.Retain(); ok {
		t.Error("a dropped storage was retained")
	}
}

// drop makes a tensor and drops it without Release.
//
//go:noinline
func drop(t *testing.T, p *tensor.Place, shape ...int) tensor.WeakStorage {
	return empty(t, p, shape...).Storage().Weak()
}

func TestDroppedMemoryIsTakenBackWhenMemoryIsShort(t *testing.T) {
	p := hostPlace(t, limited(4<<20), sites)
	keep := empty(t, p, 1<<18)
	var dropped []tensor.WeakStorage
	for range 3 {
		dropped = append(dropped, drop(t, p, 1<<18))
	}
	called := 0
	tensor.Must(foreign(t, p, func() { // dropped, too
		called++
		if _, err := tensor.Empty(p, dtype.Float32, 1<<30); !errors.Is(err, mem.ErrNoMemory) { // no lock is in its way
			t.Error(err)
		}
	})).Storage()
	x, err := tensor.Empty(p, dtype.Float32, 3<<18)
	if err != nil {
		t.Fatal("what was dropped is room:", err)
	}
	for _, w := range dropped {
		if !w.Expired() {
			t.Error("what was dropped is still there")
		}
	}
	if called != 1 {
		t.Errorf("the deleter of dropped memory was called %d times", called)
	}
	keep.T()
	leaks := p.Leaks()
	if leaks.Count != 2 || leaks.Bytes != 4<<20 || leaks.Dropped != 4 || len(leaks.Sites) != 4 {
		t.Errorf("leaks: %+v", leaks)
	}
	for i, leak := range leaks.Sites {
		if leak.Dropped != 0 && leak.Dropped != leak.Count {
			t.Errorf("leak %d: %d of %d dropped", i, leak.Dropped, leak.Count)
		}
		if len(leak.Frames) == 0 || filepath.Base(leak.Frames[0].File) != "lifetime_test.go" {
			t.Errorf("leak %d was made at %v", i, leak.Frames)
		}
	}
	text := leaks.String()
	for _, w := range []string{"2 live with 4194304 bytes, 4 dropped", "3 of 3145728 bytes, 3 of them dropped without Release, made by", "tensor_test.drop", "lifetime_test.go:"} {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
	// A live tensor is never reclaimed, however short memory is.
	if _, err := tensor.Empty(p, dtype.Float32, 1); !errors.Is(err, mem.ErrNoMemory) {
		t.Error("an allocation without room:", err)
	}
	keep.Release()
	x.Release()
}

// A request that makes room by taking back dropped storages never ran out of memory; one that finds none did so once,
// however often the allocator was asked.
func TestDefect25_ARequestWithoutRoomIsReportedOnce(t *testing.T) {
	var reported []*mem.OutOfMemory
	var alloc *caching.Allocator
	p := placeOn(t, drivertest.OpenSim(t, 64<<20), func(c *tensor.Config) {
		alloc = c.Allocator.(*caching.Allocator)
		alloc.OnOutOfMemory(func(e *mem.OutOfMemory) { reported = append(reported, e) })
	})
	drop(t, p, 10<<20) // 40 MiB
	x := empty(t, p, 10<<20)
	if n := alloc.Stats().NumOOMs; len(reported) > 0 || n > 0 {
		t.Errorf("%d reports and %d counted of a request that found room: %v", len(reported), n, reported)
	}
	if _, err := tensor.Empty(p, dtype.Float32, 10<<20); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatal(err)
	}
	if n := alloc.Stats().NumOOMs; len(reported) != 1 || n != 1 {
		t.Errorf("%d reports and %d counted of a request that found no room, want one", len(reported), n)
	}
	x.Release()
}

// A request beyond the limit or the device fails although other goroutines free and allocate.
func TestARequestThatNothingServesEnds(t *testing.T) {
	for _, limit := range []int64{32 << 20, 1 << 40} {
		var p *tensor.Place
		other := &busyAllocator{}
		p = hostPlace(t, limited(limit), func(c *tensor.Config) {
			other.Allocator, c.Allocator = c.Allocator, other
		})
		other.then = func() { empty(t, p, 1<<10).Release() }
		if _, err := tensor.Empty(p, dtype.Int8, 65<<20); !errors.Is(err, mem.ErrNoMemory) {
			t.Error(err)
		}
		if other.n > 8 {
			t.Errorf("limit %d: the allocator was asked %d times", limit, other.n)
		}
	}
}

// A busyAllocator does something else before each large request.
type busyAllocator struct {
	mem.Allocator
	then func()
	n    int // large requests
}

func (a *busyAllocator) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return a.AllocWith(s, size, mem.AllocOptions{})
}

func (a *busyAllocator) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	if size > 64<<20 {
		if a.n++; a.n > 1000 {
			panic("a request goes on for ever")
		}
		a.then()
	}
	return mem.AllocWith(a.Allocator, s, size, o)
}

func (a *busyAllocator) Unwrap() mem.Allocator { return a.Allocator }

// foreign returns a tensor over memory with a deleter.
func foreign(t *testing.T, p *tensor.Place, deleter func()) (*tensor.Tensor, error) {
	t.Helper()
	s, err := tensor.FromBytes(p, make([]byte, 16), func(...driver.Stream) { deleter() })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	return tensor.FromStorage(p, s, dtype.Float32, 0, []int{4}, nil)
}

// Releases may run concurrently with the collection of dropped tensors.
func TestReleaseAndReclaimAtOnce(t *testing.T) {
	p := hostPlace(t, limited(1<<16), sites)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				x, err := tensor.Empty(p, dtype.Int8, 1<<14+512)
				if err == nil {
					p.Leaks() // keeps the ledger busy, on which releases wait
					x.Release()
				} else if !errors.Is(err, mem.ErrNoMemory) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if leaks := p.Leaks(); leaks.Count != 0 || leaks.Dropped != 0 {
		t.Error(leaks)
	}
}

// A tensor that is read by its last statement must not be taken for dropped before that is done.
func TestReadOfWhatIsDropped(t *testing.T) {
	p := openHost()
	defer p.Close()
	alloc := layer.NewLimiter(p.Allocator(), 1<<20)
	small := tensor.NewPlace(tensor.Config{Device: p.Device(), Allocator: alloc, Backend: p.Backend()})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				want := int32(1000*g + i)
				x, err := tensor.Full(small, dtype.Int32, want, 100, 150)
				var got []int32
				if err == nil {
					got, err = tensor.ToSlice[int32](x.T())
				}
				if err != nil && !errors.Is(err, mem.ErrNoMemory) { // others may be faster to take what was dropped
					t.Error(err)
				}
				if at := slices.IndexFunc(got, func(v int32) bool { return v != want }); at >= 0 {
					t.Errorf("element %d is %d, want %d: the memory was another's", at, got[at], want)
					return
				}
			}
		})
	}
	group.Wait()
	tensor.Must(tensor.Empty(small, dtype.Int8, 1<<20)).Release() // all was dropped, and is room
}

func TestForeignMemoryIsDeletedWithItsStreams(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	p := placeOn(t, dev)
	ptr := drivertest.Alloc(t, dev, 4096)
	second, third := drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)
	var told [][]driver.Stream
	s, err := tensor.FromPointer(p.On(second), ptr, 4096, func(used ...driver.Stream) { told = append(told, used) })
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.FromStorage(p, s, dtype.Int64, 1, []int{2}, []int{-1})
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := x.Use(third, false); err != nil {
		t.Fatal(err)
	}
	if got := x.Pointer(); got != ptr+8 || s.Pointer() != ptr {
		t.Errorf("at %#x, want %#x", got, ptr+8)
	}
	x.Release()
	if len(told) != 1 || !slices.Equal(told[0], []driver.Stream{second, third}) {
		t.Errorf("the deleter was told %v", told)
	}
	if _, err := tensor.FromPointer(p, 0, 1, nil); err == nil {
		t.Error("no address, yet memory")
	}
	if _, err := tensor.FromBytes(p, make([]byte, 8), nil); err == nil || !strings.Contains(err.Error(), "sim") {
		t.Error("Go's memory on a device that cannot reach it:", err)
	}
}

func TestReleaseBlockHandsTheMemoryOver(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	p := placeOn(t, dev)
	x := empty(t, p, 100)
	s := x.Storage()
	other := drivertest.NewStream(t, dev)
	if err := x.Use(other, true); err != nil {
		t.Fatal(err)
	}
	x.Retain()
	if _, _, err := s.ReleaseBlock(); err == nil || !strings.Contains(err.Error(), "2 owners") {
		t.Error("of two owners:", err)
	}
	x.Release()
	ended := 0
	s.OnRelease(func() { ended++ })
	ptr := x.Pointer()
	block, used, err := s.ReleaseBlock()
	if err != nil || block.Ptr != ptr || !slices.Equal(used, []driver.Stream{other}) || ended != 1 {
		t.Fatal(block, used, err, ended)
	}
	testkit.Contains(t, testkit.Panic(t, func() { x.T() }), "tensor: T", "lifetime_test.go:")
	if _, ok := s.Weak().Retain(); ok || p.Leaks().Count != 0 {
		t.Error("the storage is gone")
	}
	p.Allocator().Free(block, used...) // panics if the storage freed it already

	s, err = tensor.FromPointer(p, ptr, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReleaseBlock(); err == nil || !strings.Contains(err.Error(), "not from an allocator") {
		t.Error("of foreign memory:", err)
	}
	s.Release()
}

// A report without allocation sites names the setting that records them.
func TestDefect24_LeaksTellHowToRecordSites(t *testing.T) {
	for by, want := range map[string]string{"": "tensor.Config{Sites: true}", "house.Options{Sites: true}": "house.Options{Sites: true}"} {
		p := hostPlace(t, func(c *tensor.Config) { c.SitesBy = by })
		x := empty(t, p, 10, 10)
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), "at an unknown place: "+want+" records it") {
			t.Errorf("%v, want %q in it", err, want)
		}
		x.Release()
	}
}

func TestCloseListsWhatLeaked(t *testing.T) {
	closed := 0
	p := hostPlace(t, sites, func(c *tensor.Config) { c.Close = func() error { closed++; return nil } })
	x := empty(t, p, 10, 10)
	made := above()
	y := empty(t, p, 3)
	y.Release()
	err := p.Close()
	var leaked *tensor.LeakError
	if !errors.Is(err, tensor.ErrLeaked) || !errors.As(err, &leaked) || leaked.Leaks.Count != 1 || leaked.Leaks.Bytes != 400 || closed != 1 {
		t.Fatal(err, closed)
	}
	// empty is a function of this file, so its line comes first and the caller's next.
	if frames := leaked.Leaks.Sites[0].Frames; len(frames) < 2 ||
		fmt.Sprintf("%s:%d", filepath.Base(frames[1].File), frames[1].Line) != made || !strings.Contains(err.Error(), made) {
		t.Errorf("made at %s, and the error says %v", made, err)
	}
	x.Release()
	if err := p.Close(); err != nil {
		t.Error("with nothing alive:", err)
	}
	if got := p.Leaks().String(); got != "no live storages" {
		t.Error(got)
	}
}
