//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"sync"

	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// An openSet holds the objects of one kind that were created on a device and are not closed. Its lock is a leaf.
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

// destroyAll destroys the objects that callers did not close. It returns the first failure. It must not run
// concurrently with other methods.
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
