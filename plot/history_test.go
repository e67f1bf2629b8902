package plot

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// recorded returns the history of a recording.
func recorded(t testing.TB, path string) *holders.History {
	t.Helper()
	s, err := snapshot.ReadFile(path + ".pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func sample(name string) string { return "../testdata/traces/" + name }
func cause(name string) string  { return "../diagnose/testdata/" + name }

const mib = 1 << 20

// made is a history in four quarters of 100 events each. In all of them segment a (40 MiB at the address 1 GiB) is
// reserved. Block x has its lower half from the second quarter on, and y has the upper half in the third. In the last
// quarter, segment b (40 MiB at 4 GiB) is reserved, too, and z fills it.
func made(t testing.TB) *holders.History {
	t.Helper()
	const a, b = driver.Pointer(1 << 30), driver.Pointer(4 << 30)
	events := make([]trace.Event, 400)
	for i := range events {
		events[i] = trace.Event{Action: mem.ActionSnapshot}
	}
	set := func(i int, action mem.Action, ptr driver.Pointer, size int64) {
		events[i] = trace.Event{Action: action, Ptr: ptr, Size: size}
	}
	set(0, mem.ActionSegmentAlloc, a, 40*mib)
	set(100, mem.ActionAlloc, a, 20*mib)
	set(200, mem.ActionAlloc, a+20*mib, 20*mib)
	set(299, mem.ActionFreeRequested, a+20*mib, 20*mib)
	set(300, mem.ActionFreeCompleted, a+20*mib, 20*mib)
	set(301, mem.ActionSegmentAlloc, b, 40*mib)
	set(302, mem.ActionAlloc, b, 40*mib)
	set(398, mem.ActionOOM, 1<<40, 64*mib)
	for i := range events {
		events[i].TimeUS = int64(i) * 1000
	}
	live := func(ptr driver.Pointer, size int64) snapshot.Block {
		return snapshot.Block{Ptr: ptr, Size: size, RequestedSize: size, State: mem.ActiveAllocated}
	}
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{
			{
				Ptr: a, TotalSize: 40 * mib, Large: true,
				Blocks: []snapshot.Block{live(a, 20*mib), {Ptr: a + 20*mib, Size: 20 * mib, State: mem.Inactive}},
			},
			{Ptr: b, TotalSize: 40 * mib, Large: true, Blocks: []snapshot.Block{live(b, 40*mib)}},
		},
		Traces: []*trace.Trace{{
			Pools: make([]mem.PoolID, 1), Metadata: []string{""}, Streams: []uint64{0}, Events: events,
		}},
	}
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// In every column, the groups add up to the requested memory of one moment of the column. The highest columns are the
// peaks of the recording, and the groups at the moment are those of holders.
func TestColumnsAddUp(t *testing.T) {
	for _, name := range []string{"streams", "unet.stacks", "gpt2.oom", "resnet.stacks"} {
		for _, axis := range []Axis{AxisTime, AxisEvents} {
			h := recorded(t, sample(name))
			x, err := newHistory(h, Options{Axis: axis}, chartWidth)
			if err != nil {
				t.Fatal(err)
			}
			last, requested, reserved := int32(-1), int64(0), int64(0)
			for c, event := range x.columns.moments {
				if event < last {
					t.Fatalf("%s: column %d shows event %d after event %d", name, c, event, last)
				}
				last = event
				var sum int64
				for _, g := range x.groups.all {
					sum += g.bytes[c]
				}
				if want := h.ActiveBytes(int(event)); sum != want {
					t.Fatalf("%s: the groups of column %d have %d bytes, want %d", name, c, sum, want)
				}
				requested, reserved = max(requested, sum), max(reserved, x.most[c])
			}
			sums := h.Trace.Totals()
			peak, err := h.Moment("peak")
			if err != nil {
				t.Fatal(err)
			}
			if requested != peak.Bytes || reserved != sums.Reserved.Peak || x.groups.moment.Event != peak.Event {
				t.Errorf("%s: peaks of %d and %d bytes at event %d, want %d and %d at %d", name, requested, reserved,
					x.groups.moment.Event, peak.Bytes, sums.Reserved.Peak, peak.Event)
			}
			var named int64
			for _, g := range x.groups.all {
				named += g.at
			}
			if named != peak.Bytes || len(x.groups.all) > maxGroups+1 {
				t.Errorf("%s: %d groups with %d bytes, want %d", name, len(x.groups.all), named, peak.Bytes)
			}
		}
	}
}

// Memory that is reserved between two moments and released again is in the line of reserved memory.
func TestReservedMemoryBetweenMoments(t *testing.T) {
	h := made(t)
	c := newColumns(h, 0, 399, 4, AxisEvents)
	most, at := c.reserved([]holders.Segment{
		{Ptr: 1, Size: 40, Start: -1, End: 400},
		{Ptr: 100, Size: 7, Start: 120, End: 130},
		{Ptr: 200, Size: 5, Start: 210, End: 399},
	}, 250)
	for i, want := range []int64{40, 47, 45, 45} {
		if most[i] != want {
			t.Errorf("column %d: %d, want %d", i, most[i], want)
		}
	}
	if at != 45 {
		t.Errorf("%d bytes at the moment, want 45", at)
	}
}

// Without stacks and categories, blocks are grouped by stream; with them, by line or category.
func TestUsualKeys(t *testing.T) {
	for path, want := range map[string]holders.Key{
		sample("streams"): holders.ByStream, sample("gpt2"): holders.ByCategory, sample("unet.stacks"): holders.ByLine,
	} {
		x, err := newHistory(recorded(t, path), Options{}, chartWidth)
		if err != nil {
			t.Fatal(err)
		}
		if len(x.groups.keys) != 1 || x.groups.keys[0] != want {
			t.Errorf("%s is grouped by %s, want %s", path, x.groups.keysText(), want)
		}
	}
}

// The axis is that of events if nothing happens during a quarter of the time. A step is shown from its beginning to its
// end, and the peak is that of the part.
func TestPartsOfRecordings(t *testing.T) {
	h := recorded(t, sample("unet.stacks")) // 3 of its 5.5 seconds are those of the first step
	x, err := newHistory(h, Options{}, chartWidth)
	if err != nil {
		t.Fatal(err)
	}
	if x.columns.timed {
		t.Error("the axis is that of times")
	}
	x, err = newHistory(h, Options{From: "step:4", To: "step:6"}, chartWidth)
	if err != nil {
		t.Fatal(err)
	}
	steps := h.Steps().List
	if x.columns.first != steps[3].First || x.columns.last != steps[5].Last || !x.columns.timed {
		t.Errorf("the picture goes from event %d to %d: %+v", x.columns.first, x.columns.last, steps[3:6])
	}
	best := 0
	for e := x.columns.first; e <= x.columns.last; e++ {
		best = max(best, int(h.ActiveBytes(e)))
	}
	if int(x.groups.moment.Bytes) != best {
		t.Errorf("the peak is %d, want %d", x.groups.moment.Bytes, best)
	}
	for _, o := range []Options{
		{At: "oom"},
		{From: "step:99"},
		{To: "1h"},
		{From: "5s", To: "4s"},
		{At: "5s", To: "4s"},
		{From: "event:7", To: "event:7"},
	} {
		for _, draw := range []func(*holders.History, Options) (Panel, error){Memory, Addresses} {
			if _, err := draw(h, o); err == nil {
				t.Errorf("%+v is drawn", o)
			}
		}
	}
}

// The map of addresses has blocks, free memory and memory that is not reserved where they were.
func TestGridShowsTheAddresses(t *testing.T) {
	panel, err := Addresses(made(t), Options{Axis: AxisEvents, By: []holders.Key{holders.ByPool}})
	if err != nil {
		t.Fatal(err)
	}
	x := panel.(*addressesPanel)
	if x.total != 80*mib || len(x.ranges) != 2 {
		t.Fatalf("%d bytes in %d ranges", x.total, len(x.ranges))
	}
	g := newGrid(x)
	const none, block, free = 0, 1, 2
	for quarter, want := range [][4]uint8{ // of the addresses, from the lowest
		{free, free, none, none},
		{block, free, none, none},
		{block, block, none, none},
		{block, free, block, block},
	} {
		for part, kind := range want {
			c, row := (2*quarter+1)*mapColumns/8, (2*part+1)*mapRows/8
			if got := g.cells[c][row]; got != kind {
				t.Errorf("quarter %d of the events, %d of the addresses: %d, want %d", quarter, part, got, kind)
			}
		}
	}
	// The rectangles cover each cell once.
	cells := 0
	for _, all := range g.rects(0, 0) {
		for _, r := range all {
			cells += int(r.width*r.height) / (cellSize * cellSize)
		}
	}
	filled := 0
	for c := range g.cells {
		for _, kind := range g.cells[c] {
			if kind != none {
				filled++
			}
		}
	}
	if cells != filled || len(g.rects(0, 0)[0]) > 4 {
		t.Errorf("%d cells in rectangles, want %d; %d rectangles of blocks", cells, filled, len(g.rects(0, 0)[0]))
	}
}
