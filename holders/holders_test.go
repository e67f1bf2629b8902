package holders_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// recordings returns the paths of all recordings of the repository.
func recordings(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"../testdata/traces", "../replay/verify/testdata"} {
		files, err := filepath.Glob(dir + "/*.pickle.zst")
		testkit.Must(t, err)
		all = append(all, files...)
	}
	if len(all) < 19 {
		t.Fatalf("%d recordings, want at least 19", len(all))
	}
	return all
}

func recorded(t *testing.T, path string) (*snapshot.Snapshot, *holders.History) {
	t.Helper()
	s, err := snapshot.ReadFile(path)
	testkit.Must(t, err)
	return s, history(t, s)
}

func history(t *testing.T, s *snapshot.Snapshot) *holders.History {
	t.Helper()
	h, err := holders.New(s, 0)
	testkit.Must(t, err)
	return h
}

func at(t *testing.T, h *holders.History, moment string) *holders.View {
	t.Helper()
	m, err := h.Moment(moment)
	testkit.Must(t, err)
	return h.At(m)
}

// The holders at the peak add up to the requested peak to the byte, on all recordings and by every key, and those at
// the end to the final state.
func TestHoldersAddUp(t *testing.T) {
	for _, path := range recordings(t) {
		s, h := recorded(t, path)
		active := s.Active(0)
		var end int64
		for _, b := range active {
			end += b.Size
		}
		totals := trace.Totals{Requested: mem.Stat{Current: h.ActiveBytes(-1), Peak: h.ActiveBytes(-1)}}
		for _, e := range h.Trace.Events {
			totals.Add(e.Action, e.Size)
		}
		for _, c := range []struct {
			moment string
			bytes  int64
		}{{"peak", totals.Requested.Peak}, {"end", end}} {
			v := at(t, h, c.moment)
			testkit.Equal(t, path+" "+c.moment, v.Bytes, c.bytes)
			testkit.Equal(t, path+" "+c.moment+" by Moment", v.Moment.Bytes, c.bytes)
			for k := range holders.Key(len(holders.KeyNames())) {
				var bytes int64
				blocks := 0
				for _, x := range v.By(k) {
					bytes += x.Bytes
					blocks += x.Blocks
				}
				testkit.Equal(t, path+" "+c.moment+" by "+k.String(), bytes, c.bytes)
				testkit.Equal(t, path+" "+c.moment+": blocks by "+k.String(), blocks, len(v.Blocks))
			}
		}
		testkit.Equal(t, path+": blocks at the end", len(at(t, h, "end").Blocks), len(active))
	}
}

// The peaks are those of torch.cuda.memory_stats(): see testdata/traces/README.md.
func TestPeaksAreThoseOfPyTorch(t *testing.T) {
	for name, peak := range map[string]int64{
		"unet.stacks": 8442335024, "gpt2.oom": 18032530220, "streams": 693346392, "resnet.round4": 4134814436,
	} {
		_, h := recorded(t, "../testdata/traces/"+name+".pickle.zst")
		testkit.Equal(t, name, at(t, h, "peak").Bytes, peak)
	}
}

func TestHoldersAreTheUsersLines(t *testing.T) {
	_, h := recorded(t, "../testdata/traces/unet.stacks.pickle.zst")
	lines := at(t, h, "peak").By()
	testkit.Equal(t, "label", lines[0].Label, "train.py:80 forward")
	testkit.Equal(t, "bytes", lines[0].Bytes, 6905658624)
	testkit.Equal(t, "blocks", lines[0].Blocks, 125)
	if !slices.IsSortedFunc(lines, func(a, b holders.Holder) int { return int(b.Bytes - a.Bytes) }) {
		t.Errorf("not sorted: %v", lines)
	}
	stacks := at(t, h, "peak").By(holders.ByStack)
	testkit.Equal(t, "stack", stacks[0].Label,
		"train.py:80 forward ← train.py:92 forward ← train.py:99 unet ← train.py:166 <module>")

	_, h = recorded(t, "../testdata/traces/resnet.stacks.pickle.zst")
	v := at(t, h, "peak")
	testkit.Equal(t, "all folded", v.By()[0].Label, "train.py:24 resnet")
	testkit.Equal(t, "module", v.By(holders.ByModule)[0].Label, "train.py")
	testkit.Equal(t, "function", v.By(holders.ByFunction)[0].Label, "train.py resnet")
	h.Frames.Fold(holders.FoldTorch)
	testkit.Equal(t, "torch folded", v.By()[0].Label, "torchvision/models/resnet.py:154 forward")
	h.Frames.Fold(holders.FoldNone)
	testkit.Equal(t, "nothing folded", v.By()[0].Label, "torch/nn/modules/conv.py:548 _conv_forward")
}

// Two keys group by both values.
func TestHoldersByTwoKeys(t *testing.T) {
	s := handmade()
	v := at(t, history(t, s), "event:3")
	pairs := v.By(holders.ByTag, holders.ByStream)
	want := []holders.Holder{
		{Label: "weights, 0x0", Values: []string{"weights", "0x0"}, Bytes: 300, Blocks: 2},
		{Label: "(no tag), 0x0", Values: []string{"(no tag)", "0x0"}, Bytes: 50, Blocks: 1},
		{Label: "(no tag), 0x7", Values: []string{"(no tag)", "0x7"}, Bytes: 30, Blocks: 1},
	}
	for i := range want {
		if i >= len(pairs) || pairs[i].Label != want[i].Label || pairs[i].Bytes != want[i].Bytes ||
			pairs[i].Blocks != want[i].Blocks || !slices.Equal(pairs[i].Values, want[i].Values) {
			t.Fatalf("got %+v, want %+v", pairs, want)
		}
	}
	testkit.Equal(t, "holders", len(pairs), len(want))
}

// handmade returns a recording that begins late: of the blocks of 50 and 30 bytes it lacks the allocation, and that of
// 30 bytes is freed by its event 5.
func handmade() *snapshot.Snapshot {
	event := func(action mem.Action, p driver.Pointer, size int64, stream, metadata uint32) trace.Event {
		return trace.Event{Action: action, Ptr: p, Size: size, Stream: stream, Metadata: metadata}
	}
	t := &trace.Trace{Streams: []uint64{0, 7}, Metadata: []string{"", "weights"}, Events: []trace.Event{
		event(mem.ActionAlloc, 0x1000, 100, 0, 1),
		event(mem.ActionAlloc, 0x2000, 200, 0, 1),
		event(mem.ActionAlloc, 0x3000, 400, 0, 0),
		event(mem.ActionFreeCompleted, 0x3000, 400, 0, 0),
		event(mem.ActionFreeRequested, 0x1000, 100, 0, 0),
		event(mem.ActionFreeRequested, 0x5000, 30, 1, 0),
		event(mem.ActionFreeCompleted, 0x5000, 30, 1, 0),
		event(mem.ActionFreeCompleted, 0x1000, 100, 0, 0),
		event(mem.ActionOOM, 12, 4000, 0, 0),
	}}
	for i := range t.Events {
		t.Events[i].TimeUS = 1_000_000 + int64(i)*1000
	}
	t.Stacks = &trace.Stacks{Frames: []trace.Frame{{Name: "load", Filename: "/home/u/load.py", Line: 3}}}
	stack := t.Stacks.Add([]uint32{0})
	return &snapshot.Snapshot{
		Traces: []*trace.Trace{t}, Stacks: t.Stacks,
		Segments: []snapshot.Segment{{Ptr: 0x1000, TotalSize: 0x8000, Blocks: []snapshot.Block{
			{Ptr: 0x1000, Size: 0x1000},
			{Ptr: 0x2000, Size: 0x1000, RequestedSize: 200, State: mem.ActiveAllocated},
			{Ptr: 0x3000, Size: 0x1000},
			{Ptr: 0x4000, Size: 50, State: mem.ActiveAllocated, Stack: stack},
			{Ptr: 0x5000, Size: 0x4000},
		}}},
	}
}

// A block is active until its free has completed, and blocks that are older than the recording count.
func TestLifetimes(t *testing.T) {
	h := history(t, handmade())
	for event, bytes := range map[int]int64{-1: 80, 0: 180, 2: 780, 3: 380, 4: 380, 5: 380, 6: 350, 7: 250, 8: 250} {
		m := h.At(holders.Moment{Event: event})
		testkit.Equal(t, "active bytes", h.ActiveBytes(event), bytes)
		testkit.Equal(t, "bytes of the view", m.Bytes, bytes)
	}
	find := func(p driver.Pointer) holders.Block {
		blocks := h.Blocks()
		n := slices.IndexFunc(blocks, func(b holders.Block) bool { return b.Ptr == p })
		if n < 0 {
			t.Fatalf("no block at %#x", p)
		}
		return blocks[n]
	}
	waiting := find(0x1000)
	if !waiting.Recorded || waiting.Start != 0 || waiting.Freed != 4 || waiting.End != 7 {
		t.Errorf("the block whose free waits: %+v", waiting)
	}
	old := find(0x4000)
	if old.Recorded || old.Start != -1 || old.End != int32(len(h.Trace.Events)) || old.Freed != old.End {
		t.Errorf("the old block: %+v", old)
	}
	testkit.Equal(t, "the old block's line, from the final state", h.Frames.Line(old.Stack), "load.py:3 load")
	freed := find(0x5000)
	if freed.Recorded || freed.Start != -1 || freed.Freed != 5 || freed.End != 6 {
		t.Errorf("the old block that was freed: %+v", freed)
	}
	lines := h.At(holders.Moment{Event: -1}).By()
	if len(lines) != 2 || lines[0].Label != "load.py:3 load" || lines[1].Label != "(before the recording)" {
		t.Errorf("before the first event: %+v", lines)
	}
}

// Blocks that were active before a gap count up to it. Those that appear after it count from there.
func TestGaps(t *testing.T) {
	s := handmade()
	s.Traces[0].Gaps = []int{4}
	h := history(t, s)
	for event, bytes := range map[int]int64{-1: 0, 0: 100, 2: 700, 3: 380, 4: 380, 6: 350, 7: 250, 8: 250} {
		testkit.Equal(t, "active bytes", h.ActiveBytes(event), bytes)
	}
	found := 0
	for _, b := range h.Blocks() {
		if b.Start == 3 && !b.Recorded {
			found++
		}
	}
	testkit.Equal(t, "blocks found after the gap", found, 4)
	testkit.Equal(t, "end", at(t, h, "end").Bytes, 250)
}

// A snapshot without a history has the blocks of its final state.
func TestWithoutHistory(t *testing.T) {
	s := handmade()
	s.Traces = nil
	h := history(t, s)
	for _, moment := range []string{"peak", "end", "event:-1"} {
		v := at(t, h, moment)
		testkit.Equal(t, moment, v.Bytes, 250)
		testkit.Equal(t, moment, v.By()[0].Label, "(before the recording)")
	}
}

// Freed soon are the blocks that are gone when the memory has fallen by a tenth.
func TestFreedSoon(t *testing.T) {
	h := history(t, handmade())
	peak := at(t, h, "peak") // 780 bytes, of which event 3 frees 400
	testkit.Equal(t, "event", peak.FreedSoon(), 3)
	var soon int64
	for _, b := range peak.Blocks {
		if int(b.End) <= peak.FreedSoon() {
			soon += b.Size
		}
	}
	testkit.Equal(t, "bytes", soon, 400)
	testkit.Equal(t, "nothing is freed after the end", at(t, h, "end").FreedSoon(), 8)
}

// All has the devices with blocks or events, and leaves out the others.
func TestAllDevices(t *testing.T) {
	s := handmade()
	s.Traces = append(s.Traces, nil, &trace.Trace{
		Device: 2, Streams: []uint64{0}, Metadata: []string{""},
		Events: []trace.Event{{Action: mem.ActionAlloc, Ptr: 1, Size: 5}},
	})
	s.Segments = append(s.Segments, snapshot.Segment{Device: 4, TotalSize: 512, Blocks: []snapshot.Block{
		{Size: 512, State: mem.ActiveAllocated},
	}})
	all, err := holders.All(s)
	testkit.Must(t, err)
	got := ""
	for _, h := range all {
		got += fmt.Sprintf("%d:%d ", at(t, h, "end").Device(), at(t, h, "end").Bytes)
	}
	testkit.Equal(t, "devices and bytes at the end", got, "0:250 2:5 4:512 ")
}
