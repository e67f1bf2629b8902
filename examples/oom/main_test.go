package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
)

// The report says why memory ran out, and which line of this program holds it. It knows how much memory the device has,
// so nothing else is blamed.
func TestTheReportNamesTheCauseAndTheLine(t *testing.T) {
	dir := t.TempDir()
	dev := drivertest.OpenSim(t, 1<<30)
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(observed(a, dir), dev.DefaultStream()); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatal(err)
	}
	s, err := snapshot.ReadFile(filepath.Join(dir, "oom-000001.pickle"))
	if err != nil {
		t.Fatal(err)
	}
	works, err := replay.Works(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := diagnose.Explain(s, works[0], h, diagnose.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := strings.Join(r.Answer, "\n")
	if r.Verdicts[0].Cause != diagnose.TooMuch || r.Verdicts[0].Confidence != diagnose.Certain ||
		!strings.Contains(answer, "\n95 % of the peak was allocated by ") || !strings.Contains(answer, "main.go:63 ") {
		t.Errorf("%+v\n%s", r.Verdicts, answer)
	}
}

// docs/oom.md shows the function observed, to the letter.
func TestTheRecipeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/oom.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(program), "// observed returns")
	body, _, _ = strings.Cut(body, "\n}\n")
	if !strings.Contains(string(page), "```go\n// observed returns"+body+"\n}\n```\n") {
		t.Error("the Go code in docs/oom.md is not that of examples/oom/main.go")
	}
}
