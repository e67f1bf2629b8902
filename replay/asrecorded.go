package replay

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

// fromRecording fills the row AsRecorded from Verify's run, and reports whether that was possible. If not, it adds a
// note with the reason.
func (c *comparer) fromRecording(row *Row) bool {
	w := c.w
	if w.snapshot == nil || w.part {
		return false
	}
	cfg := w.Recorded
	cfg.PyTorchExact = true
	if c.opts.Limit > 0 {
		cfg.Limit = c.opts.Limit
	}
	v, err := w.verify(cfg, c.opts.Capacity)
	if why := c.whyNot(&v, err); why != "" {
		row.Notes = append(row.Notes, "As recorded: "+why)
		return false
	}
	row.FromRecording = true
	row.Ops, row.Allocs = len(w.Program.Ops), v.Allocs
	row.RequestedPeak, row.AllocatedPeak, row.ReservedPeak = v.Peaks.Requested, v.AllocatedPeak, v.Peaks.Reserved
	row.Priced, row.DriverUse = true, v.DriverUse
	if v.Before != nil {
		n := len(w.Program.Ops)
		row.Later = &Later{DriverUse: v.DriverUse.Since(*v.Before), Recorded: w.recorded(thirdOf(w.Program), n)}
	}
	row.Retries, row.OOMs, row.FirstOOM = v.Retries, v.OOMs, -1
	if v.OOMs > 0 {
		for i := range w.Program.Ops {
			if w.Program.Ops[i].Kind == trace.OpTry {
				row.FirstOOM = i
				break
			}
		}
	}
	row.AtPeak = v.AtPeak
	switch {
	case v.LimitFound:
		row.Notes = append(row.Notes, fmt.Sprintf("The recording was made under a memory limit that the file does "+
			"not name; when garbage was collected shows that it was about %s. The other rows have none: --limit "+
			"gives them one.",
			bytesize.Format(v.Limit)))
	case c.result.LimitRecorded && w.LimitKnown || len(c.specs) == 1:
	case c.result.LimitRecorded:
		row.Notes = append(row.Notes, "The file does not say how much memory there was when this was recorded. The "+
			"other rows may reserve what it is known to have been able to; --limit or --capacity give them "+
			"something else.")
	case v.Refusals > 0:
		row.Notes = append(row.Notes, "The driver, or a limit, refused memory when this was recorded. The other rows "+
			"have the whole device: --limit and --capacity give them less.")
	}
	return true
}

// repeatFailure runs the recorded settings with the reserved memory at the recorded failure as the limit, to obtain the
// allocator's error. It returns nil if that request does not fail, or another one does.
func (c *comparer) repeatFailure(op int, s *Spec) (*OOM, error) {
	if op < 0 {
		return nil, nil
	}
	limit := c.result.Limit
	limit = cmp.Or(limit, c.w.RecordedLimit)
	run := simulation{work: c.w, spec: s, limit: limit, capacity: c.opts.Capacity}
	res, err := run.do()
	if err != nil || len(res.OOMs) == 0 || res.OOMs[0].Op != op {
		return nil, nil // the row already has figures from the recording
	}
	failure := &res.OOMs[0]
	return failure, c.tryRemedies(failure, s, limit)
}

// whyNot returns the reason why a verdict is unsuitable for the row AsRecorded, or "" if it is suitable.
func (c *comparer) whyNot(v *verify.Verdict, err error) string {
	const equal = "so these are the figures of an equal run on the simulated device"
	exact := err == nil && v.Difference == nil
	switch {
	case exact && v.Peaks.Reserved <= c.opts.Capacity && (c.opts.Limit == 0 || v.Refusals == 0):
		return ""
	case exact, err == nil && c.opts.Limit > 0:
		return "with this much memory the run would have gone otherwise than it was recorded, so these are the " +
			"figures of a run on the simulated device."
	case c.w.Program.Anomalies.Count > 0 && c.w.Program.Prelude.Blocks == 0:
		return "entries contradict each other, so the recording cannot be followed, and these are the figures of a " +
			"run on the simulated device."
	case c.w.Program.Prelude.Blocks > 0 || errors.Is(err, verify.ErrLateStart):
		return "what was there before the recording is not in the file, " + equal + "; PyTorch's may differ."
	case err != nil:
		return fmt.Sprintf("the recording could not be followed (%v), %s.", err, equal)
	default:
		return fmt.Sprintf("the allocator did not follow the recording, which reserved %s (%v), %s.",
			bytesize.Format(v.RecordedPeaks.Reserved), v.Difference, equal)
	}
}

// verify follows the recording. Among the interpretations that fit, it prefers that of ToProgram: memory that was freed
// without need was freed by emptying the cache.
func (w *Work) verify(cfg caching.Config, total int64) (verify.Verdict, error) {
	opts := verify.Options{Config: &cfg, TotalMemory: total, SplitAt: w.entryOf(thirdOf(w.Program))}
	for i := range w.Program.Ops {
		if w.Program.Ops[i].Kind == trace.OpEmptyCache {
			opts.EmptiedAt = append(opts.EmptiedAt, int(w.Program.Entries[i]))
		}
	}
	return verify.Device(w.snapshot, w.Device, opts)
}
