package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
)

// A plan of a recording serves all of it with hardly more memory than is requested at the peak, without a driver call
// after the first.
func TestRecordedTracesByPlan(t *testing.T) {
	for _, name := range []string{"gpt2", "resnet", "unet"} {
		w := works(t, name)[0]
		c, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"planned"}, Smallest: true})
		if err != nil {
			t.Fatal(err)
		}
		row := &c.Rows[0]
		if over := c.OverBound(row); !row.Completed() || row.Waste() > 1.005 || over > 1.005 || row.Later.DriverCalls != 0 || row.Stalls != 0 {
			t.Errorf("%s: reserved %.4f times what is requested, smallest limit %.4f; %+v", name, row.Waste(), over, row.Later)
		}
	}
}

// The bound of a recording that ran out of memory counts the request that failed, which rows serve too: a plan has a place for
// it, and nothing is compared with what is less than any row needs. Where the device is too small for it, the plan leaves it out.
func TestDefect03_RequestsThatFailedCountInTheBound(t *testing.T) {
	w := works(t, "gpt2.oom")[0]
	specs := []string{replay.AsRecorded, "paged", "planned"}
	c, err := replay.Compare(w, replay.CompareOptions{Specs: specs, Limit: 19541098496, Smallest: true}) // 18.2 GiB
	if err != nil {
		t.Fatal(err)
	}
	failed := w.Failures[0]
	if at := failed.Requested + failed.Size; c.Bound.RequestedPeak != at || c.Bound.ReservedPeak != at || c.Bound.SmallestLimit != at {
		t.Errorf("the bound is %+v, want %d", c.Bound, at)
	}
	for i, most := range []float64{1.06, 1.003, 1.0005} {
		row := &c.Rows[i]
		if over := c.OverBound(row); over < 1 || over > most {
			t.Errorf("%s: the smallest limit is %.4f of the bound, want 1 to %.4f", row.Allocator, over, most)
		}
		if row.Completed() && (row.RequestedPeak != c.Bound.RequestedPeak || row.ReservedPeak < c.Bound.ReservedPeak) {
			t.Errorf("%s completes with %d requested and %d reserved; the bound is %d", row.Allocator, row.RequestedPeak, row.ReservedPeak,
				c.Bound.ReservedPeak)
		}
	}
	if c.Rows[0].Completed() || !c.Rows[1].Completed() || !c.Rows[2].Completed() || c.Best != 2 {
		t.Errorf("row %d is the best; %v", c.Best, c.Rows)
	}
	hopeless := scriptWork(t, "alloc a 100MiB\ntry 500TiB\nalloc b 100MiB\n")
	h, err := replay.Compare(hopeless, replay.CompareOptions{Specs: []string{"planned"}})
	if err != nil {
		t.Fatal(err)
	}
	if row := &h.Rows[0]; row.Allocs != 2 || row.ReservedPeak >= 400<<20 || h.Bound.RequestedPeak != 500<<40+100<<20 {
		t.Errorf("%+v, bound %d", row, h.Bound.RequestedPeak)
	}
	small, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"planned"}, Capacity: 10 << 30})
	if err != nil || small.Rows[0].Completed() || small.Rows[0].ReservedPeak > 10<<30 {
		t.Errorf("on a device that has no room for the plan: %+v, %v", small, err)
	}
}

// planFile writes a plan to a new file.
func planFile(t *testing.T, plan *planned.Plan) (path string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "test.plan"))
	testkit.Must(t, err)
	_, err = plan.WriteTo(f)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	return f.Name()
}

// A plan in a file belongs to the trace that it was made from; other work is still served, by paged memory.
func TestPlanInAFile(t *testing.T) {
	resnet, unet := works(t, "resnet")[0], works(t, "unet")[0]
	plan, err := planned.Make(context.Background(), resnet.Program, planned.Options{Trace: "resnet"})
	if err != nil {
		t.Fatal(err)
	}
	path := planFile(t, plan)
	for _, w := range []*replay.Work{resnet, unet} {
		c, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"planned:" + path}})
		if err != nil {
			t.Fatal(err)
		}
		row := &c.Rows[0]
		if !row.Completed() || (row.ReservedPeak == plan.Size()) != (w == resnet) {
			t.Errorf("%d requests: reserved %d, the plan has %d; %v", row.Allocs, row.ReservedPeak, plan.Size(), row.Failure)
		}
	}
	// Where the region itself has no room, or the limit leaves nothing beside it, the limit holds.
	peak := resnet.Program.Stats().PeakBytes
	for _, limit := range []int64{peak + 16<<20, plan.Size(), plan.Size() - 1} {
		c, err := replay.Compare(resnet, replay.CompareOptions{Specs: []string{"planned:" + path}, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if row := &c.Rows[0]; row.ReservedPeak > limit || row.Completed() != (limit >= plan.Size()) {
			t.Errorf("within %d: reserved %d, completed %v", limit, row.ReservedPeak, row.Completed())
		}
	}
	if err := os.WriteFile(path, []byte("no plan"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, path + ".none"} {
		if _, err := replay.ParseSpec("planned:"+bad, resnet.Recorded); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Planning while the work runs needs no knowledge of it, and hardly more memory than paged memory alone if steps never
// repeat, as in this recording.
func TestWorkIsPlannedWhileItRuns(t *testing.T) {
	w := works(t, "unet")[0]
	c, err := replay.Compare(w, replay.CompareOptions{Specs: []string{"paged", "planned:learn"}, Smallest: true})
	testkit.Must(t, err)
	alone, learned := c.OverBound(&c.Rows[0]), c.OverBound(&c.Rows[1])
	if !c.Rows[1].Completed() || learned < 1 || learned > alone+0.002 {
		t.Errorf("the smallest limit is %.4f of the bound, and %.4f on paged memory alone", learned, alone)
	}
}
