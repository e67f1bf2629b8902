//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// TestOrderedAfterAnyHistory: whatever was asked of streams before, and in captures that ended or failed, a stream that
// has joined comes first exactly if nothing is left of what was queued on it before it was drawn in.
func TestOrderedAfterAnyHistory(t *testing.T) {
	var fresh [8]byte
	if _, err := cryptorand.Read(fresh[:]); err != nil {
		t.Fatal(err)
	}
	seed := binary.LittleEndian.Uint64(fresh[:])
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, fakecuda.Options{Pace: fakecuda.AtOnce})
	theirs, ours := foreignCapture(r)
	p := r.alloc(64)
	h := &orderHistory{rig: r, rng: rng, p: p, theirs: theirs, streams: []*stream{r.stream(), r.stream(), r.stream(), ours}}
	h.held, h.work = make([]bool, len(h.streams)), make([]bool, len(h.streams))
	h.marks = make([][]driver.Mark, len(h.streams))
	t.Cleanup(h.release) // before the device is closed
	for round := range 1500 {
		for range rng.IntN(8) {
			h.before()
		}
		h.ask()
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
	if h.yes < 500 || h.no < 500 {
		t.Errorf("seed %d: yes %d times and no %d times: the test is one-sided", seed, h.yes, h.no)
	}
	h.release()
	r.ok(r.d.Free(p))
}

// An orderHistory is streams, the last of which is also theirs, with what was asked of them.
type orderHistory struct {
	*rig
	rng     *rand.Rand
	p       driver.Pointer
	theirs  *stream
	streams []*stream
	held    []bool
	work    []bool          // more than events was queued since the stream was idle last
	marks   [][]driver.Mark // taken outside of captures
	yes, no int
}

func (h *orderHistory) hold(i int, hold bool) {
	if h.held[i] = hold; hold {
		h.m.Hold(uint64(h.streams[i].handle))
	} else {
		h.m.Release(uint64(h.streams[i].handle))
	}
}

func (h *orderHistory) release() {
	for i := range h.streams {
		h.hold(i, false)
	}
}

// queued is how much is left to do on all streams.
func (h *orderHistory) queued() int {
	n := 0
	for _, s := range h.streams {
		n += h.m.Queued(uint64(s.handle))
	}
	return n
}

// idle reports whether a stream has nothing left to do.
func (h *orderHistory) idle(i int) bool {
	for before := -1; before != h.queued(); { // what waits for streams that were released goes on, and what waits for that
		before = h.queued()
		for j, held := range h.held {
			h.hold(j, held)
		}
	}
	if h.m.Queued(uint64(h.streams[i].handle)) > 0 {
		return false
	}
	h.work[i] = false
	return true
}

// before asks something of a stream outside of captures, or in one that it ends.
func (h *orderHistory) before() {
	h.Helper()
	for i := range h.streams {
		h.idle(i) // so that work that is done by now is not counted as left behind what comes
	}
	i := h.rng.IntN(len(h.streams))
	s := h.streams[i]
	switch h.rng.IntN(9) {
	case 0, 1:
		h.hold(i, !h.held[i])
	case 2:
		h.ok(s.Fill(h.p, 1, 64))
		h.work[i] = true
	case 3:
		h.marks[i] = append(h.marks[i], markOf(h, s))
	case 4:
		if !h.held[i] && h.idle(i) {
			syncOf(h, s)
		}
	case 5:
		j := h.rng.IntN(len(h.streams))
		if n := len(h.marks[j]); n > 0 {
			m := h.marks[j][h.rng.IntN(n)]
			h.work[i] = h.work[i] || i != j && !reached(h, h.streams[j], m)
			h.ok(s.WaitFor(h.streams[j], m))
		}
	case 6: // others queue work
		h.queueElsewhere(h.theirs, h.p)
		h.work[len(h.work)-1] = true
	case 7: // a capture that fails: no call waits for the streams it included
		j := (i + 1) % len(h.streams)
		h.ok(h.d.Graphs().Begin(s))
		h.ok(h.streams[j].WaitFor(s, markOf(h, s)))
		h.ok(h.streams[j].Fill(h.p, 1, 64))
		if h.rng.IntN(2) == 0 {
			markOf(h, h.streams[j])
		}
		if _, err := h.d.Graphs().End(s); err == nil {
			h.Error("a capture with a stream that was not joined succeeded")
		}
	case 8:
		h.ok(h.d.Graphs().Begin(s))
		h.drawIn(s, h.streams[(i+1)%len(h.streams)], h.p)
		g, err := h.d.Graphs().End(s)
		h.ok(err)
		j := h.rng.IntN(len(h.streams))
		h.ok(g.Launch(h.streams[j]))
		h.work[j] = true
		h.ok(g.Close())
	}
}

// ask captures on one of the streams, draws the others in, and asks about each.
func (h *orderHistory) ask() {
	h.Helper()
	first := h.rng.IntN(len(h.streams))
	origin := h.streams[first]
	idle, left := make([]bool, len(h.streams)), make([]bool, len(h.streams))
	note := func(i int) {
		idle[i] = h.idle(i) && !h.held[i]
		left[i] = !h.idle(i) && h.work[i]
	}
	note(first)
	h.ok(h.d.Graphs().Begin(origin))
	marks := make([]driver.Mark, len(h.streams))
	marks[first] = markOf(h, origin)
	for _, i := range h.rng.Perm(len(h.streams)) {
		if i != first {
			note(i)
			marks[i] = h.drawIn(origin, h.streams[i], h.p)
		}
	}
	for i, s := range h.streams {
		switch { // of a held stream with nothing left but an event, either answer will do
		case idle[i]:
			h.ordered(true, "nothing is left from before the capture", s, marks[i], origin)
			h.yes++
		case left[i]:
			h.ordered(false, "work is left from before the capture", s, marks[i], origin)
			h.no++
		}
	}
	i := h.rng.IntN(len(h.streams))
	h.hold(i, false)
	if h.idle(i) {
		h.ordered(true, "the work from before the capture is done", h.streams[i], marks[i], origin)
	}
	h.endCapture(origin)
}
