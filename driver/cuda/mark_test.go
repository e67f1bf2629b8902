//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestMarksWithoutWorkCostNothing: one event is recorded for any number of marks, and none is asked twice.
func TestMarksWithoutWorkCostNothing(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	if mark := markOf(t, s); mark.Tick != 0 || m.Calls("cuEventRecord") != 0 || !reached(t, s, mark) {
		t.Errorf("the mark of a new stream is %+v, %d events recorded", mark, m.Calls("cuEventRecord"))
	}
	testkit.Must(t, s.Fill(p, 1, 64))
	first := markOf(t, s)
	for range 10 {
		if again := markOf(t, s); again != first {
			t.Errorf("%+v after %+v, without work between", again, first)
		}
	}
	if n := m.Calls("cuEventRecord"); n != 1 {
		t.Errorf("%d events recorded, want 1", n)
	}
	syncOf(t, s)
	before := m.Calls("cuEventQuery")
	for range 10 {
		if !reached(t, s, first) {
			t.Error("not reached after Sync")
		}
	}
	testkit.Must(t, d.zero.WaitFor(s, first))
	if n := m.Calls("cuEventQuery"); n != before || m.Calls("cuStreamWaitEvent") != 0 {
		t.Errorf("%d queries and %d waits for a mark known to be reached", n-before, m.Calls("cuStreamWaitEvent"))
	}
	testkit.Must(t, d.Free(p))
}

// TestSyncSparesTheNextMark: after Sync all is done, and a mark of it needs no event.
func TestSyncSparesTheNextMark(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	testkit.Must(t, s.Fill(p, 1, 64))
	syncOf(t, s)
	if mark := markOf(t, s); !reached(t, s, mark) || m.Calls("cuEventRecord") != 0 {
		t.Errorf("mark %+v, %d events recorded", mark, m.Calls("cuEventRecord"))
	}
	before := m.Calls("cuStreamSynchronize")
	syncOf(t, s)
	if n := m.Calls("cuStreamSynchronize") - before; n != 0 {
		t.Errorf("an idle stream was synchronised %d times", n)
	}
	testkit.Must(t, d.Free(p))
}

// TestEventsAreUsedAgain: a long history needs few events.
func TestEventsAreUsedAgain(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	for range 500 {
		testkit.Must(t, s.Fill(p, 1, 64))
		mark := markOf(t, s)
		syncOf(t, s)
		if !reached(t, s, mark) {
			t.Fatal("not reached after Sync")
		}
	}
	if n := m.Calls("cuEventCreate"); n > 2 {
		t.Errorf("%d events made for one mark at a time", n)
	}
	testkit.Must(t, d.Free(p))
}

// TestTheRingGrowsWithWhatIsNotDone, and with nothing else: marks that are never asked about do not make it grow.
func TestTheRingGrowsWithWhatIsNotDone(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	m.Hold(uint64(s.handle))
	marks := make([]driver.Mark, 300)
	for i := range marks {
		testkit.Must(t, s.Fill(p, byte(i), 64))
		marks[i] = markOf(t, s)
	}
	if len(s.marks.ring) < 300 || reached(t, s, marks[0]) {
		t.Errorf("ring of %d, the first mark reached: %v", len(s.marks.ring), reached(t, s, marks[0]))
	}
	for range 2 * 150 { // a fill and the record of its event
		m.Step(uint64(s.handle))
	}
	for i, mark := range marks {
		if got := reached(t, s, mark); got != (i < 150) {
			t.Fatalf("after 150 of 300 fills: mark %d reached: %v", i, got)
		}
	}
	m.Release(uint64(s.handle))
	if !eventually(func() bool { return reached(t, s, marks[299]) }) {
		t.Fatal("the last mark is not reached")
	}
	if s.marks.n != 0 || s.marks.passed.Load() != 300 {
		t.Errorf("%d marks in the ring, %d passed", s.marks.n, s.marks.passed.Load())
	}
	grown := len(s.marks.ring)
	for range 4 * grown {
		testkit.Must(t, s.Fill(p, 1, 64))
		markOf(t, s)
		for m.Step(uint64(s.handle)) { // all work is done, and no call asks
		}
	}
	if n := m.Calls("cuEventCreate"); n > grown+1 || len(s.marks.ring) != grown {
		t.Errorf("%d events and a ring of %d, for work that is done at once: want %d at most", n, len(s.marks.ring), grown)
	}
	testkit.Must(t, d.Free(p))
}

// TestForeignMarksAreAlwaysRecorded: the driver does not see work queued by others.
func TestForeignMarksAreAlwaysRecorded(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	theirs := newTestStream(t, d)
	s, err := d.NewStream(driver.StreamOptions{Foreign: uintptr(theirs.handle)})
	testkit.Must(t, err)
	p := alloc(t, d, 64)
	m.Hold(uint64(theirs.handle))
	testkit.Must(t, theirs.Fill(p, 1, 64))
	mark := markOf(t, s.(*stream))
	if reached(t, s.(*stream), mark) || mark.Tick == 0 {
		t.Errorf("mark %+v is reached before work that others queued", mark)
	}
	m.Release(uint64(theirs.handle))
	testkit.Must(t, s.Sync(context.Background()))
	if !reached(t, s.(*stream), mark) {
		t.Error("not reached after Sync")
	}
	testkit.Must(t, s.Close())
	testkit.Must(t, theirs.Fill(p, 1, 64)) // Close of ours has not ended it
	syncOf(t, theirs)
	testkit.Must(t, d.Free(p))
}

func TestForeignStreams(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d, other := openOn(t, m, "0"), openOn(t, m, "1")
	_, err := d.NewStream(driver.StreamOptions{Foreign: 2})
	wantErr(t, "the per-thread default stream", err, driver.ErrInvalid, "per-thread")
	_, err = d.NewStream(driver.StreamOptions{Foreign: uintptr(newTestStream(t, other).handle)})
	wantErr(t, "a stream of another device", err, driver.ErrInvalid, "context")
	s, err := d.NewStream(driver.StreamOptions{Foreign: 1})
	testkit.Must(t, err)
	p := alloc(t, d, 64)
	testkit.Must(t, s.Fill(p, 1, 64))
	testkit.Must(t, s.Sync(context.Background()))
	testkit.Must(t, s.Close())
	testkit.Must(t, d.Free(p))
}

func TestPrioritiesAreClamped(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	for _, c := range []struct{ ask, want int }{{0, 0}, {-1, -1}, {-99, d.first}, {99, d.last}} {
		s, err := d.NewStream(driver.StreamOptions{Priority: c.ask})
		testkit.Must(t, err)
		testkit.Must(t, d.enter("test"))
		got, r := d.lib.StreamPriority(s.(*stream).handle)
		d.leave()
		if r != 0 || got != c.want {
			t.Errorf("priority %d became %d, want %d", c.ask, got, c.want)
		}
	}
}

// TestSyncEndsWithItsContext, and the work goes on; many waits that end early leave one waiter.
func TestSyncEndsWithItsContext(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	d := openOn(t, m, "")
	s := newTestStream(t, d)
	p := alloc(t, d, 64)
	m.Hold(uint64(s.handle))
	testkit.Must(t, s.Fill(p, 1, 64))
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		err := s.Sync(ctx)
		wantErr(t, "Sync", err, context.Canceled)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = s.Sync(ctx) })
	}
	time.AfterFunc(time.Millisecond, func() { m.Release(uint64(s.handle)) })
	wg.Wait()
	testkit.Must(t, errors.Join(errs...))
	if !reached(t, s, markOf(t, s)) {
		t.Error("not reached after Sync")
	}
	if n := m.Calls("cuEventSynchronize"); n > 1 {
		t.Errorf("%d waiters for one piece of work", n)
	}
	testkit.Must(t, d.Free(p))
}

// TestCapturedMarks are not reached while the capture goes on, and asking about them makes no call.
func TestCapturedMarks(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	a, b := newTestStream(t, d), newTestStream(t, d)
	p := alloc(t, d, 128)
	m.Hold(uint64(a.handle))
	testkit.Must(t, a.Fill(p, 1, 64))
	before := markOf(t, a)
	testkit.Must(t, d.Graphs().Begin(a))
	testkit.Must(t, a.Fill(p, 2, 64))
	in := markOf(t, a)
	testkit.Must(t, b.WaitFor(a, in)) // draws b in
	testkit.Must(t, b.Fill(p+64, 3, 64))
	queries := m.Calls("cuEventQuery")
	if reached(t, a, in) || m.Calls("cuEventQuery") != queries {
		t.Errorf("a captured mark: reached, or %d queries", m.Calls("cuEventQuery")-queries)
	}
	wantErr(t, "Sync of a stream that captures", a.Sync(context.Background()), driver.ErrCapturing)
	wantErr(t, "Sync of a stream that was drawn in", b.Sync(context.Background()), driver.ErrCapturing)
	wantErr(t, "Close of a stream that captures", a.Close(), driver.ErrCapturing)
	wantErr(t, "WaitFor an ordinary mark", a.WaitFor(d.zero, func() driver.Mark {
		m.Hold(0)
		testkit.Must(t, d.zero.Fill(p, 1, 1))
		return markOf(t, d.zero)
	}()), driver.ErrCapturing)
	m.Release(0)
	testkit.Must(t, a.WaitFor(b, markOf(t, b)))
	g, err := d.Graphs().End(a)
	testkit.Must(t, err)
	if reached(t, a, in) {
		t.Error("a captured mark is reached, though the work before the capture is not")
	}
	m.Release(uint64(a.handle))
	syncOf(t, a)
	for _, mark := range []driver.Mark{before, in} {
		if !reached(t, a, mark) {
			t.Errorf("mark %+v is not reached after the capture and Sync", mark)
		}
	}
	testkit.Must(t, d.zero.WaitFor(b, driver.Mark{Stream: b.id, Tick: b.marks.last}))
	testkit.Must(t, g.Launch(b))
	syncOf(t, b)
	testkit.Must(t, g.Close())
	testkit.Must(t, d.Free(p))
}

// TestAForeignCaptureIsNoticed: other code captures on its stream without telling us.
func TestAForeignCaptureIsNoticed(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	theirs := newTestStream(t, d)
	s, err := d.NewStream(driver.StreamOptions{Foreign: uintptr(theirs.handle)})
	testkit.Must(t, err)
	ours := s.(*stream)
	testkit.Must(t, d.Graphs().Begin(theirs))
	mark := markOf(t, ours)
	if reached(t, ours, mark) {
		t.Error("a mark in a capture of others is reached")
	}
	wantErr(t, "Sync", s.Sync(context.Background()), driver.ErrCapturing)
	g, err := d.Graphs().End(theirs)
	testkit.Must(t, err)
	testkit.Must(t, s.Sync(context.Background()))
	if !reached(t, ours, mark) {
		t.Error("the mark is not reached after the capture and Sync")
	}
	testkit.Must(t, g.Close())
	testkit.Must(t, s.Close())
}

// TestMisusePanics: calls that only a bug can make.
func TestMisusePanics(t *testing.T) {
	m := newMachine(t, fakecuda.Options{})
	d := openOn(t, m, "")
	a, b := newTestStream(t, d), newTestStream(t, d)
	p := alloc(t, d, 4096)
	for what, call := range map[string]func(){
		"a mark of another stream":          func() { _, _ = a.Reached(driver.Mark{Stream: b.ID()}) },
		"a mark of no stream":               func() { _ = a.WaitFor(b, driver.Mark{Stream: 99}) },
		"a mark that was not taken yet":     func() { _, _ = a.Reached(driver.Mark{Stream: a.ID(), Tick: 1 << 40}) },
		"a typed nil stream":                func() { _ = a.WaitFor((*stream)(nil), driver.Mark{}) },
		"a size that makes no sense":        func() { _ = a.Fill(p, 0, -1) },
		"an allocation that makes no sense": func() { _, _ = d.Alloc(0) },
	} {
		testkit.WantPanic(t, what, "driver/cuda: ", call)
	}
	testkit.Must(t, a.Copy(p, p+8, 8)) // side by side
	syncOf(t, a)
	testkit.Must(t, d.Free(p))
}

// eventually asks until the answer is yes: the machine does one piece of work a question.
func eventually(yes func() bool) bool {
	for range 10_000 {
		if yes() {
			return true
		}
	}
	return false
}
