package memtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// A model is a device, an allocator on it, and the expected state of its blocks. Its methods return an error if the
// allocator or the device broke its contract. It is for one goroutine at a time.
type model struct {
	cfg         Config
	dev         driver.Device
	a           mem.Allocator
	newTB       *scratch // the test that New saw: its cleanups close the allocator
	streams     []driver.Stream
	held        []bool
	callWrapper func(call func()) // wraps each call of the allocator, so that only its own driver calls fail

	numbers      map[int]*block
	live         []*block // ascending by address
	sums         sums     // of live blocks
	peak         sums     // the highest sums since the peaks were reset
	samples      samples
	baseline     int64       // available bytes before the allocator was made
	sim          *sim.Device // the device, if it is a simulated one
	leaks        *sim.Leaks  // allocations before the allocator was made
	reset        bool        // accumulated counters were reset
	reportChecks int
	next         int          // number of the last block of mustAlloc
	tight        bool         // any request may find no room
	undo         func() error // undoes reserveMemory

	moving     []*testHolder // holders between BeginMove and EndMove
	moved      []*testHolder // holders that the current call has moved
	moveCount  int           // total number of moved blocks
	unmoved    []*block      // blocks that the last call may have copied, and did not move
	firstError error         // the first error that a holder found
}

// Sums are of blocks: their number, their bytes, and the bytes requested for them.
type sums struct{ blocks, bytes, requested int64 }

// A block is a live block of the model.
type block struct {
	mem.Block
	number    int
	requested int64
	owner     int // stream
	pattern   byte
	writer    int   // stream of the last write
	uses      []use // work to wait for: the last write and later reads, one for each stream
	holder    *testHolder
	lost      bool // the contents are unknown until the next write
}

// A use is the last work of a stream on a block.
type use struct {
	stream int
	mark   driver.Mark
}

func (b *block) String() string {
	return fmt.Sprintf("b%d (%d bytes at %#x for s%d)", b.number, b.Size, uint64(b.Ptr), b.owner)
}

func (b *block) end() driver.Pointer { return b.Ptr + driver.Pointer(b.Size) }

// newModel opens a device and makes an allocator on it. wrap, if not nil, puts a device between them.
func newModel(t testing.TB, cfg Config, wrap func(driver.Device) driver.Device) *model {
	t.Helper()
	w := &model{
		cfg: cfg, dev: cfg.Device(t), numbers: map[int]*block{}, held: make([]bool, cfg.Streams),
		callWrapper: func(call func()) { call() }, tight: cfg.scarce,
	}
	t.Cleanup(func() {
		if err := w.dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	inner := w.dev
	if wrap != nil {
		w.dev = wrap(inner)
	}
	w.streams = []driver.Stream{w.dev.DefaultStream()}
	for len(w.streams) < cfg.Streams {
		s, err := w.dev.NewStream(driver.StreamOptions{})
		testkit.Must(t, err)
		w.streams = append(w.streams, s)
	}
	var err error
	w.samples.base, err = w.dev.Alloc(samplesLen)
	testkit.Must(t, err)
	w.baseline = w.available(t)
	if d, ok := inner.(*sim.Device); ok {
		w.sim, w.leaks = d, d.Leaks()
	}
	w.newTB = &scratch{TB: t}
	w.newTB.guard(func() { w.a = cfg.New(w.newTB, w.dev) })
	if w.newTB.Failed() || w.a == nil {
		w.newTB.clean()
		t.Fatalf("New: %s", w.newTB.text.String())
	}
	if a, ok := mem.Find[interface{ Check() error }](w.a); ok {
		w.newTB.Cleanup(func() {
			if err := a.Check(); err != nil {
				w.newTB.Error(err)
			}
		})
	}
	return w
}

func (w *model) available(t testing.TB) int64 {
	t.Helper()
	free, _, err := w.dev.Available()
	testkit.Must(t, err)
	return free
}

// alloc allocates a block, checks it, and fills it. An *allocError is the error of Alloc.
func (w *model) alloc(number, stream int, size int64) (*block, error) {
	mb, err := w.rawAlloc(stream, size)
	if err != nil {
		return nil, err
	}
	b := &block{Block: mb, number: number, requested: size, owner: stream, pattern: byte(number*151%255 + 1)}
	if err := w.add(b); err != nil {
		return nil, err
	}
	return b, w.fill(b, stream)
}

func (w *model) rawAlloc(stream int, size int64) (mb mem.Block, err error) {
	if err := w.call(func() { mb, err = w.a.Alloc(w.streams[stream], size) }); err != nil {
		return mb, err
	}
	if err != nil && mb != (mem.Block{}) {
		return mb, fmt.Errorf("Alloc of %d bytes failed (%v) and gave the block %+v", size, err, mb)
	}
	if err != nil {
		return mb, &allocError{err}
	}
	return mb, nil
}

// An allocError is an error of Alloc, which may be legitimate.
type allocError struct{ error }

func (e *allocError) Unwrap() error { return e.error }

// add adds a new block to the model, and checks it.
func (w *model) add(b *block) error {
	switch {
	case b.Ptr == 0:
		return fmt.Errorf("Alloc of %d bytes gave no address", b.requested)
	case b.Size < b.requested:
		return fmt.Errorf("Alloc of %d bytes gave %v: too small", b.requested, b)
	case b.end() < b.Ptr:
		return fmt.Errorf("Alloc gave %v, which passes the end of the address space", b)
	}
	if err := w.list(b); err != nil {
		return fmt.Errorf("Alloc gave %w", err)
	}
	w.numbers[b.number] = b
	w.count(b, 1)
	return nil
}

// list adds a block to the list by address, and checks that it overlaps no other.
func (w *model) list(b *block) error {
	if unit := w.cfg.Alignment; b.Ptr%driver.Pointer(unit) != 0 {
		return fmt.Errorf("%v, which is no multiple of %d", b, unit)
	}
	i, taken := slices.BinarySearchFunc(w.live, b, func(x, y *block) int { return cmp.Compare(x.Ptr, y.Ptr) })
	if taken {
		return fmt.Errorf("%v, which is the live %v", b, w.live[i])
	}
	if i > 0 && w.live[i-1].end() > b.Ptr {
		return fmt.Errorf("%v, which overlaps the live %v", b, w.live[i-1])
	}
	if i < len(w.live) && w.live[i].Ptr < b.end() {
		return fmt.Errorf("%v, which overlaps the live %v", b, w.live[i])
	}
	if base := w.samples.base; b.Ptr < base+samplesLen && base < b.end() {
		return fmt.Errorf("%v, which overlaps memory that the allocator never got", b)
	}
	w.live = slices.Insert(w.live, i, b)
	return nil
}

// fill writes the block's pattern to the block on a stream.
func (w *model) fill(b *block, stream int) error {
	s := w.streams[stream]
	for _, u := range b.uses {
		if u.stream != stream {
			if err := s.WaitFor(w.streams[u.stream], u.mark); err != nil {
				return err
			}
		}
	}
	for _, p := range w.filled(b) {
		if err := s.Fill(b.Ptr+driver.Pointer(p.at), b.pattern, p.size); err != nil {
			return fmt.Errorf("fill %v on s%d: %w", b, stream, err)
		}
	}
	m, err := s.Mark()
	b.writer, b.uses, b.lost = stream, append(b.uses[:0], use{stream, m}), false
	return err
}

// filled returns the parts of a block that are filled: all of it, or with Config.pieces those of a large block that are
// sampled, and their surroundings.
func (w *model) filled(b *block) []part {
	const size = 16 << 10
	if !w.cfg.pieces || b.Size <= 4*size {
		return []part{{0, b.Size}}
	}
	return []part{{0, size}, {min(middle(b), b.Size-size), size}, {b.Size - size, size}}
}

// rewrite gives the block a new pattern on a stream.
func (w *model) rewrite(b *block, stream int) error {
	b.pattern = b.pattern%255 + 1
	return w.fill(b, stream)
}

// check samples the block's contents on a stream, unless they are lost.
func (w *model) check(b *block, stream int, why string) error {
	if b.lost {
		return nil
	}
	if w.samples.full() {
		if err := w.sync(); err != nil {
			return err
		}
	}
	s := w.streams[stream]
	for _, u := range b.uses {
		if u.stream == b.writer && u.stream != stream {
			if err := s.WaitFor(w.streams[u.stream], u.mark); err != nil {
				return err
			}
		}
	}
	seen := *b // a copy: the pattern may change before the samples are compared
	if err := w.samples.sample(s, &seen, why); err != nil {
		return err
	}
	m, err := s.Mark()
	if err != nil {
		return err
	}
	for i := range b.uses {
		if b.uses[i].stream == stream {
			b.uses[i].mark = m
			return nil
		}
	}
	b.uses = append(b.uses, use{stream, m})
	return nil
}

// join makes the block's own stream wait for all work on the block, so that Free need not name other streams.
func (w *model) join(b *block) error {
	s := w.streams[b.owner]
	for _, u := range b.uses {
		if u.stream != b.owner {
			if err := s.WaitFor(w.streams[u.stream], u.mark); err != nil {
				return err
			}
		}
	}
	m, err := s.Mark()
	// A later read on another stream waits for the writer, which now takes the place of the owner.
	b.writer, b.uses = b.owner, append(b.uses[:0], use{b.owner, m})
	return err
}

// users returns the streams that Free must name.
func (w *model) users(b *block) []int {
	var out []int
	for _, u := range b.uses {
		if u.stream != b.owner {
			out = append(out, u.stream)
		}
	}
	slices.Sort(out)
	return out
}

// free samples the block a last time, on the stream that wrote it, and frees it.
func (w *model) free(b *block) error {
	if err := w.check(b, b.writer, "before its free"); err != nil {
		return err
	}
	w.remove(b)
	var used []driver.Stream
	for _, u := range w.users(b) {
		used = append(used, w.streams[u])
	}
	return w.call(func() { w.a.Free(b.Block, used...) })
}

// count adds n times a block to the sums.
func (w *model) count(b *block, n int64) {
	w.sums.blocks += n
	w.sums.bytes += n * b.Size
	w.sums.requested += n * b.requested
	w.peak.blocks = max(w.peak.blocks, w.sums.blocks)
	w.peak.bytes = max(w.peak.bytes, w.sums.bytes)
	w.peak.requested = max(w.peak.requested, w.sums.requested)
}

// unlist removes a block from the list.
func (w *model) unlist(b *block) {
	i, _ := slices.BinarySearchFunc(w.live, b, func(x, y *block) int { return cmp.Compare(x.Ptr, y.Ptr) })
	w.live = slices.Delete(w.live, i, i+1)
}

// remove removes the block from the model.
func (w *model) remove(b *block) {
	w.unlist(b)
	delete(w.numbers, b.number)
	w.count(b, -1)
}

// sync waits for all streams and compares the samples.
func (w *model) sync() error {
	if err := syncAll(w.streams); err != nil {
		return err
	}
	return w.samples.compare(w.streams[0])
}

func (w *model) syncOne(stream int) error { return w.streams[stream].Sync(context.Background()) }

// hold prevents a stream's work from running until the stream is resumed or waited for. It reports whether that changes
// anything: the device must support it.
func (w *model) hold(stream int, on bool) bool {
	if w.sim == nil || w.held[stream] == on {
		return false
	}
	w.held[stream] = on
	if on {
		w.sim.Hold(w.streams[stream].ID())
	} else {
		w.sim.Resume(w.streams[stream].ID())
	}
	return true
}

// empty empties the allocator's cache, if it has one.
func (w *model) empty() (err error) {
	if c, ok := mem.Find[mem.Trimmer](w.a); ok {
		if wrong := w.call(func() { err = c.EmptyCache() }); wrong != nil {
			return wrong
		}
	}
	return err
}
