package paged_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// A world is a model of an allocator and its users. Its test fails at once if the allocator disagrees with the model.
type world struct {
	*rig
	rng     *rand.Rand
	step    int
	streams []*queue
	live    []*liveBlock
	samples driver.Pointer // 16 bytes each, until checked
	taken   []sample
	events  *ledger // while there is an observer
	refused int     // requests that failed since a stream captures
	denied  int     // and since there was no memory
}

// A queue is a stream, and what it captures.
type queue struct {
	driver.Stream
	capturing bool
	graph     driver.Graph // captured, and may be launched
	captured  []*liveBlock // what that writes
}

// A liveBlock is full of one byte.
type liveBlock struct {
	mem.Block
	asked   int64
	owner   *queue
	writer  *queue
	readers []*queue // since the last write
	users   []*queue // beside the owner: what Free must be told of
	pattern byte
	pinned  *queue // captured work writes it
}

// A sample is a byte that will be there, 16 times.
type sample struct {
	want byte
	of   string
}

const maxSamples = 256

func newWorld(r *rig, seed uint64, streams int) *world {
	r.t.Helper()
	w := &world{rig: r, rng: rand.New(rand.NewPCG(seed, 0x7061676564)), streams: []*queue{{Stream: r.s}}}
	for len(w.streams) < streams {
		w.streams = append(w.streams, &queue{Stream: r.stream()})
	}
	var err error
	w.samples, err = r.sim.Alloc(16 * maxSamples)
	r.must(err)
	return w
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("operation %d: %s", w.step, fmt.Sprintf(format, args...))
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.fail("%v", err)
	}
}

// next does one random operation.
func (w *world) next() {
	q := w.streams[w.rng.IntN(len(w.streams))]
	if w.rng.IntN(2) == 0 {
		q = w.streams[w.rng.IntN(min(3, len(w.streams)))]
	}
	var b *liveBlock
	if len(w.live) > 0 {
		b = w.live[w.rng.IntN(len(w.live))]
	}
	switch op := w.rng.IntN(1000); {
	case op < 400 || op < 870 && b == nil:
		w.request(q)
	case op < 640:
		w.giveBack(b)
	case op < 740:
		w.write(b, q)
	case op < 830:
		w.read(b, q)
	case op < 870:
		w.joinUsers(b)
	case op < 875:
		w.pause()
	case op < 880:
		if err := w.a.EmptyCache(); err != nil && !errors.Is(err, driver.ErrCapturing) {
			w.must(err)
		}
	case op < 890:
		w.observe()
	case op < 910:
		w.replaceStream(q)
	case op < 950:
		w.capture(q)
	case op < 970:
		w.sim.Hold(q.ID())
	case op < 985:
		w.sim.Resume(q.ID())
	case op < 990:
		w.look()
	default:
		w.sim.Advance(q.ID(), 1+w.rng.IntN(4))
	}
}

// size returns a random size of up to about 12 granules, small as often as large, and sometimes a whole number of them.
func (w *world) size() int64 {
	size := 1 + w.rng.Int64N(12*granule)>>w.rng.IntN(13)
	if w.rng.IntN(4) == 0 {
		size = (1 + size/granule) * granule
	}
	return size
}

// alloc allocates a block, sometimes at an address among the first of those that AllocAt serves.
func (w *world) alloc(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	switch w.rng.IntN(8) {
	case 0:
		return w.a.AllocAt(0, s, size, o)
	case 1, 2:
		base, _, err := w.a.Places()
		w.must(err)
		return w.a.AllocAt(base+driver.Pointer(512*w.rng.Int64N(40*granule/512)), s, size, o)
	}
	return w.a.AllocWith(s, size, o)
}

// request allocates a block, and fills it. If there is no memory some blocks are freed.
func (w *world) request(q *queue) {
	w.t.Helper()
	size := w.size()
	o := mem.AllocOptions{NoRetry: w.rng.IntN(16) == 0}
	mb, err := w.alloc(q.Stream, size, o)
	switch {
	case err == nil:
	case errors.Is(err, driver.ErrCapturing):
		w.refused++
		if !slices.ContainsFunc(w.streams, func(q *queue) bool { return q.capturing }) {
			w.fail("nothing captures, and %v", err)
		}
		return
	case errors.Is(err, mem.ErrNoMemory):
		w.denied++
		for range len(w.live)/4 + 1 {
			if len(w.live) > 0 {
				w.giveBack(w.live[w.rng.IntN(len(w.live))])
			}
		}
		return
	default:
		w.must(err)
	}
	if mb.Size < size || mb.Ptr%512 != 0 {
		w.fail("%d bytes: %+v", size, mb)
	}
	for _, other := range w.live {
		if mb.Ptr < other.Ptr+driver.Pointer(other.Size) && other.Ptr < mb.Ptr+driver.Pointer(mb.Size) {
			w.fail("%+v overlaps the live %+v", mb, other.Block)
		}
	}
	b := &liveBlock{Block: mb, asked: size, owner: q, writer: q}
	w.live = append(w.live, b)
	w.write(b, q)
}

// follow makes q wait for the work that another stream has queued, and reports whether it can.
func (w *world) follow(q, other *queue) bool {
	w.t.Helper()
	if q == other || !slices.Contains(w.streams, other) { // what is closed has done its work
		return true
	}
	if q.capturing || other.capturing {
		return false
	}
	m, err := other.Mark()
	w.must(err)
	w.must(q.WaitFor(other.Stream, m))
	return true
}

// touch notes that q works on a block.
func (b *liveBlock) touch(q *queue) {
	if q != b.owner && !slices.Contains(b.users, q) {
		b.users = append(b.users, q)
	}
}

// write gives a block new contents, unless the write cannot be ordered after earlier work on the block.
func (w *world) write(b *liveBlock, q *queue) {
	w.t.Helper()
	if b.pinned != nil || q.capturing && (b.writer != q || b.owner != q || len(b.readers) > 0 || len(b.users) > 0) {
		return
	}
	for _, other := range append(b.readers, b.writer) {
		if !w.follow(q, other) {
			return
		}
	}
	b.pattern = byte(w.rng.IntN(256))
	b.writer, b.readers = q, nil
	b.touch(q)
	w.must(q.Fill(b.Ptr, b.pattern, b.Size))
	if q.capturing {
		b.pinned = q
		q.captured = append(q.captured, b)
	}
}

// read has q copy some bytes of a block.
func (w *world) read(b *liveBlock, q *queue) {
	w.t.Helper()
	if b.pinned != nil && b.pinned.graph == nil || q.capturing || !w.follow(q, b.writer) {
		return
	}
	b.touch(q)
	if q != b.writer && !slices.Contains(b.readers, q) {
		b.readers = append(b.readers, q)
	}
	for _, at := range []int64{0, b.Size - 16, w.rng.Int64N(b.Size/16) * 16} {
		if len(w.taken) == maxSamples {
			w.look()
		}
		w.must(q.Copy(w.samples+driver.Pointer(16*len(w.taken)), b.Ptr+driver.Pointer(at), 16))
		w.taken = append(w.taken, sample{b.pattern, fmt.Sprintf("byte %d of %+v, written on stream %d, read at operation %d",
			at, b.Block, b.writer.ID(), w.step)})
	}
}

// pause pauses the allocator, frees some blocks, and resumes it.
func (w *world) pause() {
	w.t.Helper()
	var users []driver.Stream
	for _, q := range w.streams {
		users = append(users, q.Stream)
	}
	switch err := w.a.Pause(paged.PauseOptions{Used: users}); {
	case errors.Is(err, driver.ErrCapturing):
		return
	default:
		w.must(err)
	}
	if s := w.a.PageStats(); s.Reserved != 0 {
		w.fail("paused: %+v", s)
	}
	for range w.rng.IntN(4) {
		if len(w.live) == 0 {
			break
		}
		if b := w.live[w.rng.IntN(len(w.live))]; b.pinned == nil {
			w.forget(b)
			w.a.Free(b.Block)
		}
	}
	w.agree()
	w.must(w.a.Resume())
}

// look ends captures, waits for all streams and checks the samples.
func (w *world) look() {
	w.t.Helper()
	for _, q := range w.streams {
		if q.capturing {
			w.capture(q)
		}
		w.must(q.Sync(context.Background()))
	}
	got := make([]byte, 16*max(len(w.taken), 1))
	w.must(w.s.CopyOut(got, w.samples))
	for i, s := range w.taken {
		for _, v := range got[16*i:][:16] {
			if v != s.want {
				w.fail("%s is %d, want %d", s.of, v, s.want)
			}
		}
	}
	w.taken = w.taken[:0]
}

// joinUsers makes the owner wait for the users of a block, so that Free does not need their names.
func (w *world) joinUsers(b *liveBlock) {
	w.t.Helper()
	if b.pinned != nil || !slices.Contains(w.streams, b.owner) {
		return
	}
	for _, q := range b.users {
		if !w.follow(b.owner, q) {
			return
		}
	}
	b.writer, b.readers, b.users = b.owner, nil, nil
}

// giveBack checks a block and frees it, unless captured work needs it.
func (w *world) giveBack(b *liveBlock) {
	w.t.Helper()
	if b.pinned != nil {
		return
	}
	reader := b.writer
	if !slices.Contains(w.streams, reader) || w.rng.IntN(4) == 0 {
		reader = w.streams[w.rng.IntN(len(w.streams))]
	}
	w.read(b, reader)
	w.forget(b)
	var used []driver.Stream
	for _, q := range b.users {
		if slices.Contains(w.streams, q) || w.rng.IntN(2) == 0 { // those that are closed may be named
			used = append(used, q.Stream)
		}
	}
	w.a.Free(b.Block, used...)
}

func (w *world) forget(b *liveBlock) {
	i := slices.Index(w.live, b)
	w.live[i] = w.live[len(w.live)-1]
	w.live = w.live[:len(w.live)-1]
}

// replaceStream closes a stream and opens another in its place, which may get its ID.
func (w *world) replaceStream(q *queue) {
	w.t.Helper()
	i := slices.Index(w.streams, q)
	if i == 0 || q.capturing {
		return
	}
	w.release(q)
	w.must(q.Close())
	w.streams[i] = &queue{Stream: w.stream()}
}

// release closes a stream's graph, so that the blocks that it writes may be freed.
func (w *world) release(q *queue) {
	w.t.Helper()
	if q.graph != nil {
		w.must(q.graph.Close())
	}
	for _, b := range q.captured {
		b.pinned = nil
	}
	q.graph, q.captured = nil, nil
}

// capture begins a capture, ends it, launches its graph, or closes the graph.
func (w *world) capture(q *queue) {
	w.t.Helper()
	switch {
	case q == w.streams[0]:
	case q.capturing:
		g, err := w.dev.Graphs().End(q.Stream)
		w.must(err)
		q.capturing, q.graph = false, g
		w.must(g.Launch(q.Stream))
	case q.graph == nil:
		if w.rng.IntN(4) == 0 {
			w.must(w.dev.Graphs().Begin(q.Stream))
			q.capturing = true
		}
	case w.rng.IntN(2) == 0:
		for _, b := range q.captured {
			for _, other := range b.readers {
				if !w.follow(q, other) {
					return
				}
			}
			b.readers = nil
		}
		w.must(q.graph.Launch(q.Stream))
	default:
		w.release(q)
	}
}

// observe begins to observe, or ends observing and checks the events.
func (w *world) observe() {
	w.t.Helper()
	if w.events == nil {
		w.events = newLedger(w.a)
		return
	}
	w.must(w.events.close())
	w.events = nil
}

// agree compares the statistics with the model.
func (w *world) agree() {
	w.t.Helper()
	w.must(w.a.Check())
	var size, asked int64
	for _, b := range w.live {
		size += b.Size
		asked += b.asked
	}
	s := w.a.Stats()
	if s.Allocation.All.Current != int64(len(w.live)) || s.AllocatedBytes.All.Current != size || s.RequestedBytes.All.Current != asked {
		w.fail("live are %d blocks, %d bytes, %d asked for; counted %d, %d, %d", len(w.live), size, asked,
			s.Allocation.All.Current, s.AllocatedBytes.All.Current, s.RequestedBytes.All.Current)
	}
	free, total, err := w.sim.Available()
	w.must(err)
	if f := w.a.PageStats(); total-free != f.Reserved+16*maxSamples || f.Used > f.Reserved || f.Used+f.Paused < size {
		w.fail("the device has allocated %d bytes, of them %d for samples; %+v", total-free, 16*maxSamples, f)
	}
}

// end frees everything, and fails if the history did not exercise what it should.
func (w *world) end() {
	w.t.Helper()
	w.look()
	for _, q := range w.streams {
		w.release(q)
	}
	for len(w.live) > 0 {
		w.giveBack(w.live[len(w.live)-1])
	}
	w.look()
	if w.events != nil {
		w.observe()
	}
	w.agree()
	w.t.Logf("%d requests denied, %d refused because of captures; %d waits of the host", w.denied, w.refused, w.a.PageStats().Stalls)
	if w.step > 2000 && w.denied == 0 {
		w.t.Error("memory was never short: that was no campaign")
	}
	w.must(w.a.EmptyCache())
	if f := w.a.PageStats(); f.Reserved != 0 || f.Pages != 0 || f.Mappings != 0 {
		w.fail("after all is freed and the cache emptied: %+v", f)
	}
	w.must(w.sim.Free(w.samples))
}
