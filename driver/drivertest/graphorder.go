package drivertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// What is known of the order of captured work before there is a graph: Graphs.Ordered.

// ordered fails the test unless the device says want of the work before a mark and what s captures next.
func (k *capturer) ordered(want bool, what string, other driver.Stream, m driver.Mark, s driver.Stream) {
	k.t.Helper()
	if got, err := k.Ordered(other, m, s); got != want || err != nil {
		k.t.Errorf("%s: tick %d of stream %d before stream %d: %v, %v; want %v", what, m.Tick, m.Stream, s.ID(), got,
			err, want)
	}
}

// testGraphOrder asks about forks and joins, through one stream or many, and about what is no work of the capture.
func testGraphOrder(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	k.set(k.a, 5, 1)
	before := mustMark(t, k.a)
	beforeOfB := mustMark(t, k.b)
	syncAll(t, k.a, k.b)
	k.ordered(false, "without a capture", k.a, before, k.a)
	k.ordered(false, "without a capture", k.a, before, k.b)

	var forked, drawn, late driver.Mark
	g := k.capture(6, func() {
		k.ordered(false, "a mark of before the capture", k.a, before, k.a)
		k.ordered(true, "no work", k.a, mustMark(t, k.a), k.a)
		k.set(k.a, 0, 11)
		forked = mustMark(t, k.a)
		k.ordered(true, "its own work", k.a, forked, k.a)
		k.ordered(false, "a stream outside", k.a, forked, k.b)
		testkit.Must(t, k.b.WaitFor(k.a, forked))
		testkit.Must(t, k.c.WaitFor(k.a, forked))
		k.ordered(true, "the fork", k.a, forked, k.b)
		k.ordered(false, "a mark of before the stream was drawn in", k.b, beforeOfB, k.a)
		k.ordered(true, "a stream without work of its own", k.b, mustMark(t, k.b), k.a)
		k.ordered(true, "a stream without work of its own", k.b, mustMark(t, k.b), k.c)
		k.move(k.a, 3, 0)
		k.ordered(false, "work after the fork", k.a, mustMark(t, k.a), k.b)
		k.ordered(true, "the fork, later", k.a, forked, k.c)

		k.move(k.b, 1, 0)
		drawn = mustMark(t, k.b)
		k.move(k.c, 2, 0)
		late = mustMark(t, k.c)
		k.ordered(false, "before the join", k.b, drawn, k.a)
		k.move(k.b, 4, 0)
		testkit.Must(t, k.c.WaitFor(k.b, drawn)) // 4 is not joined by this, nor a
		k.ordered(true, "a join of two others", k.b, drawn, k.c)
		k.ordered(false, "a join of two others", k.b, drawn, k.a)
		k.ordered(false, "work after the mark that was waited for", k.b, mustMark(t, k.b), k.c)
		k.ordered(false, "the other way", k.c, late, k.b)
		k.fork(k.a, k.c)
		k.ordered(true, "a join through another", k.b, drawn, k.a)
		k.ordered(true, "the join", k.c, late, k.a)
		k.ordered(false, "one of two joins", k.b, mustMark(t, k.b), k.a)
		k.fork(k.a, k.b)
		k.ordered(true, "the last join", k.b, mustMark(t, k.b), k.a)
		k.ordered(false, "work of the one that joined", k.a, mustMark(t, k.a), k.b)
		k.set(k.a, 5, 12)
		k.ordered(true, "work after the join changes nothing", k.b, drawn, k.a)
	})
	for _, m := range []driver.Mark{before, forked} {
		k.ordered(false, "after End", k.a, m, k.a)
	}
	k.ordered(false, "after End", k.b, drawn, k.a)
	k.capturingAgain(forked, drawn)

	testkit.Must(t, g.Launch(k.a))
	k.holds(k.a, 11, 11, 11, 11, 11, 12)
	testkit.Must(t, g.Close())
	k.chained()
	k.orderMisuse()
	k.finish()
}

// capturingAgain asks about marks of one capture in another one, and in two that go on at once.
func (k *capturer) capturingAgain(forked, drawn driver.Mark) {
	k.t.Helper()
	g := k.capture(1, func() {
		k.ordered(false, "a mark of another capture that has ended", k.a, forked, k.a)
		k.fork(k.b, k.a)
		k.ordered(false, "a mark of another capture that has ended", k.b, drawn, k.b)
		k.set(k.a, 5, 12)
		own := mustMark(k.t, k.a)
		testkit.Must(k.t, k.Begin(k.c))
		k.ordered(false, "another capture", k.a, own, k.c)
		k.ordered(false, "another capture", k.c, mustMark(k.t, k.c), k.a)
		k.ordered(true, "its own capture", k.a, own, k.a)
		other, err := k.End(k.c)
		testkit.Must(k.t, err)
		testkit.Must(k.t, other.Close())
		k.ordered(false, "an ordinary stream again", k.a, own, k.c)
		k.fork(k.a, k.b)
	})
	testkit.Must(k.t, g.Close())
}

// chained hands work on through ten streams, and asks of each about each.
func (k *capturer) chained() {
	k.t.Helper()
	streams := []driver.Stream{k.a}
	for range 9 {
		s := NewStream(k.t, k.d)
		streams = append(streams, s)
	}
	var marks []driver.Mark
	k.reset()
	g := k.capture(len(streams), func() {
		for i, s := range streams {
			if i > 0 {
				testkit.Must(k.t, s.WaitFor(streams[i-1], marks[i-1]))
			}
			k.set(s, 0, byte(100+i))
			marks = append(marks, mustMark(k.t, s))
		}
		for i, from := range streams {
			for j, to := range streams {
				k.ordered(i <= j, "a chain", from, marks[i], to)
			}
		}
		testkit.Must(k.t, k.a.WaitFor(streams[9], marks[9]))
		for i, from := range streams {
			k.ordered(true, "the chain's end", from, marks[i], k.a)
		}
	})
	testkit.Must(k.t, g.Launch(k.b))
	k.holds(k.b, 109, 2)
	testkit.Must(k.t, g.Close())
	for _, s := range streams[1:] {
		testkit.Must(k.t, s.Close())
	}
}

// orderMisuse: what is no question is a bug.
func (k *capturer) orderMisuse() {
	k.t.Helper()
	m := mustMark(k.t, k.a)
	for what, call := range map[string]func() error{
		"Ordered of a nil stream":     func() error { _, err := k.Ordered(nil, m, k.a); return err },
		"Ordered before a nil stream": func() error { _, err := k.Ordered(k.a, m, nil); return err },
		"Ordered of another stream's": func() error { _, err := k.Ordered(k.b, m, k.a); return err },
		"Ordered of a mark not yet taken": func() error {
			_, err := k.Ordered(k.a, driver.Mark{Stream: m.Stream, Tick: 1 << 40}, k.a)
			return err
		},
	} {
		wantPanic(k.t, what, call)
	}
	s := NewStream(k.t, k.d)
	testkit.Must(k.t, s.Close())
	_, err := k.Ordered(k.a, m, s)
	WantErr(k.t, "Ordered before a stream that is closed", err, driver.ErrClosed)
}

// testGraphOrderRandom captures random work, waits and marks on five streams, and asks about every mark again and
// again. The model keeps sets of pieces of work. Histories depend on the seeds alone, so devices that agree with the
// model agree with each other.
func testGraphOrderRandom(t *testing.T, open openFunc) {
	k := openCapturer(t, open)
	if k == nil {
		return
	}
	streams := []driver.Stream{k.a, k.b, k.c}
	for range 2 {
		s := NewStream(t, k.d)
		streams = append(streams, s)
	}
	answers := map[bool]int{}
	for seed := range uint64(80) {
		h := &captured{k: k, rng: rand.New(rand.NewPCG(seed, 2)), streams: streams, known: make([]works, len(streams))}
		syncAll(t, streams...) // nothing is queued on a stream when it is drawn in
		testkit.Must(t, k.Begin(k.a))
		h.known[0] = works{}
		for range 60 {
			h.step(answers)
		}
		if seed%2 == 0 {
			for i := 1; i < len(streams); i++ {
				if h.known[i] != nil {
					k.fork(k.a, streams[i])
				}
			}
		}
		g, err := k.End(k.a)
		if g != nil {
			testkit.Must(t, g.Close())
		}
		if seed%2 == 0 && err != nil {
			t.Errorf("seed %d: End: %v", seed, err)
		}
		for _, m := range h.marks {
			k.ordered(false, "after End", streams[m.stream], m.mark, k.a)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if answers[true] < 1000 || answers[false] < 800 {
		t.Errorf("yes %d times and no %d times: the test is one-sided", answers[true], answers[false])
	}
	k.finish()
}

// A captured is a random capture with its model: for each stream, nil until it is drawn in, the work that comes before
// what it captures next.
type captured struct {
	k       *capturer
	rng     *rand.Rand
	streams []driver.Stream
	known   []works
	works   int
	marks   []capturedMark
}

type capturedMark struct {
	stream int
	mark   driver.Mark
	known  works
}

type works map[int]bool

func (w works) with(other works) works {
	sum := works{}
	for _, set := range []works{w, other} {
		for n := range set {
			sum[n] = true
		}
	}
	return sum
}

func (w works) holds(other works) bool {
	for n := range other {
		if !w[n] {
			return false
		}
	}
	return true
}

func (h *captured) step(answers map[bool]int) {
	h.k.t.Helper()
	i := h.rng.IntN(len(h.streams))
	s := h.streams[i]
	switch h.rng.IntN(4) {
	case 0:
		if h.known[i] != nil {
			h.k.set(s, i, 1)
			h.known[i] = h.known[i].with(works{h.works: true})
			h.works++
		}
	case 1:
		if h.known[i] != nil {
			h.marks = append(h.marks, capturedMark{i, mustMark(h.k.t, s), h.known[i]})
		}
	case 2:
		if len(h.marks) > 0 {
			m := h.marks[h.rng.IntN(len(h.marks))]
			testkit.Must(h.k.t, s.WaitFor(h.streams[m.stream], m.mark))
			if h.known[i] != nil || m.stream != i {
				h.known[i] = h.known[i].with(m.known)
			}
		}
	case 3:
		for _, m := range h.marks {
			want := h.known[i] != nil && h.known[i].holds(m.known)
			answers[want]++
			h.k.ordered(want, fmt.Sprintf("work %d", h.works), h.streams[m.stream], m.mark, s)
		}
	}
}
