package layer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func elements[T any](t *testing.T, a *layer.Typed[T], s driver.Stream, n int) *layer.Elements[T] {
	t.Helper()
	e, err := a.Alloc(t.Context(), s, n)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Numbers in memory that Go code reaches are a slice of it: what Go writes the device's work finds, and the other way
// round.
func TestTypedIsTheMemoryItself(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	a := layer.NewTyped(newCaching(t, dev), layer.TypedOptions[float32]{Visible: dev.Visible()})
	s := dev.DefaultStream()
	e := elements(t, a, s, 1000)
	if e.Len() != 1000 || len(e.Slice()) != 1000 || e.Block().Size < 4000 {
		t.Fatalf("%d elements in a slice of %d, a block of %d bytes", e.Len(), len(e.Slice()), e.Block().Size)
	}
	e.Slice()[999] = 1
	testkit.Must(t, s.Fill(e.Block().Ptr, 0, 4))
	got := make([]byte, 4)
	testkit.Must(t, s.CopyOut(got, e.Block().Ptr+3996))
	if !slices.Equal(got, []byte{0, 0, 0x80, 0x3f}) || e.Slice()[0] != 0 {
		t.Errorf("% x, and %v", got, e.Slice()[0])
	}
	a.Free(e)
	none := elements(t, a, s, 0)
	if none.Block() != (mem.Block{}) || none.Len() != 0 {
		t.Errorf("no elements are in %+v", none.Block())
	}
	a.Free(none)
	a.Free(nil)
}

// life notes what becomes of elements: +1 for the first that was made, -1 for it when it is destroyed.
type life struct {
	at     []int
	failAt int // of the construction that fails
	panics bool
}

var errConstruct = errors.New("no such luck")

func (l *life) options() layer.TypedOptions[int64] {
	return layer.TypedOptions[int64]{
		Construct: func(x *int64) error {
			if len(l.at)+1 == l.failAt {
				if l.panics {
					panic(errConstruct.Error())
				}
				return errConstruct
			}
			*x = int64(len(l.at) + 1)
			l.at = append(l.at, int(*x))
			return nil
		},
		Destroy: func(x *int64) { l.at = append(l.at, int(-*x)) },
	}
}

// However the making of elements ends, each that was made is destroyed once, the last one first, and the block goes
// back: in Free, when another one cannot be made, when the making panics.
func TestTypedDestroysWhatItMade(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	below := newCaching(t, dev)
	s := dev.DefaultStream()
	const n = 4
	for failAt := range n + 2 {
		for _, withPanic := range []bool{false, true} {
			l := &life{failAt: failAt, panics: withPanic}
			opts := l.options()
			opts.Visible = dev.Visible()
			if failAt == n+1 {
				opts.ConstructBlock = func(driver.Stream, *layer.Elements[int64]) error {
					if withPanic {
						panic(errConstruct.Error())
					}
					return errConstruct
				}
			}
			a := layer.NewTyped(below, opts)
			var e *layer.Elements[int64]
			var err error
			text := testkit.PanicText(func() { e, err = a.Alloc(t.Context(), s, n) })
			made := n
			switch {
			case failAt == 0:
				if err != nil || len(l.at) != n {
					t.Fatalf("%v: %v", err, l.at)
				}
				a.Free(e)
				testkit.Contains(t, testkit.Panic(t, func() { a.Free(e) }), "layer: Typed: Free of 4 elements", "not live")
			case withPanic && text == "" || !withPanic && !errors.Is(err, errConstruct) || e != nil:
				t.Errorf("failing at %d: %v, %v, panic %q", failAt, e, err, text)
			default:
				made = failAt - 1
			}
			var want []int
			for i := range made {
				want = append(want, i+1)
			}
			for i := range made {
				want = append(want, i-made)
			}
			if !slices.Equal(l.at, want) {
				t.Errorf("failing at %d: %v, want %v", failAt, l.at, want)
			}
			if live := below.(mem.StatsReporter).Stats().Allocation.All.Current; live != 0 {
				t.Errorf("failing at %d: %d blocks are left", failAt, live)
			}
		}
	}
}

// A panicking hook keeps no block.
func TestTypedFreesWhatPanicsInDestroy(t *testing.T) {
	base := fake.NewPile(1)
	a := layer.NewTyped(base, layer.TypedOptions[string]{
		Destroy:      func(s *string) { panic("destroy " + *s) },
		DestroyBlock: func(_ driver.Stream, e *layer.Elements[string]) { e.Slice()[1] = "b" },
	})
	e := elements(t, a, fake.S0, 2)
	if text := testkit.Panic(t, func() { a.Free(e, fake.S1) }); text != "destroy b" || len(base.Live) != 0 || len(base.Used[0]) != 1 {
		t.Errorf("%q, %d blocks are left", text, len(base.Live))
	}
	b := layer.NewTyped(base, layer.TypedOptions[string]{
		DestroyBlock: func(driver.Stream, *layer.Elements[string]) { panic("the block") },
	})
	e = elements(t, b, fake.S0, 1)
	testkit.Contains(t, testkit.Panic(t, func() { a.Free(e) }), "another Typed made them")
	if text := testkit.Panic(t, func() { b.Free(e) }); text != "the block" || len(base.Live) != 0 {
		t.Errorf("%q, %d blocks are left", text, len(base.Live))
	}
}

// Elements that hold Go pointers are Go's to collect, never in memory that its collector does not see, and count in the
// allocator all the same: limits hold for them.
func TestTypedOfGoPointers(t *testing.T) {
	limit := layer.NewLimiter(fake.NewPile(1), 160)
	made := 0
	a := layer.NewTyped(limit, layer.TypedOptions[string]{Construct: func(s *string) error {
		made++
		*s = fmt.Sprint("on the heap ", made)
		return nil
	}})
	e := elements(t, a, fake.S0, 10)
	want := slices.Clone(e.Slice())
	for i := range want {
		want[i] = string([]byte(want[i]))
	}
	for range 3 {
		runtime.GC()
	}
	if !slices.Equal(e.Slice(), want) || limit.Live() != 160 {
		t.Errorf("%q, and %d bytes are counted", e.Slice(), limit.Live())
	}
	var refused *mem.LimitError
	if _, err := a.Alloc(t.Context(), fake.S0, 1); !errors.As(err, &refused) {
		t.Errorf("over the limit: %v", err)
	}
	a.Free(e)
	if limit.Live() != 0 {
		t.Errorf("%d bytes are left", limit.Live())
	}
}

func onHeap[T any](t *testing.T) bool {
	t.Helper()
	base := fake.NewPile(1)
	a := layer.NewTyped(base, layer.TypedOptions[T]{})
	e := elements(t, a, fake.S0, 3)
	var zero T
	if e.Block().Size != int64(3*unsafe.Sizeof(zero)) {
		t.Errorf("%T: a block of %d bytes", zero, e.Block().Size)
	}
	there := e.Slice() != nil
	a.Free(e)
	return there
}

func TestTypedKnowsGoPointers(t *testing.T) {
	for name, got := range map[string]bool{
		"string": onHeap[string](t), "slice": onHeap[[]int](t), "pointer": onHeap[*int](t), "any": onHeap[any](t), "map": onHeap[map[int]int](t),
		"func": onHeap[func()](t), "chan": onHeap[chan int](t), "unsafe.Pointer": onHeap[unsafe.Pointer](t), "array": onHeap[[2][1]error](t),
		"struct": onHeap[struct {
			a int
			b struct{ c [2]func() }
		}](t), "nothing": onHeap[struct{}](t),
	} {
		if !got {
			t.Errorf("%s lies in a block", name)
		}
	}
	for name, got := range map[string]bool{
		"int": onHeap[int](t), "complex": onHeap[complex128](t), "uintptr": onHeap[uintptr](t), "array": onHeap[[3]bool](t),
		"struct": onHeap[struct {
			a [0]*int
			b int32
		}](t),
	} {
		if got {
			t.Errorf("%s lies on the heap", name)
		}
	}
}

// In memory that Go code cannot access a block is made and unmade as a whole, by work on its stream.
func TestTypedOnADevice(t *testing.T) {
	dev := drivertest.OpenSim(t, 64<<20)
	below := newCaching(t, dev)
	s := dev.DefaultStream()
	fail := false
	var ended int
	a := layer.NewTyped(below, layer.TypedOptions[int32]{
		ConstructBlock: func(s driver.Stream, e *layer.Elements[int32]) error {
			if fail {
				return errConstruct
			}
			return s.Fill(e.Block().Ptr, 1, int64(e.Len())*4)
		},
		DestroyBlock: func(s driver.Stream, e *layer.Elements[int32]) {
			ended++
			testkit.Must(t, s.Fill(e.Block().Ptr, 0, int64(e.Len())*4))
		},
	})
	e := elements(t, a, s, 100)
	if got := contents(t, s, e.Block())[:400]; slices.Min(got) != 1 || e.Slice() != nil {
		t.Errorf("% x; Go code sees %v", got, e.Slice())
	}
	a.Free(e)
	fail = true
	if _, err := a.Alloc(t.Context(), s, 100); !errors.Is(err, errConstruct) || ended != 1 {
		t.Errorf("%v; %d blocks were unmade", err, ended)
	}
	if live := below.(mem.StatsReporter).Stats().Allocation.All.Current; live != 0 {
		t.Errorf("%d blocks are left", live)
	}
	for _, opts := range []layer.TypedOptions[int32]{
		{Construct: func(*int32) error { return nil }}, {Destroy: func(*int32) {}},
	} {
		testkit.Contains(t, testkit.Panic(t, func() { layer.NewTyped(below, opts) }),
			"layer: Typed", "int32", "Go code cannot access")
	}
}

func TestTypedOfTooMany(t *testing.T) {
	base := fake.NewPile(1)
	a := layer.NewTyped(base, layer.TypedOptions[[16]int64]{})
	for _, n := range []int{math.MaxInt, math.MaxInt/128 + 1} {
		if _, err := a.Alloc(t.Context(), fake.S0, n); !errors.Is(err, mem.ErrNoMemory) || len(base.Live) > 0 {
			t.Errorf("%d elements of 128 bytes: %v", n, err)
		}
	}
	testkit.Contains(t, testkit.Panic(t, func() { a.Alloc(t.Context(), fake.S0, -1) }), "layer: Typed: Alloc of -1 elements")
	counted := &optioned{Pile: fake.NewPile(1)}
	_, err := layer.NewTyped(counted, layer.TypedOptions[int]{}).AllocWith(t.Context(), fake.S0, 1, mem.AllocOptions{NoRetry: true})
	if testkit.Must(t, err); len(counted.got) != 1 || !counted.got[0].NoRetry {
		t.Errorf("its wishes: %+v", counted.got)
	}
}

// Go code gets memory only after the work of its last user, and destroys what it made only after that of all users.
func TestTypedWaitsForTheDevice(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	below := newCaching(t, dev)
	s := dev.DefaultStream()
	other := drivertest.NewStream(t, dev)
	var last int64
	a := layer.NewTyped(below, layer.TypedOptions[int64]{
		Visible:   dev.Visible(),
		Construct: func(x *int64) error { *x = 1; return nil },
		Destroy:   func(x *int64) { last = *x },
	})
	was, err := below.Alloc(s, 8)
	testkit.Must(t, err)
	gate := make(chan struct{})
	writes := func(on driver.Stream, p driver.Pointer, v byte) {
		testkit.Must(t, dev.Kernels().Launch(on, driver.Kernel{Name: "late", Func: func(m driver.Memory) error {
			<-gate
			return m.Store(p, []byte{v, 0, 0, 0, 0, 0, 0, 0})
		}}))
	}
	writes(s, was.Ptr, 2)
	below.Free(was)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Alloc(ctx, s, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("while its memory is written to: %v", err)
	}
	if live := below.(mem.StatsReporter).Stats().Allocation.All.Current; live != 0 || last != 0 {
		t.Errorf("%d blocks are left; %d was destroyed", live, last)
	}
	go close(gate)
	e := elements(t, a, s, 1)
	testkit.Must(t, s.Sync(t.Context()))
	if e.Block().Ptr != was.Ptr || e.Slice()[0] != 1 {
		t.Errorf("%d at %#x, after what was at %#x", e.Slice()[0], uint64(e.Block().Ptr), uint64(was.Ptr))
	}
	gate = make(chan struct{})
	writes(other, e.Block().Ptr, 3)
	go close(gate)
	a.Free(e, other)
	if last != 3 {
		t.Errorf("%d was destroyed, and another stream's work was to make it 3", last)
	}
	testkit.Must(t, other.Close())
}

// An allocator of host memory allocates memory that is not in use. A layer on top of it may keep what is in use, as a
// Slab does: then the stream is waited for.
func TestTypedWaitsForWhatLayersKeep(t *testing.T) {
	below := &visible{Pile: fake.NewPile(64), memory: make([]int64, 64)}
	for name, c := range map[string]struct {
		a     mem.Allocator
		syncs int
	}{"alone": {below, 0}, "slab": {layer.NewSlabs(below, 64, 4), 2}} {
		s := &waited{}
		a := layer.NewTyped(c.a, layer.TypedOptions[int64]{})
		for range 2 {
			a.Free(elements(t, a, s, 3))
		}
		if s.syncs != c.syncs {
			t.Errorf("%s: the stream was waited for %d times, want %d", name, s.syncs, c.syncs)
		}
	}
}

// visible is a pile that Go code reaches.
type visible struct {
	*fake.Pile
	memory []int64
}

func (v *visible) Bytes(_ driver.Pointer, size int64) ([]byte, error) {
	return unsafe.Slice((*byte)(unsafe.Pointer(&v.memory[0])), size), nil
}

// waited counts how often it is waited for.
type waited struct {
	idle
	syncs int
}

func (s *waited) Sync(context.Context) error { s.syncs++; return nil }

// Goroutines that allocate on one and free on another.
func TestTypedAcrossGoroutines(t *testing.T) {
	dev := drivertest.OpenDevice(t, "host:total=64MiB")
	below := newCaching(t, dev)
	numbers := layer.NewTyped(below, layer.TypedOptions[uint32]{
		Visible: dev.Visible(), Construct: func(x *uint32) error { *x = 5; return nil }, Destroy: func(x *uint32) { *x = 0 },
	})
	words := layer.NewTyped(below, layer.TypedOptions[[]byte]{
		Construct: func(x *[]byte) error { *x = []byte("word"); return nil }, Destroy: func(x *[]byte) { *x = nil },
	})
	type pair struct {
		n *layer.Elements[uint32]
		w *layer.Elements[[]byte]
	}
	var makers, enders sync.WaitGroup
	blocks := make(chan pair, 8)
	for i := range 3 {
		s := drivertest.NewStream(t, dev)
		makers.Go(func() {
			for j := range 50 {
				n, err := numbers.Alloc(t.Context(), s, 1+i*j)
				if err != nil {
					t.Error(err)
					return
				}
				w, err := words.Alloc(t.Context(), s, 1+j)
				if err != nil {
					t.Error(err)
					return
				}
				blocks <- pair{n, w}
			}
		})
		enders.Go(func() {
			for p := range blocks {
				if p.n.Slice()[p.n.Len()-1] != 5 || string(p.w.Slice()[0]) != "word" {
					t.Errorf("%v, %q", p.n.Slice(), p.w.Slice())
				}
				numbers.Free(p.n, s)
				words.Free(p.w)
			}
		})
	}
	makers.Wait()
	close(blocks)
	enders.Wait()
	if live := below.(mem.StatsReporter).Stats().Allocation.All.Current; live != 0 {
		t.Errorf("%d blocks are left", live)
	}
}
