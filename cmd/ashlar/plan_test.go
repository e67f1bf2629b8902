package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/mem/planned"
)

// A plan is written completely, names its source, and needs little more memory than is requested.
func TestPlan(t *testing.T) {
	at := filepath.Join(t.TempDir(), "resnet.plan")
	has(t, ok(t, "plan", sample("resnet"), "-o", at), "resnet: a plan of 6,615 requests on 1 stream", "no rounds: ",
		"6,615 requests from the region, 0 by the fallback", "3.85GiB (1.0000 of the requested peak)", "device")
	var sum planSummary
	if err := json.Unmarshal([]byte(ok(t, "plan", "--json", "--device", "sim", "--force", "-o", at, sample("resnet"))), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.Requests != 6615 || sum.Placed != 6615 || sum.TracePeak != 4134814436 || sum.RequestedPeak != sum.TracePeak ||
		float64(sum.Region) > 1.005*float64(sum.TracePeak) || sum.Bound > sum.Region {
		t.Errorf("%+v", sum)
	}
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := planned.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if p.Trace != "resnet" || p.Device.Name == "" || p.Size() != sum.Region {
		t.Errorf("%q for %+v, %d bytes", p.Trace, p.Device, p.Size())
	}
	if left, err := os.ReadDir(filepath.Dir(at)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// Rounds are found, and room makes the region larger.
func TestPlanOfRounds(t *testing.T) {
	text := "device sim total=1GiB\nalloc w 5MiB\n"
	for range 5 {
		text += "alloc a 1MiB\nalloc b 2MiB\nfree a\nalloc c 3000\nfree b\nfree c\n"
	}
	script := file(t, "rounds.script", text)
	at := filepath.Join(t.TempDir(), "p")
	has(t, ok(t, "plan", script, "-o", at), "1 request once, then rounds of 3, of which the trace has 5.0")
	has(t, ok(t, "plan", "--room", "50", script, "--force", "-o", at), "room", "12.00MiB (1.5")
}

// A request that failed in the recording is served from the region, and counts in limits that are multiples of the bound.
// A request that no device has room for does not enlarge the plan.
func TestDefect03_PlansAndLimitsCountRequestsThatFailed(t *testing.T) {
	at := filepath.Join(t.TempDir(), "p")
	text := "device sim total=64MiB\nalloc a 20MiB\ntry 30MiB\ntry 1TiB\nfree a\nalloc b 10MiB\n"
	script := file(t, "tries.script", text)
	has(t, ok(t, "plan", script, "-o", at), "a plan of 3 requests", "3 requests from the region, 0 by the fallback",
		"50.00MiB at the peak of the served requests, 50.00MiB of the whole trace", "50.00MiB (1.0000 of the requested peak)")
	script = file(t, "fits.script", strings.ReplaceAll(text, "try 1TiB\n", ""))
	all := rows(t, ok(t, "replay", "--json", "-a", "planned", "--limit", "1.02x", script))
	if *all[0].Limit != 51*mib || all[0].OOMs != 0 || all[1].RequestedPeak != 50*mib {
		t.Errorf("%+v", all)
	}
}

func TestPlanErrors(t *testing.T) {
	at := filepath.Join(t.TempDir(), "p")
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"plan", sample("resnet")}},
		{exitUsage, []string{"plan", "-o", at, "--room", "2000", sample("resnet")}},
		{exitUsage, []string{"plan", "-o", at, "--ordinal", "3", sample("resnet")}},
		{exitInput, []string{"plan", "-o", at, "missing"}},
		{exitInput, []string{"plan", "-o", filepath.Join(at, "nowhere"), sample("resnet")}},
		{exitUsage, []string{"plan", "-o", at, "--device", "none", sample("resnet")}},
	} {
		if got := ashlar(t, nil, c.args...); got.code != c.code || got.err == "" {
			t.Errorf("%q: exit code %d, want %d: %s", c.args, got.code, c.code, got.err)
		}
	}
	if _, err := os.Stat(at); err == nil {
		t.Error("a plan was written")
	}
	got := ashlar(t, nil, "plan", "-o", filepath.Join(at, "nowhere"), sample("resnet"))
	if !strings.Contains(got.err, "nowhere cannot be written") || strings.Contains(got.err, "_dump_snapshot") {
		t.Errorf("a plan that cannot be written: %s", got.err)
	}
}
