package pinned_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

func mustAlloc(t *testing.T, m *pinned.MemAllocator, s driver.Stream, size int64) mem.Block {
	t.Helper()
	b, err := m.Alloc(s, size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// As a mem.Allocator, it reuses a block only when the block's stream and the streams passed to Free are done with it,
// because the next user writes to it at once.
func TestMemIsIdleWhenItIsHandedOut(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	m := pinned.Mem(a)
	s, u := d.stream(t), d.stream(t)
	for i, uses := range [][]driver.Stream{{s}, {s}, {u}, {s, u}} {
		b := mustAlloc(t, m, s, 1000)
		if b.Size != 1024 {
			t.Errorf("%+v", b)
		}
		for _, x := range uses {
			d.hold(x)
			d.work(t, x)
		}
		if i == 0 {
			m.Free(b) // the stream that it is for goes without saying
		} else {
			m.Free(b, uses...)
		}
		c := mustAlloc(t, m, s, 1000)
		if c.Ptr == b.Ptr {
			t.Errorf("with work under way on %d streams, its memory is allocated", len(uses))
		}
		for _, x := range uses {
			d.resume(x)
		}
		m.Free(c)
		x := mustAlloc(t, m, s, 1000)
		y := mustAlloc(t, m, s, 1000)
		if x.Ptr != b.Ptr && y.Ptr != b.Ptr {
			t.Errorf("with all work done, %#x is not allocated again", uint64(b.Ptr))
		}
		m.Free(x)
		m.Free(y)
		if err := m.EmptyCache(); err != nil {
			t.Error(err)
		}
	}
	closeAll(t, a, d)
}

// Bytes returns memory that lies in one live block, and device copies accept that memory.
func TestMemShowsBytes(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	m := pinned.Mem(a)
	s := d.stream(t)
	b := mustAlloc(t, m, s, 1000)
	bytes, err := m.Bytes(b.Ptr+10, b.Size-10)
	if err != nil || int64(len(bytes)) != b.Size-10 || !d.Pinned().IsPinned(bytes) {
		t.Fatalf("%d bytes, %v", len(bytes), err)
	}
	bytes[0] = 9
	if first, err := m.Bytes(b.Ptr, 11); err != nil || first[10] != 9 || cap(first) != 11 {
		t.Errorf("%v, %v", first, err)
	}
	for name, bad := range map[string]func() ([]byte, error){
		"past the end":  func() ([]byte, error) { return m.Bytes(b.Ptr+1, b.Size) },
		"before it":     func() ([]byte, error) { return m.Bytes(b.Ptr-1, 1) },
		"negative":      func() ([]byte, error) { return m.Bytes(b.Ptr, -1) },
		"of the future": func() ([]byte, error) { return m.Bytes(b.Ptr+1<<40, 1) },
	} {
		if got, err := bad(); got != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	m.Free(b)
	if _, err := m.Bytes(b.Ptr, 1); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("after its Free: %v", err)
	}
	closeAll(t, a, d)
}

func TestMemMisuse(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	m := pinned.Mem(a)
	s := d.stream(t)
	if b := mustAlloc(t, m, s, 0); b != (mem.Block{}) {
		t.Errorf("%+v for nothing", b)
	}
	m.Free(mem.Block{})
	b := mustAlloc(t, m, s, 1000)
	longer, inside := b, b
	longer.Size++
	inside.Ptr++
	m.Free(b)
	again := mustAlloc(t, m, s, 1000)
	for name, bad := range map[string]func(){
		"twice": func() { m.Free(b) }, "changed": func() { m.Free(longer) }, "inside": func() { m.Free(inside) },
		"a nil stream": func() { m.Alloc(nil, 1) }, "a negative size": func() { m.Alloc(s, -1) },
	} {
		testkit.WantPanic(t, name, "pinned: ", bad)
	}
	m.Free(again)
	if err := m.Close(); err != nil { // it is a's owner who closes
		t.Error(err)
	}
	m.Free(mustAlloc(t, m, s, 1))
	closeAll(t, a, d)
}

// A block that captured work may use is not reused. If the query whether a stream captures fails, the request fails and
// no block is lost.
func TestMemOfAStreamThatCaptures(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	m := pinned.Mem(a)
	s := d.stream(t)
	d.begin(t, s)
	b := mustAlloc(t, m, s, 1000)
	m.Free(b)
	if c := mustAlloc(t, m, d.stream(t), 1000); c.Ptr == b.Ptr {
		t.Error("what a graph may use is allocated")
	} else {
		m.Free(c)
	}
	if err := d.end(t, s).Close(); err != nil {
		t.Error(err)
	}
	if s := m.FrameworkStats(); s.NumAllocs != 2 || s.BytesInUse != 2048 || s.PeakBytesInUse != 2048 || s.PoolBytes != 2048 {
		t.Errorf("%v", s)
	}
}

// mem.Open opens it by name and with settings, and elements are constructed in it without waiting for the stream.
func TestMemHoldsElements(t *testing.T) {
	d := newDevice()
	m, err := mem.Open("pinned:pinned_max_round_threshold_mb:1", d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Open("pinned:nonsense:1", d); err == nil {
		t.Error("a setting that there is not was taken")
	}
	s := d.stream(t)
	a := layer.NewTyped(m, layer.TypedOptions[int16]{Construct: func(x *int16) error { *x = 7; return nil }})
	d.hold(s)
	d.work(t, s)
	e, err := a.Alloc(t.Context(), s, 1<<20)
	if err != nil || e.Slice()[1<<20-1] != 7 {
		t.Fatal(err)
	}
	if m, err := s.Mark(); err != nil {
		t.Error(err)
	} else if done, err := s.Reached(m); done || err != nil {
		t.Errorf("the stream was waited for: %v", err)
	}
	a.Free(e)
	d.resume(s)
	if err := m.(*pinned.MemAllocator).Close(); err != nil {
		t.Error(err)
	}
	d.empty(t)
}

// A request with NoRetry uses cached memory, and frees none to make room. An allocator opened by name has the same
// abilities as others.
func TestMemNoRetry(t *testing.T) {
	d := newDevice()
	opened, err := mem.Open("pinned", d)
	if err != nil {
		t.Fatal(err)
	}
	m := opened.(*pinned.MemAllocator)
	s := d.stream(t)
	cached := mustAlloc(t, m, s, 4096)
	m.Free(cached)
	hasty := mem.AllocOptions{NoRetry: true}
	d.failing(intercept.AllocHost, driver.ErrNoMemory)
	if _, err := m.AllocWith(s, 1<<20, hasty); !errors.Is(err, mem.ErrNoMemory) || m.Pinned().Stats().AllocatedBytes.Current != 4096 {
		t.Errorf("%v; %d bytes are left", err, m.Pinned().Stats().AllocatedBytes.Current)
	}
	if b, err := m.AllocWith(s, 4096, hasty); err != nil || b.Ptr != cached.Ptr {
		t.Errorf("%+v, %v; what is cached is at %#x", b, err, uint64(cached.Ptr))
	} else {
		m.Free(b)
	}
	if _, err := m.Alloc(s, 1<<20); !errors.Is(err, mem.ErrNoMemory) || m.Pinned().Stats().AllocatedBytes.Current != 0 {
		t.Errorf("with retries: %v; %d bytes are left", err, m.Pinned().Stats().AllocatedBytes.Current)
	}
	d.healthy()
	if err := errors.Join(m.Pinned().Err(), m.Close()); err != nil {
		t.Error(err)
	}
	d.empty(t)
}

func TestMemAcrossGoroutines(t *testing.T) {
	d := newDevice()
	a := open(t, d, pinned.Config{})
	m := pinned.Mem(a)
	var all sync.WaitGroup
	for i := range 4 {
		s, u := d.stream(t), d.stream(t)
		all.Go(func() {
			for j := range 100 {
				b, err := m.Alloc(s, int64(1+i*j))
				if err != nil {
					t.Error(err)
					return
				}
				bytes, err := m.Bytes(b.Ptr, b.Size)
				if err != nil {
					t.Error(err)
					return
				}
				bytes[b.Size-1]++
				m.Free(b, u)
			}
		})
	}
	all.Wait()
	if err := a.Err(); err != nil {
		t.Error(err)
	}
	closeAll(t, a, d)
}
