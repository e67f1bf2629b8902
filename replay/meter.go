package replay

import (
	"cmp"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// A meter reports progress in steps of equal weight. Safe for concurrent use.
type meter struct {
	mu     sync.Mutex
	report func(done float64) // called under mu; may be nil
	steps  int
	done   int
}

func newMeter(report func(float64), steps int) *meter {
	return &meter{report: report, steps: max(steps, 1)}
}

// step completes a step.
func (m *meter) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	m.update(0)
}

// within reports the completed part of the current step, if there is only one.
func (m *meter) within(part float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.update(part)
}

func (m *meter) update(part float64) {
	if m.report != nil {
		m.report(min((float64(m.done)+part)/float64(m.steps), 1))
	}
}

// parallel calls do for 0 to n-1 from workers goroutines (0 means one for each core) and joins the errors. After an
// error it begins no further calls.
func parallel(n, workers int, do func(i int) error) error {
	workers = cmp.Or(workers, runtime.GOMAXPROCS(0))
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
