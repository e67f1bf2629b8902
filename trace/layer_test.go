package trace_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/trace"
)

// blocks checks, as a tracker, that no address is allocated twice.
type blocks struct {
	t    testing.TB
	size map[driver.Pointer]int64
}

func (l *blocks) observe(e mem.Event) {
	switch e.Action {
	case mem.ActionAlloc:
		if n, ok := l.size[e.Ptr]; ok {
			l.t.Errorf("%d bytes at %#x are allocated, where %d are allocated", e.Size, uint64(e.Ptr), n)
		}
		l.size[e.Ptr] = e.Size
	case mem.ActionFreeCompleted:
		if n, ok := l.size[e.Ptr]; ok && n != e.Size {
			l.t.Errorf("%d bytes at %#x are freed, of which %d were asked for", e.Size, uint64(e.Ptr), n)
		}
		delete(l.size, e.Ptr)
	}
}

// A recorded is an allocator with a recorder, and its closer.
type recorded struct {
	mem.Allocator
	below mem.Allocator
}

func (r recorded) Unwrap() mem.Allocator                  { return r.Allocator }
func (r recorded) Movable(b mem.Block, h mem.Holder) bool { return mem.Movable(r.Allocator, b, h) }
func (r recorded) Close() error                           { return r.below.(io.Closer).Close() }

// The layer passes the tests of an allocator, also above one whose blocks move.
func TestLayerConformance(t *testing.T) {
	const region, bounce = 16<<20 - 4096, 64 << 10
	memtest.Run(t, memtest.Config{
		Sim: sim.Options{Total: region + bounce + 144<<10},
		New: func(t testing.TB, dev driver.Device) mem.Allocator {
			a, err := arena.New(dev, arena.Config{Size: region, Bounce: bounce})
			if err != nil {
				t.Fatal(err)
			}
			r := trace.NewRecorder(trace.RecorderOptions{Max: 1000, Context: trace.ContextAll})
			seen := &blocks{t: t, size: map[driver.Pointer]int64{}}
			r.AttachTracker(seen.observe)
			t.Cleanup(func() {
				if len(seen.size) > 0 {
					t.Errorf("at the end the recorder has %d allocated blocks", len(seen.size))
				}
			})
			return recorded{r.Attach(a), a}
		},
		MaxBlock: 4<<20 - 2, Reserved: region + bounce, Waits: true, Alignment: 512, Ops: 400, Seeds: 2, FaultOps: 6,
	})
}

// A free has the requested size and the stream of its block, or the block's rounded size if the block was allocated in
// a gap.
func TestLayerRemembersWhatWasAskedFor(t *testing.T) {
	dev := drivertest.OpenSim(t, 0)
	side := drivertest.NewStream(t, dev)
	below, err := arena.New(dev, arena.Config{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := trace.NewRecorder(trace.RecorderOptions{})
	a := r.Attach(below)
	alloc := func() mem.Block {
		b, err := a.Alloc(side, 100)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := alloc()
	a.Free(b, dev.DefaultStream())
	b = alloc()
	r.Stop()
	a.Free(b)
	b = alloc()
	r.Start()
	a.Free(b)
	if _, err := a.Alloc(side, 0); err != nil {
		t.Error(err)
	}
	a.Free(mem.Block{})
	var got []string
	tr := r.Trace()
	for _, e := range tr.Events {
		got = append(got, fmt.Sprintf("%v %d s%d", e.Action, e.Size, tr.Streams[e.Stream]))
	}
	want := []string{
		"alloc 100 s1", "free_requested 100 s1", "free_completed 100 s1", "alloc 100 s1",
		"free_requested 512 s0", "free_completed 512 s0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A holder lets its block be moved.
type holder struct{ at mem.Block }

func (h *holder) BeginMove() ([]driver.Stream, bool)   { return nil, true }
func (h *holder) EndMove(b mem.Block, _ driver.Stream) { h.at = b }

// A block that moves keeps the size and the stack of its request.
func TestLayerFollowsMoves(t *testing.T) {
	r := newRig(t, allocators[3].open, trace.RecorderOptions{Context: trace.ContextState})
	hole := r.alloc(1 << 20)
	r.theAlloc()
	h := &holder{at: r.block}
	if !mem.Movable(r.a, r.block, h) {
		t.Fatal("it does not move")
	}
	r.a.Free(hole)
	c, _ := mem.Find[mem.Compactor](r.a)
	if err := c.Compact(r.stream); err != nil {
		t.Fatal(err)
	}
	if h.at.Ptr != hole.Ptr {
		t.Fatalf("the block is at %#x, not at %#x", uint64(h.at.Ptr), uint64(hole.Ptr))
	}
	if text := r.json(); !strings.Contains(text, "theAlloc") {
		t.Error("the stack has not come along")
	}
	r.a.Free(h.at)
	var got []string
	for _, e := range r.recorder.Trace().Events[4:] {
		if e.Action != mem.ActionSnapshot {
			got = append(got, fmt.Sprintf("%v %d +%d", e.Action, e.Size, e.Ptr-hole.Ptr))
		}
	}
	want := []string{
		"free_requested 3145728 +1048576", "free_completed 3145728 +1048576", "alloc 3145728 +0",
		"free_requested 3145728 +0", "free_completed 3145728 +0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Goroutines allocate, each in its own function, while others turn everything on and off: no address may be allocated
// twice, and no block may have another goroutine's stack.
func TestTogglingWhileOthersAllocate(t *testing.T) {
	for _, x := range allocators {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Max: 200, Context: trace.ContextAll})
			workers := []func(n int64) mem.Block{r.worker0, r.worker1, r.worker2}
			const seed = 5
			var wg, toggling sync.WaitGroup
			var done atomic.Bool
			for w, alloc := range workers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(w)))
					var mine []mem.Block
					for i := range 1500 {
						if len(mine) > 8 || len(mine) > 0 && random.IntN(2) == 0 {
							r.a.Free(mine[0])
							mine = mine[1:]
						} else {
							mine = append(mine, alloc(1+random.Int64N(1<<18)))
						}
						if i%100 == 0 && len(mine) > 0 {
							v := r.recorder.View(func() {})
							for _, b := range mine {
								if s := strings.Join(names(v.Stacks, v.Block(b.Ptr)), " "); s != "" && !strings.Contains(s, fmt.Sprintf(".worker%d ", w)) {
									t.Errorf("a block of worker %d has the stack %q", w, s)
								}
							}
						}
					}
					for _, b := range mine {
						r.a.Free(b)
					}
				})
			}
			for _, toggle := range []func(){
				func() { r.recorder.Stop(); r.recorder.Start() },
				func() { r.recorder.Stop(); r.recorder.SetMetadata("x"); r.recorder.Start() },
				func() { r.recorder.AttachTracker(func(mem.Event) {})() },
				func() { r.recorder.Annotate("a", "")(); r.recorder.Annotations(); r.recorder.Trace() },
				func() { r.recorder.SetContext(trace.ContextState); r.recorder.SetContext(trace.ContextAll) },
				func() { r.recorder.Reset(); r.json() },
			} {
				toggling.Go(func() {
					for !done.Load() {
						toggle()
					}
				})
			}
			wg.Wait()
			done.Store(true)
			toggling.Wait()
			r.recorder.Stop()
			r.recorder.Start()
			r.recorder.Reset()
			pair(t, r.a, r.stream, 1000)
			if n := len(r.recorder.Trace().Events); n < 3 {
				t.Errorf("%d entries at the end", n)
			}
		})
	}
}

//go:noinline
func (r *rig) worker0(n int64) mem.Block { return r.alloc(n) }

//go:noinline
func (r *rig) worker1(n int64) mem.Block { return r.alloc(n) }

//go:noinline
func (r *rig) worker2(n int64) mem.Block { return r.alloc(n) }

// A tracker that stays attached sees a consistent history, however often recording is turned off and on.
func TestTrackersHearOfAllWhileRecordingIsToggled(t *testing.T) {
	for _, x := range allocators {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, x.open, trace.RecorderOptions{Max: 50})
			seen := &blocks{t: t, size: map[driver.Pointer]int64{}}
			events := map[mem.Action]int{}
			r.recorder.AttachTracker(func(e mem.Event) { seen.observe(e); events[e.Action]++ })
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for i := range 1000 {
						pair(t, r.a, r.stream, int64(512*(1+i%7)))
					}
				})
			}
			for range 200 {
				r.recorder.Stop()
				r.recorder.Start()
			}
			wg.Wait()
			if len(seen.size) > 0 || events[mem.ActionAlloc] != 3000 || events[mem.ActionFreeCompleted] != 3000 {
				t.Errorf("%d are allocated, events %v", len(seen.size), events)
			}
		})
	}
}
