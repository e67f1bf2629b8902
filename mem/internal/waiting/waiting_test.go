package waiting

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// A Wake that comes during an attempt that fails is followed by another attempt.
func TestWakeDuringAnAttemptIsNotLost(t *testing.T) {
	var g Gate
	attempts := 0
	err := g.Wait(t.Context(), func() bool {
		attempts++
		g.Wake()
		return attempts == 3
	})
	if err != nil || attempts != 3 {
		t.Errorf("%v after %d attempts, want 3", err, attempts)
	}
}

func TestWaitEndsWithTheCauseOfItsContext(t *testing.T) {
	var g Gate
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	attempts := 0
	err := g.Wait(ctx, func() bool {
		attempts++
		cancel(why)
		return false
	})
	if !errors.Is(err, why) || attempts != 1 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
	g.Wake() // no request waits any more
}

// Each of many waits ends, though each token that comes back is enough for one alone.
func TestEveryWaitEnds(t *testing.T) {
	var g Gate
	var mu sync.Mutex
	tokens := 0
	var waits sync.WaitGroup
	for range 50 {
		waits.Go(func() {
			err := g.Wait(t.Context(), func() bool {
				mu.Lock()
				defer mu.Unlock()
				if tokens == 0 {
					return false
				}
				tokens--
				return true
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range 50 {
		mu.Lock()
		tokens++
		mu.Unlock()
		g.Wake()
	}
	waits.Wait()
}
