package waiting

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

// Requests that need the same room get it in the order in which they came.
func TestFirstComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		room := 0
		var served []int
		var waits sync.WaitGroup
		for i := range 5 {
			waits.Go(func() {
				if err := g.Wait(t.Context(), func() bool {
					room--
					if room < 0 {
						room++
						return false
					}
					served = append(served, i)
					return true
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for _, freed := range []int{1, 2, 0, 2} {
			room = freed
			g.Wake()
			synctest.Wait()
		}
		waits.Wait()
		if !slices.Equal(served, []int{0, 1, 2, 3, 4}) {
			t.Errorf("served in the order %v", served)
		}
	})
}

// A request for which there is no room does not keep later ones from what they need, nor does one whose context ends, or
// that panics, when it has the turn.
func TestOthersAreNotHeldUp(t *testing.T) {
	for name, first := range map[string]func(g *Gate, ctx context.Context){
		"no room": func(g *Gate, ctx context.Context) { g.Wait(ctx, func() bool { return false }) },
		"panics": func(g *Gate, ctx context.Context) {
			defer func() { recover() }()
			tries := 0
			g.Wait(ctx, func() bool {
				if tries++; tries == 2 {
					panic("an attempt")
				}
				return false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Gate
				room := false
				ctx, end := context.WithCancelCause(t.Context())
				enough := errors.New("enough")
				var waits sync.WaitGroup
				waits.Go(func() { first(&g, ctx) })
				synctest.Wait()
				waits.Go(func() {
					if err := g.Wait(t.Context(), func() bool { return room }); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				room = true
				g.Wake()
				end(enough) // perhaps while the first has the turn
				waits.Wait()
				if err := g.Wait(ctx, func() bool { return false }); err != enough {
					t.Errorf("%v, want the cause of the context", err)
				}
			})
		})
	}
}
