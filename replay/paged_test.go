package replay_test

import (
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/workloads"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Of 16 programs of each workload, one of checkpoint needs 1.0042, and of the mixtures of experts one needs more than
// 1.045 and two reserve more than 1.06.
var workloadSeeds = flag.Uint64("workloads", 1, "programs of each workload that TestPagedOnWorkloads runs")

// runPaged runs a program on paged memory of a simulated device.
func runPaged(t *testing.T, p *trace.Program, limit int64) replay.Result {
	t.Helper()
	dev := sim.New(sim.Options{Unchecked: true})
	defer dev.Close()
	a, err := paged.New(dev, paged.Config{Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	res, err := replay.Run(p, replay.AtOnce(a), dev, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// The memory that work needs, as multiples of the bytes requested and allocated at its peak.
type need struct{ limit, reserved float64 }

// Work that no recording here has needs hardly more than is requested of it at its peak. What needs more is work whose
// blocks of many sizes stay while those beside them go, each keeping parts of two pages for itself.
func TestPagedOnWorkloads(t *testing.T) {
	usual := need{limit: 1.004, reserved: 1.02}
	more := map[string]need{
		"moe":            {limit: 1.045, reserved: 1.06}, // what experts save, in the space of others' temporaries; the peak is one block
		"serving":        {limit: 1.007, reserved: 1.02}, // caches that outlive the smaller ones beside them
		"serving-blocks": {limit: 1.005, reserved: 1.02}, // blocks of half a page
	}
	for _, w := range workloads.All() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			want, ok := more[w.Name]
			if !ok {
				want = usual
			}
			for seed := uint64(1); seed <= *workloadSeeds; seed++ {
				p := w.Program(seed)
				peak := float64(onLoanPeak(p))
				if under := runPaged(t, p, int64(want.limit*peak)); !under.Completed {
					t.Errorf("seed %d: %.4f of what is requested is not enough: %v", seed, want.limit, under.OOMs[0].Err)
				}
				free := runPaged(t, p, 0)
				if got := float64(free.ReservedPeak) / peak; !free.Completed || got > want.reserved {
					t.Errorf("seed %d: %.4f of what is requested is reserved without a limit, want at most %.4f", seed, got, want.reserved)
				}
			}
		})
	}
}

// Recordings that no rule of placement was chosen by.
func TestPagedOnUnseenRecordings(t *testing.T) {
	for name, want := range map[string]need{
		"vit":          {limit: 1.005, reserved: 1.006},
		"recommend":    {limit: 1.0125, reserved: 1.0245},
		"speech":       {limit: 1.015, reserved: 1.0175},
		"graph":        {limit: 1.002, reserved: 1.01},
		"checkpointed": {limit: 1.0075, reserved: 1.027},
		"experts":      {limit: 1.002, reserved: 1.004},
		"serving":      {limit: 1.011, reserved: 1.011},
	} {
		s, err := snapshot.ReadFile(traces + name + ".pickle.xz")
		testkit.Must(t, err)
		w, err := replay.Works(s)
		testkit.Must(t, err)
		found, err := replay.SearchLimits([]replay.LimitSearch{{Work: w[0], Spec: "paged"}}, replay.LimitOptions{})
		testkit.Must(t, err)
		peak := float64(w[0].Program.Stats().PeakBytes)
		got := need{float64(found[0].Limit) / peak, float64(found[0].Free.ReservedPeak) / peak}
		if got.limit > want.limit || got.reserved > want.reserved {
			t.Errorf("%s needs %.4f of what it requests under a limit, and reserves %.4f without: want at most %v",
				name, got.limit, got.reserved, want)
		}
	}
}
