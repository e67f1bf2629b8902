package memtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkMovesConcurrently has goroutines allocate, write, read and free on streams of their own, while others compact.
func checkMovesConcurrently(t testing.TB, cfg Config) {
	w := newModel(t, cfg, nil)
	const workers = 3
	var failed sync.Once
	fail := func(err error) bool {
		if err != nil {
			failed.Do(func() { t.Errorf("%v", err) })
		}
		return err != nil
	}
	compactor, compacts := mem.Find[mem.Compactor](w.a)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					fail(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
				}
			}()
			s := w.streams[worker%cfg.Streams]
			rng := rand.New(rand.NewPCG(cfg.Seed, 0x6d6f7665<<8|uint64(worker)))
			g := generator{rng: rng, cfg: cfg}
			var own []*mover
			for i := range max(100, cfg.Ops/8) {
				n := &mover{stream: s, pattern: byte(i%255 + 1)}
				var err error
				n.block, err = w.a.Alloc(s, g.size()/16+1)
				if errors.Is(err, mem.ErrNoMemory) {
					continue
				}
				if fail(err) || fail(n.write()) {
					return
				}
				own = append(own, n)
				if rng.IntN(8) > 0 && !mem.Movable(w.a, n.block, n) {
					fail(errors.New("Movable is false, though the allocator has moved others"))
				}
				switch rng.IntN(8) {
				case 0:
					if compacts && fail(compactor.Compact(s)) {
						return
					}
				case 1:
					if fail(own[rng.IntN(len(own))].read()) {
						return
					}
				case 2:
					readReports(w.a)
				}
				for len(own) > rng.IntN(30) {
					if fail(own[0].free(w.a)) {
						return
					}
					own = own[1:]
				}
			}
			for _, n := range own {
				fail(n.free(w.a))
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		testkit.Must(t, w.finish())
	}
}

// A mover has a block that the allocator moves: its lock is held while it queues work, and from BeginMove to EndMove.
type mover struct {
	stream  driver.Stream
	pattern byte

	mu    sync.Mutex
	block mem.Block
	freed bool
	err   error // of EndMove
}

// BeginMove implements mem.Holder. A busy mover refuses: the caller may be waiting for it.
func (n *mover) BeginMove() ([]driver.Stream, bool) {
	if !n.mu.TryLock() {
		return nil, false
	}
	if n.freed {
		n.mu.Unlock()
		return nil, false
	}
	return nil, true
}

// EndMove implements mem.Holder.
func (n *mover) EndMove(b mem.Block, s driver.Stream) {
	defer n.mu.Unlock()
	n.block = b
	if s == nil || s == n.stream {
		return
	}
	m, err := s.Mark()
	n.err = errors.Join(n.err, err, n.stream.WaitFor(s, m))
}

// write fills the block. read looks at some of it.
func (n *mover) write() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.err, n.stream.Fill(n.block.Ptr, n.pattern, n.block.Size))
}

func (n *mover) read() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := make([]byte, min(n.block.Size, 256))
	at := n.block.Size - int64(len(got))
	if err := n.stream.CopyOut(got, n.block.Ptr+driver.Pointer(at)); err != nil {
		return err
	}
	for i, c := range got {
		if c != n.pattern {
			return fmt.Errorf("contents of %+v changed: byte %d is %#02x, want %#02x", n.block, at+int64(i), c,
				n.pattern)
		}
	}
	return n.err
}

// leave frees the block. Its holder refuses moves from here on.
func (n *mover) free(a mem.Allocator) error {
	err := n.read()
	n.mu.Lock()
	n.freed = true
	b := n.block
	n.mu.Unlock()
	a.Free(b)
	return err
}
