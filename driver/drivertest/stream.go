package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func testStreamOrder(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	const size, n = 10_000, 200
	a := Alloc(t, d, size)
	b := Alloc(t, d, size)
	for i := range n {
		testkit.Must(t, s.Fill(a, byte(i), size))
		testkit.Must(t, s.Copy(b, a, size))
		testkit.Must(t, s.CopyIn(a, []byte{byte(i + 1), byte(i + 2)}))
		testkit.Must(t, s.Copy(b+1, a, 2))
	}
	last := byte((n - 1) & 0xff)
	want := bytes.Repeat([]byte{last}, size)
	want[1], want[2] = last+1, last+2
	wantBytes(t, s, b, want)
	testkit.Must(t, d.Free(a))
	testkit.Must(t, d.Free(b))
}

func testStreams(t *testing.T, open openFunc) {
	d := open(t)
	def := d.DefaultStream()
	if def.ID() != 0 || d.DefaultStream().ID() != 0 {
		t.Errorf("the default stream has the number %d, want 0", def.ID())
	}
	testkit.Must(t, def.Close()) // does nothing
	p := Alloc(t, d, 64)
	testkit.Must(t, def.Fill(p, 3, 64))
	wantBytes(t, d.DefaultStream(), p, bytes.Repeat([]byte{3}, 64))

	live := map[driver.StreamID]bool{0: true}
	var streams []driver.Stream
	for i := range 8 {
		s, err := d.NewStream(driver.StreamOptions{Priority: i - 4})
		testkit.Must(t, err)
		if s.ID() != driver.StreamID(i+1) {
			t.Errorf("new stream number %d, want %d", s.ID(), i+1)
		}
		live[s.ID()] = true
		streams = append(streams, s)
	}
	for _, i := range []int{2, 5} {
		testkit.Must(t, streams[i].Close())
		delete(live, streams[i].ID())
	}
	for range 4 {
		s := NewStream(t, d)
		if live[s.ID()] {
			t.Errorf("a new stream has the number %d of a live one", s.ID())
		}
		live[s.ID()] = true
		testkit.Must(t, s.Fill(p, 4, 64))
		wantBytes(t, s, p, bytes.Repeat([]byte{4}, 64))
	}
}

func testMarks(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	p := Alloc(t, d, 4096)
	isReached := func(m driver.Mark) bool {
		t.Helper()
		ok, err := s.Reached(m)
		testkit.Must(t, err)
		return ok
	}
	if !isReached(driver.Mark{Stream: s.ID()}) {
		t.Error("the zero tick is not reached")
	}
	var marks []driver.Mark
	for i := range 50 {
		testkit.Must(t, s.Fill(p, byte(i), 4096))
		m, err := s.Mark()
		testkit.Must(t, err)
		if m.Stream != s.ID() {
			t.Errorf("mark %+v of stream %d", m, s.ID())
		}
		if i > 0 && m.Tick < marks[i-1].Tick {
			t.Errorf("tick %d after %d", m.Tick, marks[i-1].Tick)
		}
		marks = append(marks, m)
	}
	for i := len(marks) - 1; i > 0; i-- { // asked from the last: once one is reached, so are those before it
		if isReached(marks[i]) && !isReached(marks[i-1]) {
			t.Errorf("mark %d is reached, and one before it is not", i)
		}
	}
	testkit.Must(t, s.Sync(context.Background()))
	for i, m := range marks {
		if !isReached(m) {
			t.Errorf("mark %d is not reached after Sync", i)
		}
	}

	testkit.Must(t, s.Fill(p, 1, 4096))
	m, err := s.Mark()
	testkit.Must(t, err)
	wantBytes(t, s, p, bytes.Repeat([]byte{1}, 4096))
	if !isReached(m) {
		t.Error("a mark before CopyOut is not reached after it")
	}
	testkit.Must(t, s.Fill(p, 2, 4096))
	m, err = s.Mark()
	testkit.Must(t, err)
	testkit.Must(t, d.Free(p))
	if !isReached(m) {
		t.Error("a mark before Free is not reached after it")
	}
}

// testManyMarks: a mark costs nothing to keep, however many there are, and one without work before it is a mark too.
func testManyMarks(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	p := Alloc(t, d, 64)
	idle := mustMark(t, s)
	for range 10 {
		again := mustMark(t, s)
		if again.Stream != idle.Stream || again.Tick < idle.Tick {
			t.Errorf("mark %+v after %+v, without work between them", again, idle)
		}
		idle = again
	}
	marks := make([]driver.Mark, 10_000)
	for i := range marks {
		if i%100 == 0 {
			testkit.Must(t, s.Fill(p, byte(i), 64))
		}
		marks[i] = mustMark(t, s)
		if i > 0 && marks[i].Tick < marks[i-1].Tick {
			t.Fatalf("tick %d after %d", marks[i].Tick, marks[i-1].Tick)
		}
	}
	other := d.DefaultStream()
	for i := 0; i < len(marks); i += 1000 {
		testkit.Must(t, other.WaitFor(s, marks[i]))
	}
	testkit.Must(t, s.Sync(context.Background()))
	for i, m := range append(marks, idle) {
		if ok, err := s.Reached(m); !ok || err != nil {
			t.Fatalf("mark %d of %d after Sync: reached %v, %v", i, len(marks), ok, err)
		}
	}
	testkit.Must(t, other.Sync(context.Background()))
	testkit.Must(t, d.Free(p))
}

func testWaitFor(t *testing.T, open openFunc) {
	d := open(t)
	const streams, rounds, size = 4, 50, 5001
	ring := make([]driver.Stream, streams)
	for i := range ring {
		var err error
		ring[i], err = d.NewStream(driver.StreamOptions{})
		testkit.Must(t, err)
	}
	ring = append(ring, d.DefaultStream())
	p := Alloc(t, d, 2*size)
	model := Noise(7, 2*size)
	testkit.Must(t, ring[0].CopyIn(p, model))

	// One block goes from stream to stream, and each changes it.
	for i := range rounds {
		prev, s := ring[i%len(ring)], ring[(i+1)%len(ring)]
		m, err := prev.Mark()
		testkit.Must(t, err)
		testkit.Must(t, s.WaitFor(prev, m))
		testkit.Must(t, s.WaitFor(prev, m))           // twice is as good
		testkit.Must(t, s.WaitFor(s, mustMark(t, s))) // and for itself means nothing
		if i%2 == 0 {
			testkit.Must(t, s.Copy(p+size, p, size))
			copy(model[size:], model[:size])
		} else {
			testkit.Must(t, s.Fill(p+driver.Pointer(i), byte(i), size))
			for j := i; j < i+size; j++ {
				model[j] = byte(i)
			}
		}
	}
	wantBytes(t, ring[rounds%len(ring)], p, model)

	// A fork and a join: two streams write halves, a third reads both.
	a, b, c := ring[0], ring[1], ring[2]
	fork := mustMark(t, ring[rounds%len(ring)])
	for _, s := range []driver.Stream{a, b} {
		testkit.Must(t, s.WaitFor(ring[rounds%len(ring)], fork))
	}
	testkit.Must(t, a.Fill(p, 0xaa, size))
	testkit.Must(t, b.Fill(p+size, 0xbb, size))
	testkit.Must(t, c.WaitFor(a, mustMark(t, a)))
	testkit.Must(t, c.WaitFor(b, mustMark(t, b)))
	wantBytes(t, c, p, append(bytes.Repeat([]byte{0xaa}, size), bytes.Repeat([]byte{0xbb}, size)...))

	// A mark in the middle of a stream orders what is before it, whatever comes after.
	testkit.Must(t, a.WaitFor(c, mustMark(t, c)))
	testkit.Must(t, a.Fill(p, 1, size))
	m := mustMark(t, a)
	testkit.Must(t, a.Fill(p+size, 2, size))
	testkit.Must(t, b.WaitFor(a, m))
	wantBytes(t, b, p, bytes.Repeat([]byte{1}, size))
	testkit.Must(t, d.Free(p))
}

func testSyncContext(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	testkit.Must(t, s.Sync(context.Background())) // of an empty stream
	p := Alloc(t, d, 1<<20)
	for range 20 {
		testkit.Must(t, s.Fill(p, 9, 1<<20))
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Sync(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Sync with a context that has ended: %v, want nil or context.Canceled", err)
	}
	m := mustMark(t, s)
	testkit.Must(t, s.Sync(context.Background()))
	if ok, err := s.Reached(m); !ok || err != nil {
		t.Errorf("after Sync: reached %v, %v", ok, err)
	}
	wantBytes(t, s, p, bytes.Repeat([]byte{9}, 1<<20))
	testkit.Must(t, d.Free(p))
}

func testStreamMisuse(t *testing.T, open openFunc) {
	d, foreign := open(t), open(t)
	s := d.DefaultStream()
	other := foreign.DefaultStream()
	p := Alloc(t, d, 4096)
	want := Noise(8, 4096)
	testkit.Must(t, s.CopyIn(p, want))

	wantPanic(t, "Copy of -1 bytes", func() error { return s.Copy(p, p+2048, -1) })
	wantPanic(t, "Fill of -1 bytes", func() error { return s.Fill(p, 0, -1) })
	wantPanic(t, "WaitFor a nil stream", func() error { return s.WaitFor(nil, driver.Mark{}) })
	wantPanic(t, "WaitFor a stream of another device", func() error {
		return s.WaitFor(other, mustMark(t, other))
	})
	if k := d.Kernels(); k != nil {
		wantPanic(t, "Launch on a nil stream", func() error { return k.Launch(nil, driver.Kernel{Name: "nil"}) })
		wantPanic(t, "Launch on a stream of another device", func() error {
			return k.Launch(other, driver.Kernel{Name: "foreign"})
		})
	}
	wantBytes(t, s, p, want)
	testkit.Must(t, d.Free(p))
}

func testStreamClose(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	p := Alloc(t, d, 1<<20)
	for i := range 20 {
		testkit.Must(t, s.Fill(p, byte(i), 1<<20))
	}
	m := mustMark(t, s)
	testkit.Must(t, s.Close())
	if ok, err := s.Reached(m); !ok || err != nil {
		t.Errorf("a mark of a stream that was closed: reached %v, %v", ok, err)
	}
	def := d.DefaultStream()
	testkit.Must(t, def.WaitFor(s, m))
	wantBytes(t, def, p, bytes.Repeat([]byte{19}, 1<<20))
	WantErr(t, "Fill after Close", s.Fill(p, 0, 16), driver.ErrClosed)
	WantErr(t, "Copy after Close", s.Copy(p, p+64, 16), driver.ErrClosed)
	WantErr(t, "CopyIn after Close", s.CopyIn(p, []byte{0}), driver.ErrClosed)
	_, err := s.Mark()
	WantErr(t, "Mark after Close", err, driver.ErrClosed)

	// A new stream, even one with the same number, does not turn the mark back.
	for range 3 {
		n := NewStream(t, d)
		testkit.Must(t, def.WaitFor(s, m))
		testkit.Must(t, n.WaitFor(s, m))
		testkit.Must(t, n.Fill(p, 1, 16))
		testkit.Must(t, n.Close())
	}
	if ok, err := s.Reached(m); !ok || err != nil {
		t.Errorf("a mark of a stream that was closed, with newer streams: reached %v, %v", ok, err)
	}
	wantBytes(t, def, p+16, bytes.Repeat([]byte{19}, 1<<20-16))
	testkit.Must(t, d.Free(p))
}

func mustMark(t testing.TB, s driver.Stream) driver.Mark {
	t.Helper()
	m, err := s.Mark()
	testkit.Must(t, err)
	return m
}
