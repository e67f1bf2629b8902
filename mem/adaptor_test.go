package mem_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// stream is a stream of which only the number matters.
type stream struct {
	driver.Stream
	id driver.StreamID
}

func (s stream) ID() driver.StreamID { return s.id }

var s0, s1 driver.Stream = stream{id: 0}, stream{id: 1}

// pile is an allocator of numbers: sizes rounded up to a multiple, the address freed last handed out first.
type pile struct {
	mu     sync.Mutex
	round  int64
	next   driver.Pointer
	free   map[int64][]driver.Pointer
	live   map[driver.Pointer]int64
	used   [][]driver.Stream // of each Free
	fail   error             // of the next Alloc
	onFree func(mem.Block)   // called once the address can be handed out again
	trims  int
}

func newPile(round int64) *pile {
	return &pile{round: round, next: 0x1000, free: map[int64][]driver.Pointer{}, live: map[driver.Pointer]int64{}}
}

func (p *pile) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size < 0 {
		panic("pile: negative size")
	}
	if size == 0 {
		return mem.Block{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fail; err != nil {
		p.fail = nil
		return mem.Block{}, err
	}
	size = (size + p.round - 1) / p.round * p.round
	ptr := p.next
	if same := p.free[size]; len(same) > 0 {
		ptr = same[len(same)-1]
		p.free[size] = same[:len(same)-1]
	} else {
		p.next += driver.Pointer(size)
	}
	p.live[ptr] = size
	return mem.Block{Ptr: ptr, Size: size}, nil
}

func (p *pile) Free(b mem.Block, used ...driver.Stream) {
	if b == (mem.Block{}) {
		return
	}
	p.mu.Lock()
	if p.live[b.Ptr] != b.Size {
		p.mu.Unlock()
		panic(fmt.Sprintf("pile: Free of %#x, not live", uint64(b.Ptr)))
	}
	delete(p.live, b.Ptr)
	p.free[b.Size] = append(p.free[b.Size], b.Ptr)
	p.used = append(p.used, used)
	hook := p.onFree
	p.mu.Unlock()
	if hook != nil {
		hook(b)
	}
}

func (p *pile) EmptyCache() error {
	p.trims++
	clear(p.free)
	return nil
}

func mustAlloc(t testing.TB, a mem.Allocator, size int64) mem.Block {
	t.Helper()
	b, err := a.Alloc(s0, size)
	if err != nil {
		t.Fatalf("Alloc of %d: %v", size, err)
	}
	return b
}

// panicOf returns what f panics with, as text.
func panicOf(t testing.TB, f func()) (text string) {
	t.Helper()
	defer func() {
		r := recover()
		if r == nil {
			t.Fatal("no panic")
		}
		text = fmt.Sprint(r)
	}()
	f()
	return ""
}

func wantAll(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing from:\n%s", part, text)
		}
	}
}

func TestAdaptorsForward(t *testing.T) {
	base := newPile(512)
	stack := mem.Track(mem.Limit(base, 1<<30), mem.TrackOptions{})
	trimmer, ok := mem.Find[mem.Trimmer](stack)
	if !ok {
		t.Fatal("the Trimmer at the bottom is not found")
	}
	if err := trimmer.EmptyCache(); err != nil || base.trims != 1 {
		t.Errorf("EmptyCache: %v, %d calls reached the bottom", err, base.trims)
	}
	if l, ok := mem.Find[*mem.Limiter](stack); !ok || l.Limit() != 1<<30 {
		t.Error("the Limiter in the middle is not found")
	}
	b := mustAlloc(t, stack, 512)
	stack.Free(b, s1)
	if len(base.used) != 1 || len(base.used[0]) != 1 || base.used[0][0] != s1 {
		t.Errorf("the streams of Free arrived as %v", base.used)
	}
	for name, a := range map[string]mem.Allocator{"track": stack, "limit": mem.Limit(base, 1)} {
		if got := panicOf(t, func() { a.Alloc(s0, -1) }); got != "pile: negative size" {
			t.Errorf("%s: a negative size panics with %q", name, got)
		}
	}
}

func TestAdaptorsAllocateNothing(t *testing.T) {
	addressed := mem.ByAddress(newPile(512))
	tests := []struct {
		name string
		pair func()
	}{
		{"limit", pairOf(mem.Limit(newPile(512), 1<<30))},
		{"track", pairOf(mem.Track(newPile(512), mem.TrackOptions{}))},
		{"track without stacks", pairOf(mem.Track(newPile(512), mem.TrackOptions{Depth: -1, Freed: -1}))},
		{"by address", func() {
			p, _ := addressed.Alloc(s0, 1000)
			addressed.Free(p)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := testing.AllocsPerRun(2000, pairOf(newPile(512)))
			if n := testing.AllocsPerRun(2000, tt.pair); n > base {
				t.Errorf("%v heap allocations for each pair of Alloc and Free, %v without the adaptor", n, base)
			}
		})
	}
}

func pairOf(a mem.Allocator) func() {
	return func() {
		b, _ := a.Alloc(s0, 1000)
		a.Free(b)
	}
}
