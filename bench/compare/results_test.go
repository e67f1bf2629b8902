package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// example are results with every kind of content.
func example() *results {
	r := &results{
		Command: "compare", Started: "2026-01-02T03:04:05Z", Seconds: 61.5, Machine: map[string]string{"go: device": "a GPU"},
		Settings: settings{Reps: 3, Millis: 100, Live: 4096, WarmRounds: 64, Rounds: 32, Seed: 1, Largest: 1 << 30, Threads: 16},
		Build:    []attempt{{"g++ -std=c++20", "error: no", false}, {"g++ -std=c++17", "", true}},
		Failures: []failure{{"warm: go, asked \"x\"", "first line\nsecond line"}},
	}
	for _, s := range []float64{330, 350, 340} {
		r.add(place{"warm", "512 B", colPyTorch}, s)
	}
	r.add(place{"warm", "512 B", colAshlar}, 68)
	r.add(place{"warm", "4 KiB", colPyTorch}, 100)
	r.add(place{"warm", "4 KiB", colAshlar}, 20.1)
	r.add(place{"replace", colPyTorch, colTime}, 1000)
	r.add(place{"replace", colAshlar, colTime}, 249)
	for _, side := range []string{colPyTorch, colAshlar} {
		r.add(place{"replace", side, colRequested}, 26560000001)
		r.add(place{"replace", side, colReserved}, 30060000000)
	}
	r.add(place{"replace", colAshlar, colReserved}, 30060000512)
	r.add(place{"threads-own", "16", colPyTorch}, 0.4)
	r.add(place{"threads-own", "16", colAshlar}, 12)
	r.add(place{"threads-one", "16", colPyTorch}, 0.4)
	r.add(place{"threads-one", "16", colMagazines}, 3.9)
	r.add(place{"in", "1 GiB", colCopy}, 40)
	r.add(place{"out", "1 GiB", colCopy}, 39.9)
	r.add(place{"device", "copy of 1 GiB", colCUDA}, 4000)
	r.add(place{"device", "copy of 1 GiB", colAshlar}, 3900)
	return r
}

func TestTargets(t *testing.T) {
	want := map[string]target{
		"warm pair of 512 B, time of Ashlar":                {measured: "0.200 times: 68 against 340", verdict: met},
		"warm pair of 4 KiB, time of Ashlar":                {measured: "0.201 times: 20.1 against 100", verdict: missed},
		"warm pair of 64 KiB, time of Ashlar":               {verdict: notMeasured},
		"4096 live blocks, time":                            {measured: "0.249 times: 249 against 1,000", verdict: met},
		"4096 live blocks, requested peak":                  {measured: "26,560,000,001 bytes, each time", verdict: met},
		"4096 live blocks, reserved peak":                   {verdict: missed},
		"4096 live blocks, time of Ashlar, paged":           {verdict: notMeasured},
		"16 threads, a stream each, rate of Ashlar":         {measured: "30 times: 12 against 0.400", verdict: met},
		"16 threads, one stream, rate of Ashlar":            {verdict: notMeasured},
		"16 threads, one stream, rate of Ashlar, magazines": {measured: "9.75 times: 3.90 against 0.400", verdict: missed},
		"`CopyIn` of 1 GiB from an ordinary slice":          {measured: "40 GB/s", verdict: met},
		"`CopyOut` of 1 GiB to an ordinary slice":           {measured: "39.9 GB/s", verdict: missed},
		"copy of 1 GiB within the device, rate":             {measured: "0.975 times: 3,900 against 4,000", verdict: met},
	}
	got := map[string]target{}
	for _, g := range example().targets() {
		if _, twice := got[g.what]; twice {
			t.Errorf("%s: two targets", g.what)
		}
		got[g.what] = g
	}
	for what, w := range want {
		g, ok := got[what]
		if !ok || g.verdict != w.verdict || (w.measured != "" && g.measured != w.measured) {
			t.Errorf("%s: %q, %s; want %q, %s", what, g.measured, g.verdict, w.measured, w.verdict)
		}
	}
}

func TestResultsRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r := example()
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	back, err := readResults(file)
	if err != nil || !reflect.DeepEqual(r, back) {
		t.Errorf("%v: read\n%+v\nwrote\n%+v", err, back, r)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("half a file: %v, want an error that names it", err)
	}
}

func TestMedianAndText(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		median  float64
		text    string
	}{
		{[]float64{5}, 5, "5"},
		{[]float64{3, 1, 2}, 2, "2 (1 to 3)"},
		{[]float64{4, 1, 3, 2}, 2.5, "2.50 (1 to 4)"},
		{[]float64{100.1, 100.2}, 100.15, "100"},
		{[]float64{0.00042}, 0.00042, "0.000"},
		{[]float64{0.38}, 0.38, "0.380"},
		{[]float64{12.34}, 12.34, "12.3"},
		{[]float64{999.6}, 999.6, "1,000"},
		{[]float64{30060000000}, 30060000000, "30,060,000,000"},
	} {
		cell := cell{Samples: c.samples}
		if cell.median() != c.median || cell.text() != c.text {
			t.Errorf("%v: median %v, %q; want %v, %q", c.samples, cell.median(), cell.text(), c.median, c.text)
		}
	}
}

func TestTables(t *testing.T) {
	text := map[string]string{}
	for _, table := range example().tables() {
		text[table.name] = table.text
	}
	for name, lines := range map[string][]string{
		"targets": {"| warm pair of 4 KiB, time of Ashlar | at most 0.2 times PyTorch's | 0.201 times: 20.1 against 100 | **missed** |"},
		"warm": {
			"| size | PyTorch | PyTorch, expandable | cudaMallocAsync | Ashlar | Ashlar, expandable | Ashlar, magazines " +
				"| Ashlar, paged | Ashlar, planned | PyTorch with Ashlar |",
			"| 512 B | 340 (330 to 350) | – | – | 68 | – | – | – | – | – |",
			"| 64 MiB | – | – | – | – | – | – | – | – | – |",
			"This run did not measure PyTorch, expandable; cudaMallocAsync; Ashlar, expandable; Ashlar, magazines; " +
				"Ashlar, paged; Ashlar, planned; PyTorch with Ashlar.",
		},
		"replace": {
			"| PyTorch | 1,000 | 26,560,000,001 | 30,060,000,000 | – |",
			"This run did not measure PyTorch, expandable; cudaMallocAsync; Ashlar, expandable; Ashlar, magazines; " +
				"Ashlar, paged; Ashlar, planned; PyTorch with Ashlar.",
		},
		"threads-one": {"| 16 | 0.400 | – | – | 3.90 | – | – |"},
		"in":          {"| 16 MiB | – | – | – | – | – | – | – | – |"},
		"device":      {"| copy of 1 GiB | 4,000 | 3,900 |"},
		"machine":     {"| go: device | a GPU |", "| took | 61.5 s |", "| each figure | median of 3 measurements of 100 ms |"},
		"failures":    {"- `g++ -std=c++20` failed", "error: no", "- warm: go, asked \"x\": first line"},
	} {
		for _, line := range lines {
			if !strings.Contains(text[name], line+"\n") {
				t.Errorf("%s lacks the line\n%s\nit is\n%s", name, line, text[name])
			}
		}
	}
	if strings.Contains(text["failures"], "second line") || strings.Contains(text["failures"], "c++17") {
		t.Errorf("failures tell more than they should:\n%s", text["failures"])
	}
	if strings.Contains(text["device"], "did not measure") {
		t.Errorf("every side of the device's work was measured:\n%s", text["device"])
	}
	if got := (&results{}).failures(); got != "Nothing.\n" {
		t.Errorf("no failures: %q", got)
	}
}

func TestFill(t *testing.T) {
	tables := []rendered{{"a", "", "| new |\n"}, {"b", "", "| two |\n"}}
	doc := "top\n<!-- compare:a -->\nold\n<!-- /compare:a -->\nbetween\n<!-- compare:b -->\n<!-- /compare:b -->\nend\n"
	want := "top\n<!-- compare:a -->\n\n| new |\n\n<!-- /compare:a -->\nbetween\n<!-- compare:b -->\n\n| two |\n\n<!-- /compare:b -->\nend\n"
	for range 2 { // filling what is filled changes nothing
		got, err := fill(doc, tables)
		if err != nil || got != want {
			t.Fatalf("%v: %q, want %q", err, got, want)
		}
		doc = got
	}
	for _, bad := range []string{
		"", "<!-- compare:a -->\n", doc + doc,
		"<!-- /compare:a -->\n<!-- compare:a -->\n<!-- compare:b -->\n<!-- /compare:b -->\n",
	} {
		if got, err := fill(bad, tables); err == nil || !strings.Contains(err.Error(), "compare:a") {
			t.Errorf("%q: %q, %v; want an error that names the marker", bad, got, err)
		}
	}
}

// TestDocument: the tables of the document are those of the results that are kept beside the program, or the document
// says that there are none.
func TestDocument(t *testing.T) {
	checkDocument(t, "../../docs/benchmarks.md", "../results.json", "")
	checkDocument(t, "../../docs/benchmarks-operations.md", "../operations.json", operations)
}

func checkDocument(t *testing.T, document, kept, what string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); os.IsNotExist(err) {
		tables := example().tables()
		for i := range tables {
			tables[i].text = "Not measured yet.\n"
		}
		if filled, err := fill(string(text), tables); err != nil || filled != string(text) {
			t.Errorf("%s holds tables, and bench/results.json is not there (%v)", document, err)
		}
		return
	}
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-render", kept, "-what", what, "-docs", file}, nil, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	if filled, err := os.ReadFile(file); err != nil || string(filled) != string(text) {
		t.Errorf("%s is not what %s gives (%v): see the command at its beginning, with -render", document, kept, err)
	}
}
