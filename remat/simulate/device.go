package simulate

import "github.com/ashlar-go/ashlar/remat/internal/schedule"

// A device has a clock and no contents.
type device struct {
	now   int64 // ns
	limit int64 // of now; 0 is none
}

// Compute implements schedule.Executor.
func (d *device) Compute(r *schedule.Run) (int64, error) {
	cost := r.Work.(int64)
	d.now += cost
	if d.limit > 0 && d.now > d.limit {
		return 0, errTime
	}
	return 0, nil // the cost was announced
}

// Drop implements schedule.Executor.
func (*device) Drop(schedule.Storage) {}

// ForgetStorage implements schedule.Executor.
func (*device) ForgetStorage(schedule.Storage) {}

// ForgetOp implements schedule.Executor.
func (*device) ForgetOp(schedule.Op) {}
