package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

const two = "host,host:ordinal=1"

// with returns the options of a command line without a launcher's environment.
func with(t testing.TB, line string) options {
	t.Helper()
	o, err := parse(strings.Fields(line), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustRun(t testing.TB, line string) result {
	t.Helper()
	r, err := run(t.Context(), io.Discard, with(t, line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return r
}

// One seed gives the same bits each time, on one device as on two.
func TestReadsDigits(t *testing.T) {
	for _, devices := range []string{"host", two} {
		t.Run(devices, func(t *testing.T) {
			readsDigits(t, devices)
			first, again := mustRun(t, "-epochs 2 -devices "+devices), mustRun(t, "-epochs 2 -devices "+devices)
			if !slices.Equal(first.weights, again.weights) {
				t.Error("two runs from one seed end with different weights")
			}
			if other := mustRun(t, "-epochs 2 -seed 2 -devices "+devices); slices.Equal(first.weights, other.weights) {
				t.Error("runs from two seeds end with the same weights")
			}
		})
	}
}

func readsDigits(t *testing.T, devices string) {
	t.Helper()
	if r := mustRun(t, "-devices "+devices); r.accuracy < 0.95 || r.accuracy > 1 {
		t.Errorf("%.1f %% of the test images are read right, want 95 at least", 100*r.accuracy)
	} else {
		t.Logf("%.1f %% of the test images are read right", 100*r.accuracy)
	}
}

// Several devices learn the same as one, up to the order in which gradients are added.
func TestDevicesLearnWhatOneDoes(t *testing.T) {
	learnAlike(t, "host", two)
}

func learnAlike(t *testing.T, devices, others string) {
	t.Helper()
	x, y := mustRun(t, "-epochs 1 -devices "+devices), mustRun(t, "-epochs 1 -devices "+others)
	if worst := apart(x.weights, y.weights); worst > 1e-5 {
		t.Errorf("after an epoch on %s and on %s a weight differs by %g", devices, others, worst)
	} else {
		t.Logf("after an epoch on %s and on %s weights differ by %g at most", devices, others, worst)
	}
}

func apart(x, y []float32) (worst float64) {
	for i := range x {
		worst = max(worst, math.Abs(float64(x[i]-y[i])))
	}
	return worst
}

// Two ranks of a launcher, each with its own device, learn the same weights as two devices of one engine.
func TestRanks(t *testing.T) {
	port := strconv.Itoa(testkit.Ports(t, 1))
	var weights [2][]float32
	var ranks sync.WaitGroup
	for rank := range weights {
		ranks.Go(func() {
			launched := map[string]string{
				"RANK": strconv.Itoa(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port,
			}
			o, err := parse([]string{"-devices", "host", "-epochs", "1"}, func(name string) (string, bool) {
				value, ok := launched[name]
				return value, ok
			})
			if err != nil {
				t.Error(err)
				return
			}
			r, err := run(t.Context(), io.Discard, o)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			weights[rank] = r.weights
		})
	}
	ranks.Wait()
	want := mustRun(t, "-epochs 1 -devices "+two).weights
	for rank, got := range weights {
		if !slices.Equal(got, want) {
			t.Errorf("rank %d ends with other weights than devices of one engine do", rank)
		}
	}
}

// The default limit can be met only with compaction.
func TestLimit(t *testing.T) {
	for _, devices := range []string{"host", two} {
		t.Run(devices, func(t *testing.T) { meetsLimit(t, devices) })
	}
}

// meetsLimit tests the default limit, and limits just below and above it.
func meetsLimit(t *testing.T, devices string) {
	t.Helper()
	const margin = 24 << 10
	for _, limit := range []int64{defaultLimit - margin, defaultLimit, defaultLimit + margin} {
		line := fmt.Sprintf("-epochs 1 -limit %d -devices %s", limit, devices)
		if r := mustRun(t, line); r.moves.Compactions == 0 || r.moves.Bytes == 0 {
			t.Errorf("%s: nothing was moved: %+v", line, r.moves)
		}
		line += " -compact=false"
		if _, err := run(t.Context(), io.Discard, with(t, line)); !errors.Is(err, mem.ErrNoMemory) {
			t.Errorf("%s: the error is %v, want one that matches mem.ErrNoMemory", line, err)
		}
	}
}

// The output of the program is the same each time, except for measured and rounded numbers.
func TestPrints(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T, c *golden.Case) string {
		var printed bytes.Buffer
		for _, line := range strings.SplitAfter(strings.TrimSpace(c.Input), "\n") {
			args, ok := strings.CutPrefix(line, "digits ")
			if !ok {
				continue // a comment
			}
			if _, err := run(t.Context(), &printed, with(t, args)); err != nil {
				short, _, _ := strings.Cut(err.Error(), ". ") // the rest is the machine's figures
				fmt.Fprintln(&printed, short)
			}
		}
		return steady(printed.String())
	})
}

var (
	rounded = regexp.MustCompile(`[0-9]+\.[0-9]+`)
	drawn   = regexp.MustCompile(`(?m)^host:[0-9]+ host memory`)               // the first line of a tree or a timeline
	row     = regexp.MustCompile(`(?m)^( *\S+(?: ×[0-9]+)?) .* ([0-9.]+.iB)$`) // a name, a count, times, memory
)

// steady removes from text the parts that differ from run to run and from machine to machine. Of trees it keeps names,
// counts and memory, of timelines the memory.
func steady(text string) string {
	end := len(text)
	if at := drawn.FindStringIndex(text); at != nil {
		end = at[0]
	}
	var b strings.Builder
	b.WriteString(rounded.ReplaceAllString(text[:end], "#"))
	for _, cells := range row.FindAllStringSubmatch(text[end:], -1) {
		fmt.Fprintln(&b, cells[1], cells[2])
	}
	return b.String()
}
