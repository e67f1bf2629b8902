package campaign

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/layer"
)

const (
	patience = 10 * time.Second
	workers  = 8
)

// A waiter is an allocator of 64 MiB whose requests wait for room.
type waiter struct {
	open func(dev driver.Device) (mem.Allocator, error)

	// mixed is true if requests may have any size. An allocator with one range of addresses gets requests of one size:
	// among blocks of several sizes, a large request may find no room for as long as smaller ones do.
	mixed bool
}

func waiters() map[string]waiter {
	wait := layer.RetryOptions{Wait: layer.WaitTimeout(patience)}
	return map[string]waiter{
		"a limit": {mixed: true, open: func(dev driver.Device) (mem.Allocator, error) {
			a, err := cached(dev, "")
			return layer.NewRetry(layer.NewLimiter(a, 64*mib), wait), err
		}},
		"the limit of caching": {open: func(dev driver.Device) (mem.Allocator, error) {
			a, err := cached(dev, "limit:64MiB,expandable_segments:True")
			return layer.NewRetry(a, wait), err
		}},
		"bfc": {open: func(dev driver.Device) (mem.Allocator, error) {
			return bfc.New(dev, bfc.Config{Limit: 64 * mib, Retry: layer.WaitTimeout(patience)})
		}},
	}
}

// On virtual time: goroutines that each hold one block at a time, for less than the others wait in all, are all served.
// When one of them keeps the memory, the others fail at the end of their patience, not before and not after.
func TestWaiting(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for name, w := range waiters() {
			synctest.Test(t, func(t *testing.T) {
				dev := sim.New(sim.Options{Total: 512 * mib, Unchecked: true})
				a, err := w.open(dev)
				testkit.Must(t, err)
				var group sync.WaitGroup
				for n := range workers {
					group.Go(func() {
						rng := rand.New(rand.NewPCG(seed, uint64(n)))
						for range *ops / workers {
							// Each has at most a quarter of the memory, and holds it for a fortieth of the patience at most.
							size := int64(16 * mib)
							if w.mixed {
								size = 1 + rng.Int64N(size)
							}
							b, err := a.Alloc(dev.DefaultStream(), size)
							if err != nil {
								t.Errorf("%s: %v", name, err)
								return
							}
							time.Sleep(time.Duration(rng.Int64N(int64(patience / 40))))
							a.Free(b)
							time.Sleep(time.Nanosecond) // those that wait ask again first
							p.done.Add(2)
						}
					})
				}
				group.Wait()
				all, err := a.Alloc(dev.DefaultStream(), 60*mib)
				testkit.Must(t, err)
				for range workers {
					group.Go(func() {
						start := time.Now()
						_, err := a.Alloc(dev.DefaultStream(), 30*mib)
						if took := time.Since(start); took != patience || !errors.Is(err, mem.ErrNoMemory) || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%s: %v after %v, want no room after %v", name, err, took, patience)
						}
					})
				}
				group.Wait()
				a.Free(all)
				closer, _ := mem.Find[interface{ Close() error }](a)
				testkit.Must(t, errors.Join(closer.Close(), dev.Close()))
			})
		}
	})
}
