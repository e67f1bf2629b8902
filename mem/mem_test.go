package mem_test

import (
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// The names of PyTorch's snapshots.
func TestNames(t *testing.T) {
	actions := []string{
		"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
		"snapshot", "oom", "annotate", "user_defined",
	}
	for i, want := range actions {
		a := mem.Action(i)
		if got, ok := mem.ParseAction(want); a.String() != want || got != a || !ok {
			t.Errorf("action %d is %q; %q is %d, %v", i, a, want, got, ok)
		}
		if note := a == mem.ActionAnnotate || a == mem.ActionUserDefined; a.IsAnnotation() != note {
			t.Errorf("%v is an annotation: %v", a, !note)
		}
	}
	if got, ok := mem.ParseAction("unknown"); ok || got != 0 || mem.NumActions.String() != "unknown" {
		t.Errorf("an action without a name: %q is %v, %v", mem.NumActions, got, ok)
	}
	states := []string{"inactive", "active_allocated", "active_pending_free", "unknown"}
	for i, want := range states {
		if got := mem.BlockState(i).String(); got != want {
			t.Errorf("state %d is %q, want %q", i, got, want)
		}
	}
}

func TestLayersAndFind(t *testing.T) {
	plain := &plainAllocator{}
	low := limitOf{above{plain}, 1}
	high := limitOf{above{above{low}}, 2}
	if got := slices.Collect(mem.Layers(high)); len(got) != 4 || got[0] != mem.Allocator(high) || got[3] != mem.Allocator(plain) {
		t.Errorf("%d layers: %v", len(got), got)
	}
	if n := len(slices.Collect(mem.Layers(nil))); n != 0 {
		t.Errorf("%d layers of nil", n)
	}
	if l, ok := mem.Find[interface{ Limit() int64 }](above{high}); !ok || l.Limit() != 2 {
		t.Errorf("the topmost limit is %v, %v", l, ok)
	}
	if s, ok := mem.Find[mem.Snapshotter](high); ok || s != nil {
		t.Errorf("%v describes segments", s)
	}
}

// moving permits the blocks of one address to be moved.
type moving struct {
	above
	at driver.Pointer
}

func (m moving) Movable(b mem.Block, _ mem.Holder) bool { return b.Ptr == m.at }

func TestMovableAsksTheTopmostLayer(t *testing.T) {
	m := moving{above{&plainAllocator{}}, 512}
	for _, c := range []struct {
		a    mem.Allocator
		p    driver.Pointer
		want bool
	}{{m, 512, true}, {m, 1024, false}, {above{m}, 512, false}} {
		if got := mem.Movable(c.a, mem.Block{Ptr: c.p}, nil); got != c.want {
			t.Errorf("%T: the block at %d may be moved: %v", c.a, c.p, got)
		}
	}
}

func TestPoolDeltaFinds(t *testing.T) {
	d := &mem.PoolDelta{Live: []mem.Block{{Ptr: 512, Size: 1}, {Ptr: 1024, Size: 2}, {Ptr: 4096, Size: 3}}}
	for p, want := range map[driver.Pointer]int{512: 0, 1024: 1, 4096: 2, 0: -1, 513: -1, 2048: -1, 8192: -1} {
		i, ok := d.Find(p)
		b, at := d.At(p)
		if ok != (want >= 0) || at != ok || ok && (i != want || b != d.Live[want]) || !ok && b != (mem.Block{}) {
			t.Errorf("at %d: index %d, %v, block %+v, %v; want index %d", p, i, ok, b, at, want)
		}
	}
}

// The filter selects requests of the goroutine that made it.
func TestCurrentGoroutine(t *testing.T) {
	mine := mem.CurrentGoroutine()
	theirs := make(chan bool)
	go func() { theirs <- mine(nil) }()
	if !mine(nil) || <-theirs {
		t.Error("the filter does not tell this goroutine from another one")
	}
	if a, b := mem.NewPoolID(), mem.NewPoolID(); a[0] != 0 || b[0] != 0 || a[1] == 0 || b[1] <= a[1] {
		t.Errorf("pools %v and then %v", a, b)
	}
}
