package pinned_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// used returns a block that s uses, with work on s that is not done.
func used(t *testing.T, d *device, a *pinned.Allocator, s driver.Stream, size int64) mem.Block {
	t.Helper()
	b := alloc(t, a, size)
	d.hold(s)
	d.work(t, s)
	piece(t, a, b, s)
	return b
}

// reused reports whether a request of b's size gets b's memory. It does not keep it.
func reused(t *testing.T, a *pinned.Allocator, b mem.Block) bool {
	t.Helper()
	c := alloc(t, a, b.Size)
	a.Free(c)
	return same(b, c)
}

// A busy stream does not delay blocks that wait for other streams, in whatever order they were freed (PyTorch issue
// 71616).
func TestStreamsDoNotHoldUpEachOther(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	busy, idle := d.stream(t), d.stream(t)
	slow, quick := used(t, d, a, busy, 64), used(t, d, a, idle, 4096)
	a.Free(slow)
	a.Free(quick)
	d.resume(idle)
	if !reused(t, a, quick) {
		t.Error("a block waits for a stream that did not use it")
	}
	if reused(t, a, slow) {
		t.Error("a block does not wait for the stream that used it")
	}
	d.resume(busy)
	closeAll(t, a, d)
}

func TestWaitsForEveryStream(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	x, y := d.stream(t), d.stream(t)
	b := used(t, d, a, x, 64)
	d.hold(y)
	d.work(t, y)
	piece(t, a, b, y)
	piece(t, a, b, x) // once more
	a.Free(b)
	if n := d.CallsOf(intercept.Mark); n != 2 {
		t.Errorf("%d marks for two streams", n)
	}
	d.resume(x)
	if reused(t, a, b) {
		t.Error("reused before the second stream was done")
	}
	want(t, a, "active_requests.current", 1, "active_bytes.current", 64)
	d.resume(y)
	a.Free(alloc(t, a, 1))
	want(t, a, "active_requests.current", 0)
	// The next loan begins without the streams of the last.
	b = alloc(t, a, 64)
	marks := d.CallsOf(intercept.Mark)
	a.Free(b)
	if d.CallsOf(intercept.Mark) != marks {
		t.Error("a stream of an earlier loan is asked")
	}
	closeAll(t, a, d)
}

// Free waits for work queued between Record and Free: the mark is taken in Free.
func TestMarkIsTakenAtFree(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := alloc(t, a, 64)
	piece(t, a, b, s)
	d.hold(s)
	d.work(t, s)
	a.Free(b)
	if reused(t, a, b) {
		t.Error("reused before work that was queued ahead of Free")
	}
	d.resume(s)
	closeAll(t, a, d)
}

func TestMarkFails(t *testing.T) {
	for _, catch := range []bool{false, true} {
		d := newDevice()
		a := open(t, d, pinned.Config{FreeCatchAll: catch})
		s := d.stream(t)
		b := used(t, d, a, s, 64)
		d.failing(intercept.Mark, driver.ErrLost)
		a.Free(b)
		if reused(t, a, b) {
			t.Error("reused though no mark could be taken")
		}
		d.resume(s) // the work is done, but who knows
		if reused(t, a, b) {
			t.Error("reused though no mark could be taken")
		}
		if err := a.Err(); errors.Is(err, driver.ErrLost) == catch {
			t.Errorf("FreeCatchAll %t: Err = %v", catch, err)
		}
		d.healthy()
		a.Free(alloc(t, a, 4096))
		want(t, a, "active_requests.current", 0)
		closeAll(t, a, d)
	}
}

func TestReachedFails(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := used(t, d, a, s, 64)
	a.Free(b)
	d.resume(s)
	d.failing(intercept.Reached, driver.ErrLost)
	if reused(t, a, b) {
		t.Error("reused although it is unknown whether the mark is reached")
	}
	if err := a.Err(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Err = %v", err)
	}
	d.failing(intercept.Sync, driver.ErrLost)
	if err := a.Close(); err != nil { // the mark is reached, whatever Sync says
		t.Error(err)
	}
	d.empty(t)
}

func TestClosedStreamHasDoneItsWork(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s, u := d.stream(t), d.stream(t)
	before, after := used(t, d, a, s, 64), used(t, d, a, u, 64)
	a.Free(before)
	_ = s.Close()
	_ = u.Close()
	a.Free(after)
	a.Free(alloc(t, a, 4096))
	want(t, a, "active_requests.current", 0)
	closeAll(t, a, d)
	if err := a.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
}

// A hasty device does only what package driver promises: the marks of a capture are reached as soon as the capture
// ends, even if work that was queued before it is not done.
type hasty struct{ *device }

func (d hasty) Graphs() driver.Graphs { return hastyGraphs{d.device.Graphs()} }

type hastyGraphs struct{ driver.Graphs }

func (g hastyGraphs) Capturing(s driver.Stream) (bool, error) {
	return g.Graphs.Capturing(s.(hastyStream).Stream)
}

type hastyStream struct {
	driver.Stream
	graphs driver.Graphs
}

const inCapture = 1 << 62

func (s hastyStream) Mark() (driver.Mark, error) {
	if capturing, err := s.graphs.Capturing(s.Stream); capturing || err != nil {
		return driver.Mark{Stream: s.ID(), Tick: inCapture}, err
	}
	return s.Stream.Mark()
}

func (s hastyStream) Reached(m driver.Mark) (bool, error) {
	if m.Tick == inCapture {
		capturing, err := s.graphs.Capturing(s.Stream)
		return !capturing, err
	}
	return s.Stream.Reached(m)
}

// A block is freed while its stream captures other work, and a copy from before the capture is still under way. A mark
// taken at that time is reached when the capture ends, which does not mean that the copy is done.
func TestFreeDuringCapture(t *testing.T) {
	d := hasty{newDevice()}
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := used(t, d.device, a, hastyStream{s, d.device.Graphs()}, 64)
	d.begin(t, s)
	a.Free(b)
	if reused(t, a, b) {
		t.Error("reused during the capture, before the copy")
	}
	_ = d.end(t, s)
	if reused(t, a, b) {
		t.Error("reused after the capture, before the copy")
	}
	d.resume(s)
	a.Free(alloc(t, a, 4096))
	want(t, a, "active_requests.current", 0)
	closeAll(t, a, d.device)
}

func TestReleaseCaptured(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{MaxCachedSize: 64})
	s, u := d.stream(t), d.stream(t)
	capture := func(b mem.Block) {
		d.begin(t, s)
		piece(t, a, b, s)
		_ = d.end(t, s)
	}
	b := alloc(t, a, 64) // still live
	capture(b)
	a.ReleaseCaptured(b)
	a.Free(b)
	if !reused(t, a, b) {
		t.Error("kept though ReleaseCaptured came before Free")
	}
	b = used(t, d, a, u, 64) // waits
	capture(b)
	a.Free(b)
	a.ReleaseCaptured(b)
	if reused(t, a, b) {
		t.Error("ReleaseCaptured ends the wait for a stream")
	}
	d.resume(u)
	a.Free(alloc(t, a, 1))
	want(t, a, "active_requests.current", 0)

	b = used(t, d, a, u, 64) // waited for, then kept
	capture(b)
	a.Free(b)
	d.resume(u)
	if reused(t, a, b) {
		t.Error("reused though a graph has it")
	}
	if err := a.EmptyCache(); err != nil {
		t.Fatal(err)
	}
	want(t, a, "active_requests.current", 1, "allocations.current", 1)
	a.ReleaseCaptured(b)
	if !reused(t, a, b) {
		t.Error("not reused after ReleaseCaptured")
	}
	b = alloc(t, a, 5000) // too large to be cached
	capture(b)
	a.Free(b)
	a.ReleaseCaptured(b)
	want(t, a, "active_requests.current", 0, "allocations.current", 1)
	testkit.Contains(t, testkit.Panic(t, func() { a.ReleaseCaptured(b) }), "pinned: ReleaseCaptured")
	closeAll(t, a, d)
}

func TestCapturingFails(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := alloc(t, a, 64)
	d.failing(intercept.Capturing, driver.ErrLost)
	if err := a.RecordStream(b, s); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Record: %v", err)
	}
	a.Free(b)
	if reused(t, a, b) {
		t.Error("reused though a graph may have it")
	}
	a.ReleaseCaptured(b)
	if reused(t, a, b) {
		t.Error("reused though the stream may have work with it")
	}
	d.healthy()
	if !reused(t, a, b) {
		t.Error("not reused after ReleaseCaptured")
	}
	b = used(t, d, a, s, 64)
	d.failing(intercept.Capturing, driver.ErrLost)
	a.Free(b)
	d.resume(s)
	if reused(t, a, b) || !errors.Is(a.Err(), driver.ErrLost) {
		t.Error("a mark counts that may be of a capture")
	}
	d.healthy()
	closeAll(t, a, d)
}

// ticker passes every pause of the goroutine to the test.
type ticker chan chan time.Time

func (c ticker) after(time.Duration) <-chan time.Time {
	tick := make(chan time.Time)
	c <- tick
	return tick
}

func TestBackgroundThreads(t *testing.T) {
	d := newDevice()
	pauses := make(ticker, 1)
	a := open(t, d, pinned.Config{BackgroundThreads: true, After: pauses.after})
	s, u := d.stream(t), d.stream(t)
	b, c := used(t, d, a, s, 64), used(t, d, a, u, 4096)
	a.Free(b)
	a.Free(c)
	tick := <-pauses // one goroutine for both
	d.resume(s)
	asked := d.CallsOf(intercept.Reached)
	want(t, a, "active_requests.current", 2)
	tick <- time.Time{}
	tick = <-pauses // it has looked and waits again, for u
	want(t, a, "active_requests.current", 1)
	if d.CallsOf(intercept.Reached) == asked {
		t.Error("the goroutine asked no stream")
	}
	asked = d.CallsOf(intercept.Reached)
	if !reused(t, a, b) || d.CallsOf(intercept.Reached) != asked {
		t.Error("Alloc asks streams though the goroutine does and there is a cached block")
	}
	// Before new memory is made, Alloc looks itself.
	d.resume(u)
	if !reused(t, a, c) {
		t.Error("new memory though what waited is done")
	}
	tick <- time.Time{} // nothing waits any more
	a.Free(used(t, d, a, s, 64))
	<-pauses          // of a new goroutine, or the old one if it had not looked yet
	closeAll(t, a, d) // with the goroutine in its endless pause
}

// Once no block waits, the goroutine ends without another pause. It starts again when a block waits.
func TestBackgroundThreadEndsWhenIdle(t *testing.T) {
	others := runtime.NumGoroutine()
	d := newDevice()
	pauses := make(ticker, 1)
	a := open(t, d, pinned.Config{BackgroundThreads: true, After: pauses.after})
	s := d.stream(t)
	for range 3 {
		a.Free(used(t, d, a, s, 64))
		tick := <-pauses
		d.resume(s)
		tick <- time.Time{}
		for runtime.NumGoroutine() > others {
			if len(pauses) > 0 {
				t.Fatal("it went on though nothing waited")
			}
			runtime.Gosched()
		}
	}
	closeAll(t, a, d)
}

// A mark on a stream without work may be reached late, as on real devices. Waits do not depend on a mark that was taken
// too late.
func TestCloseWithoutMarks(t *testing.T) {
	d := newDeviceOf(sim.Options{Completion: sim.OnDemand})
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	b := alloc(t, a, 64)
	piece(t, a, b, s)
	d.failing(intercept.Mark, driver.ErrLost)
	a.Free(b)
	d.healthy()
	closeAll(t, a, d)
}

// Close waits for every block that is freed by then, also if no mark could be taken and others came off the list before.
func TestCloseWaitsForBlocksWithoutMarks(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	d.hold(s)
	var blocks [3]mem.Block
	for i := range blocks {
		blocks[i] = alloc(t, a, 4096)
		piece(t, a, blocks[i], s)
	}
	for i, b := range blocks {
		d.work(t, s)
		if i == 2 {
			d.failing(intercept.Mark, driver.ErrLost)
		}
		a.Free(b)
	}
	d.sim.Advance(s.ID(), 2) // the first work and its mark
	if !reused(t, a, blocks[0]) {
		t.Error("the first block's work is done, and it is not reused")
	}
	want(t, a, "active_requests.current", 2)
	closeAll(t, a, d)
}

// Errors of Free may be noted and read on several goroutines. The race detector checks it.
func TestErrorsOfManyGoroutines(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	s := d.stream(t)
	d.failing(intercept.Mark, driver.ErrLost)
	var wg sync.WaitGroup
	var reported atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 20 {
				b, err := a.Alloc(64)
				if err == nil {
					err = a.RecordStream(b, s)
				}
				if err != nil {
					t.Error(err)
					return
				}
				a.Free(b)
				switch err := a.Err(); {
				case errors.Is(err, driver.ErrLost):
					reported.Add(1)
				case err != nil: // nil: another goroutine was told
					t.Errorf("Err: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := reported.Load(); n < 20 || n > 80 {
		t.Errorf("%d errors of 80 frees are reported", n)
	}
	d.healthy()
	closeAll(t, a, d)
}
