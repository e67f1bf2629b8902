package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/golden"
)

// benchSpec is a small device whose costs no change of the built-in model changes.
const benchSpec = "sim:total=64MiB,cost=testdata/bench-model.json"

func TestBenchOutput(t *testing.T) {
	golden.File(t, "testdata/bench-driver.txt", ok(t, "bench", "driver", "--device", benchSpec))
	golden.File(t, "testdata/help-bench.txt", ok(t, "bench", "--help"))
}

// The file that it writes is the model that the device has, as far as that is measured: its sizes end at 32 MiB.
func TestBenchWritesAModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.json")
	has(t, ok(t, "bench", "driver", "--device", benchSpec, "-o", path), "sim:cost="+path)
	read := func(name string) *sim.CostModel {
		t.Helper()
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := sim.ReadCostModel(f)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	given, found := read("testdata/bench-model.json"), read(path)
	has(t, found.About, `simulated NVIDIA H200, 67108864 bytes: medians, measured by "ashlar bench driver --device `+benchSpec+`".`)
	for c := range sim.NumCalls {
		for _, size := range []int64{1, 16, 2 << 20, 3 << 20, 20 << 20} {
			if d := found.Calls[c].At(size) - given.Calls[c].At(size); (d < -2 || d > 2) && c < sim.CallAllocHost {
				t.Errorf("%v of %d bytes: %v, want %v", c, size, found.Calls[c].At(size), given.Calls[c].At(size))
			}
		}
	}
	if found.MapNext != given.MapNext || found.UnmapNext != given.UnmapNext {
		t.Errorf("further pages %v, %v", found.MapNext, found.UnmapNext)
	}
	if out := ok(t, "bench", "driver", "--json", "--device", "sim:total=64MiB,novm", "--force", "-o", path); strings.Contains(out, "VirtualMemory") {
		t.Errorf("%s", out)
	}
	has(t, read(path).About, "Not measured, and of another model: VirtualMemory.Reserve,")
	has(t, ok(t, "bench", "driver", "--device", "sim:total=64MiB,novm", "--force", "-o", path), "Absent: VirtualMemory: the device has none.",
		"as in the built-in model: VirtualMemory.Reserve,")
}

func TestBenchJSON(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(ok(t, "bench", "driver", "--json", "--device", benchSpec)), "\n")
	want := strings.Fields("call device median_ns n note p10_ns p90_ns samples size until_done")
	for _, text := range lines {
		var keys map[string]any
		var line benchLine
		if err := json.Unmarshal([]byte(text), &keys); err != nil || !slices.Equal(slices.Sorted(maps.Keys(keys)), want) {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line.Call == "VirtualMemory.Map" && line.N == 8 && (line.MedianNS != 39000+7*25000 || line.Size != 2<<20) {
			t.Errorf("%s", text)
		}
		if line.Device != benchSpec || line.Samples < 5 || line.MedianNS <= 0 || line.P10NS > line.MedianNS || line.P90NS < line.MedianNS {
			t.Errorf("%s", text)
		}
	}
	if len(lines) < 50 {
		t.Errorf("%d lines", len(lines))
	}
}

// A device that is not simulated is measured by the clock, which in tests takes a millisecond to read, and so is opening it.
func TestBenchOnTheHost(t *testing.T) {
	out := ok(t, "bench", "driver", "--device", "host:total=64MiB")
	has(t, out, "host:total=64MiB: host memory, ", "Open 1.00ms 1.00ms 1.00ms", "Alloc 2.00MiB 0ns 0ns 0ns")
	lacks(t, out, "The costs are in")
}

func TestBenchRefusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"bench"}, exitUsage, "<what>"},
		{[]string{"bench", "allocator"}, exitUsage, `<what> "allocator": want one of driver`},
		{[]string{"bench", "driver", "--device", "tpu"}, exitUsage, "no such driver"},
		{[]string{"bench", "driver", "--device", "sim:speed=1"}, exitUsage, "unknown setting"},
		{[]string{"bench", "driver", "--device", "host:total=1MiB"}, exitInput, "1048576 bytes are free"},
		{[]string{"bench", "driver", "--device", benchSpec, "-o", "no/such/dir/file"}, exitInput, "no/such/dir/file"},
	} {
		got := ashlar(t, nil, c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.err) {
			t.Errorf("%q: exit code %d, want %d; %s", c.args, got.code, c.code, got.err)
		}
	}
}

func TestRates(t *testing.T) {
	for got, want := range map[string]string{
		rate(1<<30, 514805): "2.09TB/s", rate(1<<30, 19_400_000): "55.3GB/s", rate(2<<20, 1<<20): "2.00GB/s",
		rate(1<<20, 100<<20): "10.0MB/s", rate(5, 0): "-",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
