package caching_test

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/trace"
)

// TestPyTorch carries out tests of PyTorch's test_cuda.py, step by step, on a simulated device as large as the GPU on
// which PyTorch 2.11 carried out the same steps. After each step, every statistic, snapshot and trace must be what
// PyTorch said. testdata/pytorch/steps.txt has the steps, recorded.txt what PyTorch said, and record.py makes it anew.
func TestPyTorch(t *testing.T) {
	total, tests := recordedSteps(t)
	if len(tests) < 25 {
		t.Fatalf("recorded.txt has %d tests", len(tests))
	}
	for _, test := range tests {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			settings := ""
			if strings.HasSuffix(test.name, " expandable") {
				settings = "expandable_segments:True"
			}
			p := newPort(t, total, settings)
			compared := comparison{test: test.name}
			for _, step := range test.steps {
				p.said = nil
				words := strings.Fields(step.text)
				p.step(words[0], words[1:])
				p.changed()
				compared.at(step.text)
				got, want := compared.lines(p.said), compared.lines(step.said)
				if !slices.Equal(got, want) {
					t.Fatalf("after %q\ngot:\n%s\nPyTorch:\n%s", step.text,
						strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// A departure is a difference by design, for which docs/decisions/0007 has the reason: in tests and from the first step
// on whose texts begin like this, what matches line is replaced before lines are compared; a line that is replaced by
// nothing is left out.
type departure struct {
	test, from string
	line       *regexp.Regexp
	by         string
}

var departures = []departure{
	// Settings that change the split limit recount oversize blocks; PyTorch counts some down that it never counted up.
	{"TestCudaMallocAsync.test_allocator_settings", "", regexp.MustCompile(`^oversize_.*`), ""},
	// The stack of a segment is kept when its first block is split off; PyTorch loses it then.
	{
		"TestCudaMallocAsync.test_memory_plots_free_segment_stack.alloc", "trace",
		regexp.MustCompile(`^(= segment_free \d+) with a stack$`), "$1",
	},
	// A restoration makes blocks live without allocating and freeing whole segments first: only current values compare.
	{"TestBlockStateAbsorption", "restore", regexp.MustCompile(`^(\w+\.\w+ \d+) \d+ \d+ \d+$`), "$1"},
	// A pool that is closed waits for its own pending frees, and for nothing if there are none.
	{"TestMemPool", "close", regexp.MustCompile(`^num_sync_all_streams .*`), ""},
	// Freed pinned blocks are no longer active; PyTorch 2.11 counts them on unless a stream used them.
	{"", "unpin", regexp.MustCompile(`^host active_.*`), ""},
}

// A comparison records which departures have begun in a test.
type comparison struct {
	test  string
	begun [64]bool
}

func (c *comparison) at(step string) {
	for i, d := range departures {
		c.begun[i] = c.begun[i] || strings.HasPrefix(c.test, d.test) && strings.HasPrefix(step, d.from)
	}
}

func (c *comparison) lines(lines []string) (kept []string) {
	for _, line := range lines {
		for i, d := range departures {
			if c.begun[i] {
				line = d.line.ReplaceAllString(line, d.by)
			}
		}
		if line != "" {
			kept = append(kept, line)
		}
	}
	return kept
}

type recordedStep struct {
	text string
	said []string
}

type recordedTest struct {
	name  string
	steps []recordedStep
}

func recordedSteps(t *testing.T) (total int64, tests []recordedTest) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "pytorch", "recorded.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "total "):
			if total, err = strconv.ParseInt(line[len("total "):], 10, 64); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line, "test "):
			tests = append(tests, recordedTest{name: line[len("test "):]})
		case strings.HasPrefix(line, "> "):
			last := &tests[len(tests)-1]
			last.steps = append(last.steps, recordedStep{text: line[len("> "):]})
		default:
			steps := tests[len(tests)-1].steps
			last := &steps[len(steps)-1]
			last.said = append(last.said, strings.TrimSpace(line))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return total, tests
}

// A port carries out steps.
type port struct {
	*bench
	host      *pinned.Allocator
	recorder  *trace.Recorder
	total     int64
	streams   []driver.Stream
	blocks    map[string]mem.Block
	addresses map[string]driver.Pointer
	scratch   driver.Pointer // what work that is held writes to
	pinned    map[string]mem.Block
	used      map[string][]driver.Stream
	pools     map[string]*caching.Pool
	ids       map[string]mem.PoolID
	scopes    map[string]func()
	states    map[string]*caching.PoolState

	said               []string
	before, hostBefore map[string]int64 // statistics after the step before
}

func newPort(t *testing.T, total int64, settings string) *port {
	b := newBench(t, total, settings)
	// The memory of a context, so that not all of the device is free.
	scratch := drivertest.Alloc(t, b.dev, 512*mib)
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	recorder.Stop()
	recorder.Attach(b.Allocator)
	host, err := pinned.New(b.dev, pinned.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := &port{
		bench: b, host: host, total: total, scratch: scratch, streams: []driver.Stream{b.s}, recorder: recorder,
		addresses: map[string]driver.Pointer{}, blocks: map[string]mem.Block{}, pinned: map[string]mem.Block{},
		used: map[string][]driver.Stream{}, pools: map[string]*caching.Pool{}, ids: map[string]mem.PoolID{},
		scopes: map[string]func(){}, states: map[string]*caching.PoolState{},
	}
	t.Cleanup(func() {
		for _, block := range p.pinned {
			host.Free(block)
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *port) say(format string, args ...any) {
	p.said = append(p.said, "= "+fmt.Sprintf(format, args...))
}

func (p *port) size(text string) int64 {
	p.t.Helper()
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(percent, 64)
		p.ok(err)
		return int64(float64(p.total) * (f / 100))
	}
	if text == "8000000000GiB" { // more than an int64 holds: PyTorch refuses all from 1 EiB on
		return math.MaxInt64
	}
	n, err := bytesize.Parse(text)
	p.ok(err)
	return n
}

func (p *port) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *port) stream(name string) driver.Stream {
	p.t.Helper()
	n, err := strconv.Atoi(name[1:])
	p.ok(err)
	for len(p.streams) <= n {
		p.streams = append(p.streams, p.bench.stream())
	}
	return p.streams[n]
}

func (p *port) allocate(name string, size int64, s driver.Stream) {
	p.t.Helper()
	block, err := p.Alloc(s, size)
	if errors.Is(err, mem.ErrNoMemory) {
		p.say("out of memory: %s", triedToAllocate.FindStringSubmatch(err.Error())[1])
		return
	}
	p.ok(err)
	p.blocks[name], p.addresses[name] = block, block.Ptr
}

var triedToAllocate = regexp.MustCompile(`Tried to allocate (more than 1EB memory|[\d.]+ \w+)`)

func (p *port) free(name string) {
	p.Free(p.blocks[name], p.used[name]...)
	delete(p.used, name)
	delete(p.blocks, name)
}

func (p *port) id(name string) mem.PoolID {
	if _, ok := p.ids[name]; !ok {
		p.ids[name] = mem.PoolID{uint64(len(p.ids) + 1), 0}
	}
	return p.ids[name]
}
