package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/replay"
)

// A plan of a recording serves all of it from hardly more than what is requested at the peak, without a call of the driver
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

// A plan in a file is that of the trace that it was made of; other work is served all the same, by paged memory.
func TestPlanInAFile(t *testing.T) {
	resnet, unet := works(t, "resnet")[0], works(t, "unet")[0]
	plan, err := planned.Make(context.Background(), resnet.Program, planned.Options{Trace: "resnet"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "resnet.plan")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
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
