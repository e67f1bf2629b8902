package backendtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// checkFailed: of several wrong indices one is kept, further calls work all the same, and asking takes it away.
func checkFailed(s *suite) {
	b := s.rig.Backend
	for _, again := range []bool{false, true} {
		var last *trial
		for k, bad := range []int64{-3, 4, 99} {
			t := s.trial("select with the index %d, asked before: %v", bad, again)
			x := t.input("x", dtype.Float32, []int{4}, s.anything(dtype.Float32))
			index := t.add("index", dtype.Int64, s.layout([]int{2}, false), whole(1, bad))
			zero := make([]byte, 4)
			dst := t.output("dst", dtype.Float32, []int{2}, exactly(dtype.Float32, func(i int) []byte {
				if i == 1 {
					return zero
				}
				return x.at(1)
			}))
			t.wrong, t.indices = &backend.IndexError{Op: "index_select", Index: bad, Size: 4}, []int64{-3}
			s.foreign = k < 2 // only the last asks
			t.call(func(q backend.Queue) error { return b.IndexSelect(q, dst.array, x.array, index.array, 0) })
			last = t
		}
		if err := b.Failed(); err != nil {
			last.fail("Failed after it was asked: %v, want nil", err)
		}
	}
}

// checkConcurrent works on several streams from as many goroutines.
func checkConcurrent(s *suite) {
	const workers = 4
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		stream, err := s.rig.Device.NewStream(driver.StreamOptions{})
		if err != nil {
			s.Fatalf("NewStream: %v", err)
		}
		own := *s
		own.queue.Stream = stream
		own.foreign = true
		own.failed = map[string]bool{}
		own.rng = rand.New(rand.NewPCG(s.seed, w))
		wg.Go(func() {
			defer func() {
				if err := errors.Join(stream.Sync(context.Background()), stream.Close()); err != nil {
					s.Errorf("closing a stream: %v", err)
				}
			}()
			for range 8 * s.rounds {
				own.mixture()
			}
		})
	}
	wg.Wait()
	if err := s.rig.Backend.Failed(); err != nil {
		s.Errorf("Failed: %v, want nil", err)
	}
}

// mixture tries a few calls of most kinds.
func (s *suite) mixture() {
	d := pick(s.rng, floatTypes...)
	s.unary(backend.Exp, d, s.shape(1000), s.uniform(d, -3, 3), false)
	s.binary(backend.Mul, d, s.shape(3000), s.anything(d), s.anything(d), 0)
	s.matmul(d, nil, 17, 33, 20, s.uniform(d, -2, 2))
	s.softmax(false, d, []int{5, 100}, s.rng.IntN(2), s.uniform(d, -2, 2))
	s.norm(false, d, []int{7, 65}, 1, s.uniform(d, -2, 2))
	s.reduce(backend.Sum, d, d, []int{50, 60}, map[int]bool{s.rng.IntN(2): true}, s.uniform(d, -2, 2))
	t := s.trial("sort of %v at the same time", d)
	shape := []int{3, 700}
	s.ordered(t, d, shape, 1, 700, false, func(q backend.Queue, values, indices *backend.Array, x backend.Array) error {
		return s.rig.Backend.Sort(q, false, values, indices, x, 1)
	})
}
