package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// capture returns the graph of the work that f queues on s.
func (b *bench) capture(s driver.Stream, f func()) driver.Graph {
	b.t.Helper()
	b.ok(b.Graphs().Begin(s))
	f()
	g, err := b.Graphs().End(s)
	b.ok(err)
	return g
}

func (b *bench) wants(what string, err, code error, text string) {
	b.t.Helper()
	if !errors.Is(err, code) || !strings.Contains(err.Error(), text) {
		b.t.Errorf("%s: %v, want %q with %q", what, err, code, text)
	}
}

// add returns a kernel that adds n to the byte at an offset.
func (b *bench) add(at int, n byte) driver.Kernel {
	r := []driver.Range{{Ptr: b.p + driver.Pointer(at), Size: 1}}
	return driver.Kernel{Name: "add", Reads: r, Writes: r, Func: func(m driver.Memory) error {
		var c [1]byte
		if err := m.Load(c[:], r[0].Ptr); err != nil {
			return err
		}
		return m.Store(r[0].Ptr, []byte{c[0] + n})
	}}
}

func TestGraphDoesWhatWasCaptured(t *testing.T) {
	for name, opts := range map[string]Options{
		"at once": {}, "on demand": {Completion: OnDemand}, "at random": {Completion: AtRandom, Seed: 3}, "unchecked": {Unchecked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, opts, 3)
			s, side := b.s[1], b.s[2]
			in, out := b.host(1), b.host(1)
			in[0] = 5
			b.ok(s.Fill(b.p, 1, 64))
			b.ok(s.Sync(context.Background()))
			g := b.capture(s, func() {
				b.ok(b.Pinned().CopyInAsync(s, b.p, in))
				b.ok(b.Kernels().Launch(s, b.add(0, 1)))
				b.ok(side.WaitFor(s, b.mark(s)))
				b.ok(side.Copy(b.p+8, b.p, 1))
				b.ok(s.Fill(b.p+16, 0x16, 8))
				b.ok(s.WaitFor(side, b.mark(side)))
				b.ok(b.Pinned().CopyOutAsync(s, out, b.p+8))
			})
			if g.Nodes() != 5 {
				t.Errorf("%d nodes, want 5", g.Nodes())
			}
			b.ok(s.Sync(context.Background()))
			if b.in(0) != 1 || b.in(16) != 1 {
				t.Errorf("capturing did work: %d, %d", b.in(0), b.in(16))
			}
			for _, v := range []byte{5, 9} {
				in[0] = v
				b.ok(g.Launch(b.s[0]))
				b.ok(b.s[0].Sync(context.Background()))
				if b.in(0) != v+1 || b.in(8) != v+1 || b.in(16) != 0x16 || out[0] != v+1 {
					t.Errorf("launched with %d: %d, %d, %d, %d", v, b.in(0), b.in(8), b.in(16), out[0])
				}
			}
		})
	}
}

// For another stream, a launch consists of the captured accesses.
func TestRaceWithAGraph(t *testing.T) {
	b := newBench(t, Options{}, 3)
	b.ok(b.write(b.s[2], 0))
	g := b.capture(b.s[1], func() { // capturing is no access
		b.ok(b.write(b.s[1], 0))
		b.ok(b.read(b.s[1], 64))
	})
	race := b.race(g.Launch(b.s[1]))
	if f, s := race.First, race.Second; f.Stream != 2 || f.Graph != 0 || s.Stream != 1 || s.Graph != 1 || s.Node != 1 ||
		s.Kernel != "write" {
		t.Errorf("%v", race)
	}
	if want := `write of [0x7f0000000000, +64) by kernel "write", piece 1 of graph 1 on stream 1 (call `; !strings.Contains(race.Error(), want) {
		t.Errorf("%v, want %q", race, want)
	}
	b.ok(b.s[1].WaitFor(b.s[2], b.mark(b.s[2])))
	b.ok(g.Launch(b.s[1]))
	if race := b.race(b.write(b.s[2], 64)); race.First.Graph != 1 || race.First.Node != 2 {
		t.Errorf("%v", race)
	}
	b.ok(b.read(b.s[2], 64))
	b.ok(b.s[2].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.write(b.s[2], 0))
	b.race(g.Launch(b.s[1])) // the mark covers one launch
}

// Unordered branches race with each other at each launch. Ordered branches do not.
func TestRaceInsideAGraph(t *testing.T) {
	b := newBench(t, Options{ReportOnly: true}, 4)
	s := b.s[1:]
	fork := func(from, to driver.Stream) { b.ok(to.WaitFor(from, b.mark(from))) }
	g := b.capture(s[0], func() {
		b.ok(b.write(s[0], 0))
		fork(s[0], s[1])
		fork(s[0], s[2])
		b.ok(b.read(s[1], 0))
		b.ok(b.read(s[2], 32))
		b.ok(b.write(s[1], 128))
		fork(s[1], s[2])
		b.ok(b.write(s[2], 128)) // ordered
		b.ok(b.write(s[1], 96))  // not ordered before the next
		b.ok(b.launch(s[2], "both", []int{64}, []int{159 - 64}))
		fork(s[1], s[0])
		fork(s[2], s[0])
		b.ok(b.write(s[0], 0))
	})
	for launch := range 2 {
		b.ok(g.Launch(s[0]))
		if n := len(b.Reports()); n != 3*(launch+1) {
			t.Fatalf("launch %d: %d reports: %v", launch, n, b.Reports())
		}
	}
	race := b.race(b.Reports()[0])
	if race.First.Node >= race.Second.Node || race.First.Seq != race.Second.Seq {
		t.Errorf("%v", race)
	}
}

func TestRaceInsideAGraphRefusesTheLaunch(t *testing.T) {
	b := newBench(t, Options{}, 3)
	g := b.capture(b.s[1], func() {
		b.ok(b.s[2].WaitFor(b.s[1], b.mark(b.s[1])))
		b.ok(b.s[1].Fill(b.p, 1, 100))
		b.ok(b.s[2].Fill(b.p+90, 2, 100))
		b.ok(b.s[1].WaitFor(b.s[2], b.mark(b.s[2])))
	})
	race := b.race(g.Launch(b.s[1]))
	want := driver.Range{Ptr: b.p + 90, Size: 10}
	if race.Range != want || race.First.Node != 1 || race.Second.Node != 2 {
		t.Errorf("%v, want %v", race, want)
	}
	b.ok(b.write(b.s[0], 0)) // nothing was launched
}

// Launches of one graph run one after another, on any streams, and programs may rely on this.
func TestLaunchesOfOneGraphDoNotOverlap(t *testing.T) {
	b := newBench(t, Options{}, 3)
	b.ok(b.s[1].Fill(b.p, 0, 64))
	b.ok(b.s[1].Sync(context.Background()))
	g := b.capture(b.s[1], func() { b.ok(b.Kernels().Launch(b.s[1], b.add(0, 1))) })
	b.Hold(1)
	b.ok(g.Launch(b.s[1]))
	b.ok(g.Launch(b.s[2]))
	if b.Pending(2) != 2 {
		t.Errorf("%d pending, want a wait and a launch", b.Pending(2))
	}
	b.ok(b.s[2].Sync(context.Background()))
	if b.in(0) != 2 {
		t.Errorf("%d launches counted, want 2", b.in(0))
	}
	b.ok(b.write(b.s[2], 0)) // after both
}

func TestWhatACaptureRefuses(t *testing.T) {
	b := newBench(t, Options{}, 4)
	s, side, other := b.s[1], b.s[2], b.s[3]
	b.ok(other.Fill(b.p, 1, 64))
	outside := b.mark(other)
	g := b.Graphs()
	b.wants("Begin on the default stream", g.Begin(b.s[0]), driver.ErrCapturing, "default stream")
	old := b.capture(s, func() {})
	b.ok(g.Begin(s))
	mark := b.mark(s)
	b.ok(g.Begin(other))
	b.ok(other.Fill(b.p, 2, 64))
	foreign := b.mark(other)
	mem := b.host(8)
	for name, f := range map[string]func() error{
		"Begin":                     func() error { return g.Begin(s) },
		"Sync":                      func() error { return s.Sync(context.Background()) },
		"CopyIn":                    func() error { return s.CopyIn(b.p, []byte{1}) },
		"CopyIn of pinned memory":   func() error { return s.CopyIn(b.p, mem) },
		"CopyOut":                   func() error { return s.CopyOut(mem, b.p) },
		"Close":                     func() error { return s.Close() },
		"Stamp":                     func() error { _, err := b.Timing().Stamp(s); return err },
		"Launch of a graph":         func() error { return old.Launch(s) },
		"WaitFor a mark outside":    func() error { return s.WaitFor(other, outside) },
		"WaitFor another capture":   func() error { return s.WaitFor(other, foreign) },
		"drawing in the default":    func() error { return b.s[0].WaitFor(s, mark) },
		"an ordinary stream's sync": func() error { return other.Sync(context.Background()) },
	} {
		b.wants(name, f(), driver.ErrCapturing, "")
	}
	b.wants("ordinary memory", b.Pinned().CopyInAsync(s, b.p, make([]byte, 8)), driver.ErrInvalid, "page-locked")
	_, err := g.End(side)
	b.wants("End of no capture", err, driver.ErrInvalid, "no capture began on stream 2")
	// What is known to be done needs no wait, and all of the rest goes on.
	b.ok(s.WaitFor(s, mark))
	b.ok(s.WaitFor(other, driver.Mark{Stream: other.ID()}))
	b.ok(side.Sync(context.Background()))
	p, err := b.Alloc(64)
	b.ok(err)
	b.ok(b.Free(p)) // the device waits for what is queued: now the mark of before is known
	b.ok(s.WaitFor(other, outside))
	for _, c := range []driver.Stream{s, other} {
		if ok, err := g.Capturing(c); !ok || err != nil {
			t.Errorf("stream %d: capturing %v, %v", c.ID(), ok, err)
		}
		_, err := g.End(c)
		b.ok(err)
		if ok, err := g.Capturing(c); ok || err != nil {
			t.Errorf("stream %d after End: capturing %v, %v", c.ID(), ok, err)
		}
	}
	if n := len(b.Reports()); n != 0 {
		t.Errorf("reports: %v", b.Reports())
	}
}

func TestForksMustBeJoined(t *testing.T) {
	b := newBench(t, Options{}, 4)
	g, s := b.Graphs(), b.s[1:]
	for name, f := range map[string]func(){
		"never waited for": func() {},
		"work after the wait": func() {
			b.ok(s[0].WaitFor(s[1], b.mark(s[1])))
			b.ok(s[1].Fill(b.p, 1, 1))
		},
		"an old mark waited for": func() {
			m := b.mark(s[1])
			b.ok(s[1].Fill(b.p, 1, 1))
			b.ok(s[0].WaitFor(s[1], m))
		},
	} {
		b.ok(g.Begin(s[0]))
		b.ok(s[1].WaitFor(s[0], b.mark(s[0])))
		if ok, err := g.Capturing(s[1]); !ok || err != nil {
			t.Errorf("%s: drawn in: %v, %v", name, ok, err)
		}
		_, err := g.End(s[1])
		b.wants(name+": End on the side", err, driver.ErrInvalid, "no capture began on stream 2")
		f()
		_, err = g.End(s[0])
		b.wants(name, err, driver.ErrInvalid, "the capture failed: stream 1 did not wait, at last, for what was drawn in: stream 2")
		for _, c := range s[:2] {
			b.ok(c.Sync(context.Background()))
		}
	}
	made := b.capture(s[0], func() { // by way of a third
		b.ok(s[1].WaitFor(s[0], b.mark(s[0])))
		b.ok(s[1].Fill(b.p, 1, 1))
		b.ok(s[2].WaitFor(s[1], b.mark(s[1])))
		b.ok(s[0].WaitFor(s[2], b.mark(s[2])))
	})
	b.ok(made.Launch(b.s[0]))
}

// A mark of a capture is not reached before the capture ends, and a query of it makes no call. Afterwards it covers the
// work that was queued before the capture.
func TestMarksInACapture(t *testing.T) {
	b := newBench(t, Options{}, 3)
	s := b.s[1]
	b.ok(b.Graphs().Begin(s))
	b.Hold(1)
	m := b.mark(s)
	before := b.Calls()
	if ok, err := s.Reached(m); ok || err != nil {
		t.Errorf("while it lasts: reached %v, %v", ok, err)
	}
	if b.Calls() != before {
		t.Error("asking was a call")
	}
	_, err := b.Graphs().End(s)
	b.ok(err)
	if ok, err := s.Reached(m); !ok || err != nil {
		t.Errorf("afterwards: reached %v, %v", ok, err)
	}
	b.ok(b.s[2].WaitFor(s, m)) // draws nothing in
	if ok, err := b.Graphs().Capturing(b.s[2]); ok || err != nil {
		t.Errorf("capturing %v, %v", ok, err)
	}
	b.ok(s.Fill(b.p, 1, 1))
	b.ok(b.Graphs().Begin(s))
	m = b.mark(s)
	_, err = b.Graphs().End(s)
	b.ok(err)
	if ok, err := s.Reached(m); ok || err != nil {
		t.Errorf("with work before the capture: reached %v, %v", ok, err)
	}
}

// A launch resolves addresses when it runs, not when they were captured.
func TestGraphsFollowTheMemory(t *testing.T) {
	b := newBench(t, Options{}, 2)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	at, err := vm.Reserve(size)
	b.ok(err)
	s := b.s[1]
	g := b.capture(s, func() { b.ok(s.Fill(at, 7, 1)) })
	mem := b.host(8)
	copying := b.capture(s, func() { b.ok(b.Pinned().CopyInAsync(s, b.p, mem)) })
	two, err := vm.Reserve(2 * size) // addresses of one page: only a launch can see that
	b.ok(err)
	alias := two + driver.Pointer(size)
	overlapping := b.capture(s, func() { b.ok(s.Copy(alias, two+1, 2)) })
	access := (*AccessError)(nil)
	if err := g.Launch(s); !errors.As(err, &access) || access.Kind != NotMapped || access.Access.Graph != 1 {
		t.Errorf("nothing mapped: %v", err)
	}
	for range 2 {
		page, err := vm.Create(size)
		b.ok(err)
		b.ok(vm.Map(at, page))
		b.ok(g.Launch(s))
		var got [1]byte
		b.ok(s.CopyOut(got[:], at))
		if got[0] != 7 {
			t.Errorf("%d in the page, want 7", got[0])
		}
		b.ok(vm.Unmap(at, size))
		b.ok(vm.Drop(page))
	}
	b.ok(copying.Launch(s))
	b.ok(b.Pinned().FreeHost(mem))
	b.wants("freed host memory", copying.Launch(s), driver.ErrInvalid, "page-locked")
	page, err := vm.Create(size)
	b.ok(err)
	b.ok(vm.Map(two, page))
	b.ok(vm.Map(alias, page))
	b.ok(s.Fill(two, 1, 8))
	b.wants("overlap", overlapping.Launch(s), driver.ErrInvalid, "piece 1 of graph 3")
	b.wants("overlap", s.Copy(alias, two+1, 2), driver.ErrInvalid, "overlap")
}

func TestGraphsAreOwnedAndCost(t *testing.T) {
	b := newBench(t, Options{}, 2)
	s, m := b.s[1], b.model
	start := b.Now()
	b.ok(b.Graphs().Begin(s))
	for range 3 {
		b.ok(s.Fill(b.p, 1, 1<<20))
	}
	g, err := b.Graphs().End(s)
	b.ok(err)
	want := m.Calls[CallBeginCapture].At(0) + 3*m.Calls[CallFill].At(0) + m.Calls[CallEndCapture].At(3)
	if got := b.Now() - start; got != want {
		t.Errorf("capturing took %v, want %v", got, want)
	}
	start = b.Now()
	b.ok(g.Launch(s))
	want = m.Calls[CallLaunchGraph].At(3) + 3*(m.Calls[CallFill].At(1<<20)-m.Calls[CallFill].At(0))
	if got := b.Now() - start; got != want {
		t.Errorf("a launch took %v, want %v", got, want)
	}
	other := b.capture(s, func() {})
	if got := b.Leaks().Graphs; !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("leaks %v", got)
	}
	b.ok(g.Close())
	b.ok(g.Close())
	b.wants("Launch after Close", g.Launch(s), driver.ErrClosed, "graph 1")
	if got := b.Leaks().Graphs; !slices.Equal(got, []uint64{2}) {
		t.Errorf("leaks %v", got)
	}
	b.ok(b.Graphs().Begin(s))
	b.ok(b.Close())
	if got := b.Leaks(); !slices.Equal(got.Graphs, []uint64{2}) || !strings.Contains(got.String(), "graphs [2]") {
		t.Errorf("leaks %v", got)
	}
	b.wants("Launch", other.Launch(s), driver.ErrClosed, "device")
	_, err = b.Graphs().End(s)
	b.wants("End", err, driver.ErrClosed, "device")
	_, err = b.Graphs().Capturing(s)
	b.wants("Capturing", err, driver.ErrClosed, "closed")
}

func TestBugsInCapturesPanic(t *testing.T) {
	b, other := newBench(t, Options{}, 2), newBench(t, Options{}, 1)
	b.ok(b.Graphs().Begin(b.s[1]))
	for name, f := range map[string]func(){
		"a negative range":   func() { _ = b.s[1].Fill(b.p, 0, -1) },
		"a negative kernel":  func() { _ = b.Kernels().Launch(b.s[1], driver.Kernel{Reads: []driver.Range{{Size: -1}}}) },
		"a foreign stream":   func() { _ = b.Graphs().Begin(other.s[0]) },
		"Capturing of nil":   func() { _, _ = b.Graphs().Capturing(nil) },
		"AllocHost(0)":       func() { _, _ = b.Pinned().AllocHost(0) },
		"Stamp on no stream": func() { _, _ = b.Timing().Stamp(nil) },
	} {
		testkit.WantPanic(t, name, "driver/sim: ", f)
	}
	g, err := b.Graphs().End(b.s[1])
	b.ok(err)
	if g.Nodes() != 0 {
		t.Errorf("%d nodes", g.Nodes())
	}
}
