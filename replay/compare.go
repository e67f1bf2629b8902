package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/replay/verify"
)

// CompareOptions configure Compare. The zero value compares the default specs on a simulated H200.
type CompareOptions struct {
	// Specs are the rows. Nil means DefaultSpecs.
	Specs []string

	// Limit is the maximum of reserved bytes of each allocator; 0 means no limit. If neither Limit nor Capacity is set,
	// the rows other than AsRecorded have the limit Work.RecordedLimit, so that a recording with a limit, or one that
	// ran out of memory, is compared under similar conditions.
	Limit int64

	// Capacity is the device's memory in bytes, at most sim.MaxTotal; 0 means that of the script, or else an H200's.
	Capacity int64

	// OpenDevice opens a new device with capacity bytes for a run. If nil, devices are simulated: rows are then
	// computed in parallel, and driver calls have modelled times. Other devices are used by one run at a time, and
	// driver calls are timed.
	OpenDevice func(capacity int64) (driver.Device, error)

	// Contents writes a pattern into every block and checks it. It is not intended for simulated devices.
	Contents Contents

	// Smallest searches for the smallest limit of each row, always on simulated devices, and chooses the best row by
	// it.
	Smallest bool

	// Now returns the current time, for Row.NsPerOp and, on real devices, DriverUse.DriverTime. Nil measures no time.
	Now func() time.Time

	// Progress is called repeatedly, by one goroutine at a time, with the completed part of the work, from 0 to 1.
	Progress func(done float64)
}

// A Comparison is one device's work on several allocators.
type Comparison struct {
	Work     *Work
	Rows     []Row
	Bound    Row   // the lower bound: see Bound; not in Rows
	Best     int   // index into Rows: see better; -1 if none completed
	Capacity int64 // bytes
	Limit    int64 // bytes; 0 without one

	LimitRecorded bool // Limit is Work.RecordedLimit
	BySmallest    bool // Best was chosen by the smallest limit
}

// A Row is the outcome of the work on one allocator.
type Row struct {
	Allocator string // the spec; Bound of that row
	Ops       int    // number of ops that were run, including one that failed
	Allocs    int    // successful allocations

	RequestedPeak int64 // requested bytes of active blocks
	AllocatedPeak int64 // bytes of allocated blocks
	ReservedPeak  int64 // bytes in segments and mapped pages; -1 if the allocator does not report it

	Priced           bool   // the device was simulated, so that DriverTime is by its cost model
	verify.DriverUse        // in the whole run, including opening the allocator
	Later            *Later // after the first third of the run; nil if it ended before

	Retries  int64 // requests that needed the whole cache freed first
	OOMs     int   // requests without room; the run ends at the first one that had room when it was recorded
	FirstOOM int   // index of the first of these ops; -1 if there is none
	Failure  *OOM  // the first failure; nil if there is none, or if no plain run repeats the recorded one

	Moves         *arena.MoveStats // moves to make room; nil for an allocator that never moves blocks
	SmallestMoves *arena.MoveStats // the same under the smallest limit, if that was searched

	NsPerOp       float64 // measured: the fastest of three runs without parallel work; 0 if not measured
	SmallestLimit int64   // bytes, a multiple of 1 MiB; 0 if not searched, -1 if no limit is enough; see SmallestLimit

	FromRecording bool         // peaks and counts are those of the recording, which mem/caching followed exactly
	AtPeak        verify.Usage // usage when the reserved memory first reached its peak; of the row AsRecorded only
	Notes         []string
}

// Completed reports whether every request had room.
func (r *Row) Completed() bool { return r.OOMs == 0 }

// Waste returns the reserved peak as a multiple of the requested peak, or 0 if there is none. It is less than 1 if
// memory that other streams still used was reused at once (AtOnce).
func (r *Row) Waste() float64 {
	if r.RequestedPeak <= 0 || r.ReservedPeak < 0 {
		return 0
	}
	return float64(r.ReservedPeak) / float64(r.RequestedPeak)
}

// Saving returns by how many bytes the reserved peak of the best row is lower than that of the row AsRecorded, or 0 if
// either is missing.
func (c *Comparison) Saving() int64 {
	recorded := c.RecordedRow()
	if recorded == nil || c.Best < 0 || recorded.ReservedPeak < 0 {
		return 0
	}
	return max(0, recorded.ReservedPeak-c.Rows[c.Best].ReservedPeak)
}

// RecordedRow returns the row of the recorded allocator and settings, or nil.
func (c *Comparison) RecordedRow() *Row {
	for i := range c.Rows {
		if c.Rows[i].Allocator == AsRecorded {
			return &c.Rows[i]
		}
	}
	return nil
}

// Compare runs w on each of the allocators that opts.Specs name, each on its own device.
//
// The row AsRecorded on a simulated device has PyTorch's own figures: if verify.Device, given the limit, follows the
// recording exactly, then peaks, counts and prices are those of its run, with segments at their recorded addresses. In
// a plain run they have other addresses. Best fit chooses the lower address of two blocks of equal size, so the peaks
// then differ slightly. If verify.Device is not exact, the row has the figures of the plain run and a note.
//
// A row that runs out of memory is not an error. If no row completes on a simulated device, the smallest limits are
// searched even without Smallest. The error is a *SpecError, or that of Run.
func Compare(w *Work, opts CompareOptions) (*Comparison, error) {
	c := &comparer{w: w, opts: opts, result: &Comparison{
		Work: w, Best: -1, Limit: opts.Limit,
		BySmallest: opts.Smallest,
	}}
	if opts.Limit == 0 && opts.Capacity == 0 {
		c.result.Limit = w.RecordedLimit
	}
	c.result.LimitRecorded = c.result.Limit > 0 && c.result.Limit == w.RecordedLimit
	capacity, err := w.capacity(opts.Capacity)
	if err != nil {
		return nil, err
	}
	c.opts.Capacity, c.result.Capacity = capacity, capacity
	if opts.Specs == nil {
		if opts.Specs, err = DefaultSpecs(w, CompareOptions{
			Limit: c.result.Limit, Capacity: c.result.Capacity, Smallest: opts.Smallest,
		}); err != nil {
			return nil, err
		}
	}
	for _, text := range opts.Specs {
		s, err := ParseSpec(text, w.Recorded)
		if err != nil {
			return nil, err
		}
		c.specs = append(c.specs, s)
	}
	if err := c.run(); err != nil {
		return nil, err
	}
	c.result.chooseBest()
	return c.result, nil
}

// timedRuns is the number of timed runs of a row. Noise only adds time, so the fastest counts.
const timedRuns = 3

// A comparer is the state of Compare.
type comparer struct {
	w      *Work
	opts   CompareOptions
	specs  []Spec
	result *Comparison
	meter  *meter
}

func (c *comparer) run() error {
	rows := make([]Row, len(c.specs))
	timed := 0
	simulated := c.opts.OpenDevice == nil
	if simulated && c.opts.Now != nil {
		timed = timedRuns
	}
	steps := len(c.specs) * (1 + timed)
	if c.opts.Smallest && simulated {
		steps += len(c.specs) * smallestRuns
	}
	c.meter = newMeter(c.opts.Progress, steps)
	searches := c.meter
	if !simulated {
		searches = newMeter(nil, 1) // they take little time compared to filling real memory
	}
	workers := 1
	if simulated {
		workers = 0
	}
	err := parallel(len(c.specs), workers, func(i int) (err error) {
		rows[i], err = c.row(&c.specs[i])
		return err
	})
	if err != nil {
		return err
	}
	if c.opts.Smallest || simulated && !slices.ContainsFunc(rows, func(r Row) bool { return r.Completed() }) {
		if !c.opts.Smallest {
			searches = newMeter(nil, 1) // they are not part of the planned steps
		}
		err := parallel(len(c.specs), 0, func(i int) (err error) {
			search := limitSearch{work: c.w, spec: &c.specs[i], capacity: c.opts.Capacity, meter: searches}
			found, err := search.do()
			rows[i].SmallestLimit, rows[i].SmallestMoves = found.Limit, found.Smallest.Moves
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range rows {
		for range timed {
			if err := c.time(&rows[i], &c.specs[i]); err != nil {
				return err
			}
			c.meter.step()
		}
		rows[i].noteMoves()
	}
	c.result.Rows = rows
	c.result.Bound = c.bound()
	return nil
}

// row computes all fields except the time.
func (c *comparer) row(s *Spec) (row Row, err error) {
	defer c.meter.step()
	row = Row{Allocator: s.Text, Notes: s.Notes}
	if s.Text == AsRecorded && c.opts.OpenDevice == nil && c.fromRecording(&row) {
		row.Failure, err = c.repeatFailure(row.FirstOOM, s)
		return row, err
	}
	run := simulation{work: c.w, spec: s, limit: c.result.Limit, capacity: c.opts.Capacity, open: c.opts.OpenDevice}
	run.opts.Contents = c.opts.Contents
	if c.opts.OpenDevice != nil {
		run.opts.Now = c.opts.Now
		run.opts.Drain = true // so that the remaining blocks are checked, too
		stats := c.w.Program.Stats()
		run.onAlloc = func(n int) { c.meter.within(float64(n) / float64(stats.Allocs+stats.Attempts)) }
	}
	res, err := run.do()
	if err != nil {
		return row, fmt.Errorf("%s: %w", s.Text, err)
	}
	row.fill(&res)
	if err := c.tryRemedies(row.Failure, s, c.result.Limit); err != nil {
		return row, err
	}
	row.NsPerOp = res.NsPerOp()
	if s.Text == AsRecorded {
		row.AtPeak = run.usageAtPeak()
	}
	return row, nil
}

func (r *Row) fill(res *simulationResult) {
	r.Ops, r.Allocs = res.Ops, res.Allocs
	r.RequestedPeak, r.AllocatedPeak, r.ReservedPeak = res.RequestedPeak, res.AllocatedPeak, res.ReservedPeak
	r.Priced, r.DriverUse, r.Later = res.priced, res.use, res.later
	r.Moves = res.moves
	r.Retries, r.OOMs, r.FirstOOM = res.retries, res.NumOOMs, -1
	if len(res.OOMs) > 0 {
		r.FirstOOM = res.OOMs[0].Op
		r.Failure = &res.OOMs[0]
	}
}

// noteMoves adds notes about moved blocks. The driver calls and their time do not include moves.
func (r *Row) noteMoves() {
	note := func(where string, m *arena.MoveStats) {
		if m == nil || m.Compactions == 0 {
			return
		}
		times := "once"
		if m.Compactions > 1 {
			times = fmt.Sprintf("%d times", m.Compactions)
		}
		r.Notes = append(slices.Clip(r.Notes), fmt.Sprintf("%s%s moved blocks %s, %s in total.",
			r.Allocator, where, times, bytesize.Format(m.Bytes)))
	}
	note("", r.Moves)
	note(", under its smallest limit,", r.SmallestMoves)
}

// time measures a plain run, and keeps the best time.
func (c *comparer) time(row *Row, s *Spec) error {
	run := simulation{work: c.w, spec: s, limit: c.result.Limit, capacity: c.opts.Capacity, ungauged: true}
	run.opts.Now = c.opts.Now
	res, err := run.do()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Text, err)
	}
	if ns := res.NsPerOp(); row.NsPerOp == 0 || ns < row.NsPerOp {
		row.NsPerOp = ns
	}
	return nil
}

func (c *Comparison) chooseBest() {
	for i := range c.Rows {
		r := &c.Rows[i]
		if !r.Completed() || r.ReservedPeak < 0 {
			continue
		}
		if c.Best < 0 || better(r, &c.Rows[c.Best], c.BySmallest) {
			c.Best = i
		}
	}
}

// LeastLimit returns the row with the smallest limit of all, or nil if none was searched or no limit is enough.
func (c *Comparison) LeastLimit() *Row {
	var least *Row
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.SmallestLimit > 0 && (least == nil || r.SmallestLimit < least.SmallestLimit) {
			least = r
		}
	}
	return least
}

// better reports whether row a is preferable to row b; both completed. It compares the smallest limits if bySmallest is
// set, then the reserved peaks, then the numbers of driver calls.
func better(a, b *Row, bySmallest bool) bool {
	if bySmallest && a.SmallestLimit != b.SmallestLimit && a.SmallestLimit > 0 {
		return b.SmallestLimit <= 0 || a.SmallestLimit < b.SmallestLimit
	}
	if bySmallest && a.SmallestLimit != b.SmallestLimit && b.SmallestLimit > 0 {
		return false
	}
	if a.ReservedPeak != b.ReservedPeak {
		return a.ReservedPeak < b.ReservedPeak
	}
	return a.DriverCalls < b.DriverCalls
}
