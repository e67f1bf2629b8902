package replay

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// A meter tells how much of a piece of work is done, in steps of equal weight. Safe for concurrent use.
type meter struct {
	mu    sync.Mutex
	tell  func(done float64) // under mu; nil for nobody
	steps int
	done  int
}

func newMeter(tell func(float64), steps int) *meter { return &meter{tell: tell, steps: max(steps, 1)} }

// step says that one more step is done.
func (m *meter) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	m.report(0)
}

// within says which part of the next step is done, while only one is under way.
func (m *meter) within(part float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report(part)
}

func (m *meter) report(part float64) {
	if m.tell != nil {
		m.tell(min((float64(m.done)+part)/float64(m.steps), 1))
	}
}

// parallel calls do for 0..n-1 from as many goroutines as workers says, 0 meaning one for each core, and joins the
// errors. After an error no further calls begin.
func parallel(n, workers int, do func(i int) error) error {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	failures := make([]error, n)
	for range min(workers, n) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if failures[i] = do(i); failures[i] != nil {
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}
