package replay_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// The notes of a recording say what a replay does about the parts that are missing or wrong.
func TestWorksHaveNotes(t *testing.T) {
	alloc := func(p driver.Pointer) trace.Event { return trace.Event{Action: mem.ActionAlloc, Ptr: p, Size: 1 << 20} }
	free := func(p driver.Pointer) []trace.Event {
		return []trace.Event{
			{Action: mem.ActionFreeRequested, Ptr: p, Size: 1 << 20}, {Action: mem.ActionFreeCompleted, Ptr: p, Size: 1 << 20},
		}
	}
	const a, b, c = 0x100000, 0x200000, 0x300000
	for name, tt := range map[string]struct {
		events []trace.Event
		gaps   []int
		want   []string
	}{
		"nothing to note": {events: append([]trace.Event{alloc(a)}, free(a)...)},
		"one block before": {events: free(a), want: []string{
			"The recording starts late: 1 block of 1.00MiB was there before it, and is allocated first here.",
		}},
		"two blocks before": {events: slices.Concat(free(a), free(b)), want: []string{
			"The recording starts late: 2 blocks, 2.00MiB in all, were there before it, and are allocated first here.",
		}},
		"off once": {events: []trace.Event{alloc(a), alloc(b)}, gaps: []int{1}, want: []string{
			"Recording was off once: what was allocated then is freed there, and what shows up later is allocated there.",
		}},
		"off twice": {events: []trace.Event{alloc(a), alloc(b), alloc(c)}, gaps: []int{1, 2}, want: []string{
			"Recording was off 2 times: what was allocated then is freed there, and what shows up later is allocated there.",
		}},
		"a contradiction": {events: []trace.Event{alloc(a), alloc(a)}, want: []string{
			"1 entry contradicts those before it: entry 1: ",
		}},
		"contradictions": {events: []trace.Event{alloc(a), alloc(a), alloc(b), alloc(b)}, want: []string{
			"2 entries contradict those before them; the first: entry 1: ",
		}},
	} {
		s := &snapshot.Snapshot{Traces: []*trace.Trace{{Events: tt.events, Gaps: tt.gaps, Streams: []uint64{0}, Pools: []mem.PoolID{{}}}}}
		for _, read := range []func(*snapshot.Snapshot) ([]*replay.Work, error){replay.Works, replay.Histories} {
			works, err := read(s)
			testkit.Must(t, err)
			told := len(works[0].Notes) == len(tt.want)
			for i := range tt.want {
				told = told && strings.HasPrefix(works[0].Notes[i], tt.want[i])
			}
			if !told {
				t.Errorf("%s: notes %q, want %q", name, works[0].Notes, tt.want)
			}
		}
	}
}

func TestScriptWorkTakesTheMemoryOfTheDevice(t *testing.T) {
	for text, want := range map[string]string{
		"alloc a 1MiB\n":                                     "",
		"device sim\nalloc a 1MiB\n":                         "",
		"device sim total=1\nalloc a 1MiB\n":                 "",
		"device sim total=32768TiB\nalloc a 1MiB\n":          "",
		"device sim total=1GiB\ndevice sim total=2GiB\n":     "script:2:1: device: a comparison has one device, and the script named one before",
		"device host\nalloc a 1MiB\n":                        "script:1:1: device host: a comparison chooses where it runs itself; here device sim total=SIZE can say how much memory there is",
		"alloc a 1MiB\ndevice sim granularity=64KiB\n":       "script:2:1: device sim: a comparison knows total=SIZE alone, not granularity=64KiB",
		"device sim total=much\n":                            `script:1:1: device sim: size "much": want a number`,
		"device sim total=0\n":                               `script:1:1: device sim: total "0": want 1 byte to 32768TiB`,
		"device sim total=36028797018963969\nalloc a 1MiB\n": `script:1:1: device sim: total "36028797018963969": want 1 byte to 32768TiB`,
	} {
		s, err := trace.ParseScript(text)
		testkit.Must(t, err)
		w, err := replay.ScriptWork(s)
		var wrong *trace.ScriptError
		if (want == "") != (err == nil) || err != nil && (!errors.As(err, &wrong) || w != nil) {
			t.Errorf("%q: %v, want %q", text, err, want)
			continue
		}
		if err != nil {
			testkit.Contains(t, err.Error(), want)
		}
	}
	for text, want := range map[string]int64{"device sim\n": 0, "device sim total=1GiB\n": 1 << 30, "device sim total=32768TiB\n": sim.MaxTotal} {
		w := scriptWork(t, text+"allocator bfc\nalloc a 1MiB\n")
		if w.Capacity != want || len(w.Notes) != 1 {
			t.Errorf("%q: %d bytes, notes %q", text, w.Capacity, w.Notes)
			continue
		}
		testkit.Contains(t, w.Notes[0], "Line 2 of the script names an allocator, which does not count")
	}
}

// Figures that are missing give neither waste nor saving.
func TestWasteAndSaving(t *testing.T) {
	for _, c := range []struct {
		requested, reserved int64
		want                float64
	}{{100, 150, 1.5}, {100, 0, 0}, {1, 1, 1}, {0, 100, 0}, {-1, 100, 0}, {100, -1, 0}} {
		if got := (&replay.Row{RequestedPeak: c.requested, ReservedPeak: c.reserved}).Waste(); got != c.want {
			t.Errorf("%d bytes reserved for %d: %v, want %v", c.reserved, c.requested, got, c.want)
		}
	}
	rows := func(recorded, other int64) []replay.Row {
		return []replay.Row{{Allocator: "paged", ReservedPeak: other}, {Allocator: replay.AsRecorded, ReservedPeak: recorded}}
	}
	for name, c := range map[string]struct {
		c    replay.Comparison
		want int64
	}{
		"less":                {replay.Comparison{Rows: rows(100, 70)}, 30},
		"more":                {replay.Comparison{Rows: rows(70, 100)}, 0},
		"none is best":        {replay.Comparison{Rows: rows(100, 70), Best: -1}, 0},
		"the recorded itself": {replay.Comparison{Rows: rows(100, 70), Best: 1}, 0},
		"no figure":           {replay.Comparison{Rows: rows(-1, 70)}, 0},
		"0 is a figure":       {replay.Comparison{Rows: rows(0, -5)}, 5},
		"no recorded row":     {replay.Comparison{Rows: rows(100, 70)[:1]}, 0},
	} {
		if got := c.c.Saving(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
