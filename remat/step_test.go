package remat_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/remat"
)

// sweep makes n tensors in a row and reads them backwards. It returns the sum of the numbers read.
func sweep(t *testing.T, r *remat.Runtime, x *remat.Tensor, n int) float32 {
	t.Helper()
	s := r.Scope()
	defer s.Close()
	all := []*remat.Tensor{x}
	for range n {
		all = append(all, plus(t, s.Runtime, all[len(all)-1], 1))
	}
	sum := float32(0)
	for i := n; i > 0; i-- {
		y := ok[*remat.Tensor](t)(remat.Apply2(s.Runtime, compute.Mul, all[i], all[i]))
		sum += first(t, y)
		y.Release()
		all[i].Release()
	}
	return sum
}

// From the third on, steps follow the plan of the second. One that departs from it is right too, and the next step is
// recorded again.
func TestSteps(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 16 * kib})
	x := full(t, r, 1, 0)
	planned := []int64{0, 0, 1, 2, 2, 2, 3, 4}
	for i, want := range planned {
		n := 30
		if i == 4 { // which departs
			n = 29
		}
		err := r.Step(func() error {
			if got, want := sweep(t, r, x, n), float32(n*(n+1)*(2*n+1)/6); got != want {
				t.Errorf("step %d: the sum is %v, want %v", i, got, want)
			}
			return nil
		})
		r.WaitForPlan()
		if s := r.Stats(); err != nil || s.Planned != want {
			t.Errorf("after step %d: %d steps were planned, want %d; %v", i, s.Planned, want, err)
		}
	}
	if s := r.Stats(); s.Remade == 0 || s.Peak > s.Budget {
		t.Errorf("%+v", s)
	}
}

// A step that fails or panics is no recording, and leaves no step open.
func TestStepsThatFail(t *testing.T) {
	r, _ := open(t, remat.Config{Budget: 16 * kib})
	x := full(t, r, 1, 0)
	broken := errors.New("broken")
	for range 3 {
		if err := r.Step(func() error { plus(t, r, x, 1).Release(); return broken }); err != broken {
			t.Errorf("the error is %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			r.Step(func() error { panic(broken) })
		}()
	}
	if err := r.Step(func() error { return r.Step(func() error { return nil }) }); err == nil {
		t.Error("steps nest")
	}
	if n := r.Stats().Planned; n != 0 {
		t.Errorf("%d steps were planned", n)
	}
}

// Planned steps with copies to the host are right, whatever the speed of the link. An input that is being made ready
// for an operation is not evicted for another that is copied back ahead of need.
func TestStepsWithCopies(t *testing.T) {
	for _, link := range []float64{1e8, 1e9, 1e10, 1e12} {
		for _, budget := range []int64{6, 9, 12, 16} {
			r, _ := open(t, remat.Config{
				Budget: budget * kib, Spill: remat.Spill{Limit: 64 * kib, Bandwidth: link},
			})
			x := full(t, r, 1, 0)
			for range 5 {
				err := r.Step(func() error {
					return across(t, r, x, 40)
				})
				r.WaitForPlan()
				if err != nil {
					t.Fatal(err)
				}
			}
			if s := r.Stats(); s.Planned != 3 {
				t.Errorf("%d steps were planned, want 3", s.Planned)
			}
		}
	}
}

// across makes n tensors in a row and reads pairs of them from both ends.
func across(t *testing.T, r *remat.Runtime, x *remat.Tensor, n int) error {
	s := r.Scope()
	defer s.Close()
	all := []*remat.Tensor{x}
	for range n {
		all = append(all, plus(t, s.Runtime, all[len(all)-1], 1))
	}
	for i := n; i > 0; i-- {
		j := i * 7 % (n + 1)
		y := ok[*remat.Tensor](t)(remat.Apply2(s.Runtime, compute.Mul, all[i], all[j]))
		if got := first(t, y); got != float32(i*j) {
			t.Errorf("%d times %d is %v", i, j, got)
		}
		y.Release()
	}
	return nil
}

// A runtime goes on in the mode that was fastest by the device's clock: here without copies, over a link that is said
// to be much faster than it is.
func TestStepsTakeTheFastestMode(t *testing.T) {
	c := remat.Config{Budget: 2 << 20, Spill: remat.Spill{Limit: 64 << 20, Bandwidth: 1e15}}
	r, _ := open(t, c)
	x := full(t, r, 256, 1)
	copied := int64(0)
	for i := range 12 {
		before := r.Stats().CopiedIn
		if err := r.Step(func() error { sweep(t, r, x, 20); return nil }); err != nil {
			t.Fatal(err)
		}
		r.WaitForPlan()
		if copied = r.Stats().CopiedIn - before; i == 2 && copied == 0 {
			t.Error("the first planned step copied nothing")
		}
	}
	if copied != 0 {
		t.Errorf("the last step copied %d bytes", copied)
	}
}
