package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
)

const rematLogs = "../../remat/testdata/"

// speeds are the numbers that depend on the machine.
var speeds = regexp.MustCompile(` +[\d,]+\n`)

func TestRematOutput(t *testing.T) {
	golden.File(t, "testdata/help-remat.txt", ok(t, "remat", "--help"))
	out := ok(t, "remat", "--policy", "chain,dtr-eq", rematLogs+"resnet.log.zst", rematLogs+"unet.log.zst")
	golden.File(t, "testdata/remat.txt", speeds.ReplaceAllString(out, " N\n"))
}

func rematLines(t *testing.T, out string) []rematLine {
	t.Helper()
	var lines []rematLine
	for text := range strings.Lines(out) {
		var l rematLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestRematJSON(t *testing.T) {
	lines := rematLines(t, ok(t, "remat", "--json", "--budget", "0.7,0.5", "--policy", "chain,dtr-eq", rematLogs+"unet.log.zst"))
	if len(lines) != 4 {
		t.Fatalf("%d lines, want one for each budget and policy", len(lines))
	}
	for i, l := range lines {
		if l.Log != "unet" || l.Budget != []float64{0.7, 0.5}[i/2] || l.Policy != []string{"chain", "dtr-eq"}[i%2] {
			t.Errorf("line %d is of %s, %v, %s", i, l.Log, l.Budget, l.Policy)
		}
		if !l.Completed || l.Ratio <= 1 || l.PeakBytes > l.BudgetBytes || l.ComputeNs <= l.BaselineNs || l.Seconds <= 0 ||
			l.Evictions == 0 || l.Recomputes == 0 || l.Decisions == 0 || l.BottleneckBytes >= l.BudgetBytes {
			t.Errorf("line %d is %+v", i, l)
		}
	}
}

// A plan is one more run at each budget, and a link another figure.
func TestRematWithAPlanAndALink(t *testing.T) {
	lines := rematLines(t, ok(t, "remat", "--json", "--budget", "0.5", "--plan", "--link", "5", "--bound",
		layersLog(t, 24)))
	if len(lines) != 4 || lines[0].Policy != "chain" || lines[1].Policy != "plan" {
		t.Fatalf("got %+v, want a run by the policy, one by a plan, and two bounds", lines)
	}
	if lines[1].CopiedIn == 0 || lines[1].HostPeak == 0 || lines[1].Ratio >= lines[0].Ratio {
		t.Errorf("the plan takes %v and copies %d bytes back, without a plan it is %v", lines[1].Ratio,
			lines[1].CopiedIn, lines[0].Ratio)
	}
	if lines[2].Policy != "at least" || lines[2].Ratio > lines[1].Ratio || lines[3].Policy != "copies" ||
		lines[3].Ratio <= 1 {
		t.Errorf("got the bounds %+v", lines[2:])
	}
}

// layersLog writes the log of a training step with n layers, each of which takes 1 ms and keeps 10 MB for its derivative.
func layersLog(t *testing.T, n int) string {
	t.Helper()
	var log strings.Builder
	log.WriteString("{\"remat\":1}\n{\"constant\":1}\n")
	for i := range n {
		fmt.Fprintf(&log, "{\"call\":\"layer\",\"in\":[%d],\"out\":[{\"size\":10000000}],\"ns\":1000000}\n", i)
	}
	for i := range n {
		derivative, kept := n+i, n-i
		fmt.Fprintf(&log, "{\"call\":\"derivative\",\"in\":[%d,%d],\"out\":[{\"size\":10000000}],\"ns\":1000000}\n",
			derivative, kept)
		fmt.Fprintf(&log, "{\"release\":%d}\n", kept)
		if i > 0 {
			fmt.Fprintf(&log, "{\"release\":%d}\n", derivative)
		}
	}
	return file(t, "layers.log", log.String())
}

// The least possible time is a line of its own, or a lower bound of it for a program that is too large.
func TestRematBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.log")
	log := `{"remat":1}
{"constant":1}
{"call":"a","in":[0],"out":[{"size":10}],"ns":100}
{"call":"b","in":[0],"out":[{"size":10}],"ns":300}
{"call":"c","in":[2],"out":[{"size":10}],"ns":50}
{"release":3}
{"call":"d","in":[2,1],"ns":5}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := rematLines(t, ok(t, "remat", "--json", "--bound", "--budget", "1,0.7", path))
	if len(lines) != 4 || lines[1].Policy != "least" || lines[1].ComputeNs != 455 || lines[3].ComputeNs != 555 {
		t.Errorf("got %+v, want the least times 455 and 555", lines)
	}
	lines = rematLines(t, ok(t, "remat", "--json", "--bound", "--budget", "0.5", rematLogs+"unet.log.zst"))
	if len(lines) != 2 || lines[1].Policy != "at least" || lines[1].Ratio <= 1.05 || lines[1].Ratio >= lines[0].Ratio {
		t.Errorf("got %+v, want a lower bound for the program", lines)
	}
}

// A program that cannot run at any budget sets the exit code.
func TestRematWithoutRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.log")
	log := "{\"remat\":1}\n{\"constant\":10}\n{\"call\":\"f\",\"in\":[0],\"out\":[{\"size\":10}],\"ns\":5}\n"
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got := ashlar(t, nil, "remat", "--budget", "0.5", path)
	if got.code != exitNoRoom || !strings.Contains(got.out, "fails") {
		t.Errorf("exit code %d and %q, want %d and a run that fails", got.code, got.out, exitNoRoom)
	}
}

func TestRematUsage(t *testing.T) {
	for _, args := range [][]string{
		{"remat"},
		{"remat", "--budget", "0", "x"},
		{"remat", "--budget", "1.5", "x"},
		{"remat", "--budget", "NaN", "x"},
		{"remat", "--policy", "best", "x"},
		{"remat", "--max-time", "0", "x"},
	} {
		if got := ashlar(t, nil, args...); got.code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, got.code, exitUsage)
		}
	}
}
