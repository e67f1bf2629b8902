//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// An openSet holds what was made on a device and is not closed. Its lock is a leaf.
type openSet[T comparable] struct {
	mu  sync.Mutex
	all map[T]struct{}
}

func (s *openSet[T]) add(x T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[T]struct{}{}
	}
	s.all[x] = struct{}{}
}

func (s *openSet[T]) remove(x T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, x)
}

// destroyAll destroys what callers did not close. It returns the first failure. No other call runs.
func (s *openSet[T]) destroyAll(destroy func(T) cu.Result) cu.Result {
	first := cu.Success
	for x := range s.all {
		if r := destroy(x); first == cu.Success {
			first = r
		}
	}
	s.all = nil
	return first
}
