package timeline_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/timeline"
)

// A byte of work takes a nanosecond, and nothing else takes time.
var byteCosts = &sim.CostModel{}

func init() { byteCosts.Calls[sim.CallFill] = sim.Curve{{Size: 0}, {Size: 1 << 40, Cost: 1 << 40}} }

// A bench is a simulated device with what tests need of it.
type bench struct {
	*testing.T
	sim     *sim.Device
	dev     driver.Device
	streams []driver.Stream
	blocks  []driver.Pointer
	inUse   int64
}

const blockSize = 1 << 32

// newBench makes a device, which wrap may wrap, and checks at the test's end that it holds nothing but its streams and
// blocks.
func newBench(t *testing.T, opts sim.Options, streams int, wrap func(driver.Device) driver.Device) *bench {
	t.Helper()
	if opts.Cost == nil {
		opts.Cost = byteCosts
	}
	d := sim.New(opts)
	b := &bench{T: t, sim: d, dev: d}
	if wrap != nil {
		b.dev = wrap(d)
	}
	for range streams {
		s, err := b.dev.NewStream(driver.StreamOptions{})
		b.ok(err)
		p, err := b.dev.Alloc(blockSize)
		b.ok(err)
		b.streams, b.blocks = append(b.streams, s), append(b.blocks, p)
	}
	return b
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// work queues some on a stream.
func (b *bench) work(s int, d time.Duration) {
	b.Helper()
	b.ok(b.streams[s].Fill(b.blocks[s], 1, int64(d)))
}

// clean closes everything and reports what stays.
func (b *bench) clean(recorders ...*timeline.Recorder) {
	b.Helper()
	for _, r := range recorders {
		b.ok(r.Close())
	}
	for i, s := range b.streams {
		b.ok(s.Close())
		b.ok(b.dev.Free(b.blocks[i]))
	}
	if leaks := b.sim.Leaks(); !leaks.Empty() {
		b.Errorf("left: %v", leaks)
	}
	for _, report := range b.sim.Reports() {
		b.Error(report)
	}
}

// noClock is a device without one.
type noClock struct{ driver.Device }

func (noClock) Timing() driver.Timing { return nil }

// run runs the commands of a script; see testdata/README.
func run(t *testing.T, c *golden.Case) string {
	var broken *fault.Device
	noTime := strings.Contains(c.Input, "noclock")
	b := newBench(t, sim.Options{}, 3, func(d driver.Device) driver.Device {
		broken = fault.Wrap(d)
		if noTime {
			return noClock{broken}
		}
		return broken
	})
	var opts timeline.Options
	opts.Level, opts.Index = 9, 3
	if strings.Contains(c.Input, "memory ") {
		opts.Memory = func() int64 { return b.inUse }
	}
	var r *timeline.Recorder
	lanes := map[string]*timeline.Lane{}
	spans := map[string]timeline.Span{}
	lane := func(name string) *timeline.Lane {
		if r == nil {
			r = timeline.New(b.dev, opts)
		}
		if lanes[name] == nil {
			lanes[name] = r.Lane(name)
		}
		return lanes[name]
	}
	var out strings.Builder
	read := func() *timeline.Recording {
		lane("main")
		rec, err := r.Read(t.Context())
		if err != nil {
			fmt.Fprintf(&out, "error: %v\n", err)
		}
		return rec
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		b.ok(err)
		return n
	}
	for line, f := range c.Commands() {
		var err error
		switch f[0] {
		case "noclock":
		case "max":
			opts.Max = int(number(f[1]))
		case "level":
			lane("main")
			r.SetLevel(int(number(f[1])))
		case "begin": // LANE STREAM NAME LEVEL FLOPS
			var flops float64
			name := unquote(f[3])
			if len(f) > 5 {
				flops, err = strconv.ParseFloat(f[5], 64)
				b.ok(err)
			}
			spans[name] = lane(f[1]).Begin(b.streams[number(f[2])], name, int(number(f[4])), flops)
		case "end": // STREAM NAME
			spans[unquote(f[2])].End(b.streams[number(f[1])])
		case "work": // STREAM DURATION
			var d time.Duration
			d, err = time.ParseDuration(f[2])
			b.ok(err)
			b.work(int(number(f[1])), d)
		case "memory": // BYTES
			b.inUse = number(f[1])
		case "mark": // LANE STREAM NAME VALUE
			lane(f[1]).Mark(b.streams[number(f[2])], f[3], number(f[4]))
		case "fail": // RULES
			var rules []fault.Rule
			if len(f) > 1 {
				rules, err = fault.ParseRules(f[1])
				b.ok(err)
			}
			broken.SetRules(rules...)
		case "hold": // STREAM
			b.sim.Hold(b.streams[number(f[1])].ID())
		case "resume": // STREAM
			b.sim.Resume(b.streams[number(f[1])].ID())
		case "reset":
			r.Reset()
		case "tree": // [depth=N] [unfolded]
			var o timeline.TreeOptions
			for _, opt := range f[1:] {
				if n, ok := strings.CutPrefix(opt, "depth="); ok {
					o.Depth = int(number(n))
				} else {
					o.Unfolded = opt == "unfolded"
				}
			}
			err = timeline.WriteTree(&out, read(), o)
		case "timeline": // [width=N] [unicode]
			o := timeline.TimelineOptions{Width: 100}
			for _, opt := range f[1:] {
				if n, ok := strings.CutPrefix(opt, "width="); ok {
					o.Width = int(number(n))
				} else {
					o.Unicode = opt == "unicode"
				}
			}
			err = timeline.WriteTimeline(&out, read(), o)
		case "chrome":
			var text strings.Builder
			err = timeline.WriteChromeTrace(&text, read())
			checkTrace(t, text.String())
			out.WriteString(text.String())
		default:
			t.Fatalf("%s:%d: no command %q", c.Path, line, f[0])
		}
		b.ok(err)
	}
	b.clean(r)
	return out.String()
}

// unquote returns a name, which may be written as a Go string.
func unquote(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

// What is printed, to the character: the virtual clock of the simulated device makes every time exact.
func TestScripts(t *testing.T) { golden.Run(t, "testdata/*.txt", run) }
