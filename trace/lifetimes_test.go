package trace

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// randomHistory returns a history with frees that complete at once, later, never, or were requested or allocated before it,
// and with entries that contradict others. It has no free_completed, or no free_requested, if those are left out.
func randomHistory(random *rand.Rand, n int, without mem.Action) (t *Trace, live []LiveBlock) {
	t = &Trace{Streams: []uint64{3, 7}, Pools: []mem.PoolID{{}, {1, 2}}, PoolsKnown: true, Metadata: []string{""}}
	add := func(a mem.Action, p driver.Pointer, size int64) {
		if a != without {
			t.Events = append(t.Events, Event{
				Action: a, Ptr: p, Size: size, TimeUS: int64(len(t.Events)), Stream: random.Uint32N(2), Pool: uint16(random.IntN(2)),
				Stack: StackID(random.IntN(3)),
			})
		}
	}
	var active, pending []driver.Pointer
	take := func(list *[]driver.Pointer) driver.Pointer {
		i := random.IntN(len(*list))
		p := (*list)[i]
		*list = slices.Delete(*list, i, i+1)
		return p
	}
	next := driver.Pointer(0x1000)
	for len(t.Events) < n {
		switch k := random.IntN(20); {
		case k < 8 || len(active) == 0:
			p := next
			if random.IntN(3) == 0 {
				p = driver.Pointer(512 * random.IntN(100))
			} else {
				next += 512
			}
			add(mem.ActionAlloc, p, random.Int64N(5000))
			active = append(active, p)
		case k < 13:
			p := take(&active)
			add(mem.ActionFreeRequested, p, 1)
			add(mem.ActionFreeCompleted, p, 1)
		case k < 15:
			p := take(&active)
			add(mem.ActionFreeRequested, p, 1)
			pending = append(pending, p)
		case k < 17 && len(pending) > 0:
			add(mem.ActionFreeCompleted, take(&pending), 1)
		case k == 17:
			add(mem.ActionFreeRequested+mem.Action(random.IntN(2)), driver.Pointer(512*random.IntN(20_000)), 64)
		case k == 18:
			add(mem.ActionOOM, 100, 1<<40)
		default:
			add(mem.ActionSegmentAlloc+mem.Action(random.IntN(2)), 1<<40, 1<<20)
		}
	}
	for _, p := range active[:len(active)/2] {
		live = append(live, LiveBlock{Ptr: p, Size: 10, Stream: 7, Stack: 1})
	}
	return t, append(live, LiveBlock{Ptr: 1 << 50, Size: 99, Stream: 9, Stack: 2})
}

// lifetimesOf returns the blocks of lifetimes, and checks what has no need of a whole block.
func lifetimesOf(t *testing.T, l *Lifetimes) (all []Lifetime) {
	t.Helper()
	last := -1
	reader, sizes := l.Reader(), l.Reader(FieldSize)
	for i := range l.Len() {
		b := l.At(i)
		all = append(all, b)
		if l.Start(i) != int(b.Start) || l.End(i) != int(b.End) || l.Size(i) != b.Size || l.Ptr(i) != b.Ptr || l.Start(i) < last {
			t.Fatalf("block %d: %+v", i, b)
		}
		if b.ActiveAt(int(b.Start)-1) || b.ActiveAt(int(b.Start)) != (b.Start < b.End) || b.ActiveAt(int(b.End)) {
			t.Fatalf("block %d is active at the wrong events: %+v", i, b)
		}
		for _, e := range []int32{b.Start - 1, b.Start, b.End - 1, b.End} {
			if l.ActiveAt(i, int(e)) != b.ActiveAt(int(e)) {
				t.Fatalf("block %d is active at event %d: %v; it is %+v", i, e, l.ActiveAt(i, int(e)), b)
			}
		}
		if b.Freed < b.Start || b.Freed > b.End {
			t.Fatalf("block %d was freed at event %d, before it began or after it ended: %+v", i, b.Freed, b)
		}
		if read := reader.At(i); read != b || sizes.At(i).Size != b.Size {
			t.Fatalf("block %d: a reader has %+v, want %+v", i, read, b)
		}
		last = l.Start(i)
	}
	first := 0 // block after an event
	for e := -2; e <= l.events; e++ {
		for first < len(all) && int(all[first].Start) <= e {
			first++
		}
		if got := l.Since(e); got != first {
			t.Fatalf("the first block after event %d is %d, want %d", e, got, first)
		}
	}
	wantChanges(t, l, all)
	return all
}

// wantChanges checks that changes are those by the blocks.
func wantChanges(t *testing.T, l *Lifetimes, blocks []Lifetime) {
	t.Helper()
	want := make([]int64, l.events+2) // from event -1 on
	for _, b := range blocks {
		want[b.Start+1] += b.Size
		want[b.End+1] -= b.Size
	}
	got := make([]uint64, l.Changes().Len())
	l.Changes().Read(0, got)
	if len(got) != l.events || l.Changes().Before() != want[0] {
		t.Fatalf("%d changes, and %d bytes before them; want %d and %d", len(got), l.Changes().Before(), l.events, want[0])
	}
	for i, x := range got {
		if int64(x) != want[i+1] {
			t.Fatalf("event %d changes %d bytes, want %d", i, int64(x), want[i+1])
		}
	}
}

// Freed is the event that requested the free, however many events lie between it and the end of the block.
func TestFreedIsTheRequest(t *testing.T) {
	const a, b, older, gone, still, unseen, prompt = 512, 1024, 2048, 4096, 8192, 16384, 32768
	var events []Event
	for _, e := range []struct {
		action mem.Action
		p      driver.Pointer
	}{
		{mem.ActionAlloc, a},
		{mem.ActionAlloc, b},
		{mem.ActionAlloc, still},
		{mem.ActionFreeRequested, older}, // 3
		{mem.ActionFreeRequested, a},     // 4
		{mem.ActionFreeRequested, b},     // 5
		{mem.ActionFreeCompleted, b},
		{mem.ActionFreeCompleted, a},          // 7
		{mem.ActionFreeCompleted, older},      // 8
		{mem.ActionFreeCompleted, gone},       // 9: requested before the recording
		{mem.ActionFreeRequested, still},      // 10: never completed
		{mem.ActionFreeRequested, unseen},     // 11: never completed
		{mem.ActionSegmentAlloc, 1 << 20},     // 12
		{mem.ActionSegmentAlloc, 1<<20 + 512}, // 13
		{mem.ActionAlloc, prompt},
		{mem.ActionFreeRequested, prompt}, // 15
		{mem.ActionFreeCompleted, prompt},
	} {
		events = append(events, Event{Action: e.action, Ptr: e.p, Size: 512, Pool: 1})
	}
	tr := &Trace{Streams: []uint64{0}, Pools: []mem.PoolID{{}, {1, 2}}, Events: events}
	l, err := tr.Lifetimes(ProgramOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[driver.Pointer][2]int32{}
	for _, b := range lifetimesOf(t, l) {
		got[b.Ptr] = [2]int32{b.Freed, b.End}
		if b.Pool != 0 {
			t.Errorf("block %#x is in pool %d, although no pools are known", b.Ptr, b.Pool)
		}
	}
	want := map[driver.Pointer][2]int32{
		a: {4, 7}, b: {5, 6}, older: {3, 8}, gone: {-1, 9}, still: {10, 17}, unseen: {11, 17},
		prompt: {15, 16},
	}
	if !maps.Equal(got, want) {
		t.Errorf("blocks are freed and end at the events %v, want %v", got, want)
	}
}

// Lifetimes do not depend on the form of the events, nor on whether they are derived while the events are read.
func TestLifetimesOfColumns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	watched := 0
	for i := range 300 {
		without := []mem.Action{mem.ActionFreeRequested, mem.ActionFreeCompleted, mem.NumActions, mem.NumActions}[i%4]
		tr, live := randomHistory(random, 1+random.IntN(3*chunkEvents), without)
		if i%5 == 0 {
			tr.Gaps = []int{1 + random.IntN(len(tr.Events))}
		}
		opts := ProgramOptions{Live: live}
		want, err := tr.Lifetimes(opts)
		if err != nil {
			t.Fatal(err)
		}
		var watch LifetimesWatcher
		w := ColumnsWriter{Watch: watch.Watch}
		for k := range tr.Events {
			w.Add(&tr.Events[k])
		}
		compact := *tr
		compact.Events, compact.Columns = nil, w.Columns()
		got, err := compact.Lifetimes(opts)
		if err != nil {
			t.Fatal(err)
		}
		blocks := lifetimesOf(t, want)
		if !slices.Equal(lifetimesOf(t, got), blocks) {
			t.Fatalf("history %d: the lifetimes of columns differ", i)
		}
		unrecorded := 0
		for _, b := range blocks {
			if !b.Recorded {
				unrecorded++
			}
		}
		if n := want.Unrecorded(); n != unrecorded {
			t.Fatalf("history %d: Unrecorded is %d, and %d lifetimes are not recorded", i, n, unrecorded)
		}
		if got = watch.Lifetimes(&compact, opts); got != nil {
			watched++
			if !slices.Equal(lifetimesOf(t, got), blocks) || !slices.Equal(got.Streams, want.Streams) ||
				!slices.Equal(got.Pools, want.Pools) || got.Unrecorded() != want.Unrecorded() {
				t.Fatalf("history %d: the lifetimes that were watched differ", i)
			}
		}
		p, err := ToProgram(tr, opts)
		if err != nil || p.Blocks != len(blocks) {
			t.Fatalf("history %d: %d blocks in the program, %d lifetimes, %v", i, p.Blocks, len(blocks), err)
		}
	}
	if watched < 80 {
		t.Errorf("%d histories could be watched, want most of those without gaps", watched)
	}
}

// A program that is derived while the events are read has the ops of one that is derived from the events, with other
// numbers in the events.
func TestProgramsAreWatched(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	watched := 0
	for i := range 200 {
		without := []mem.Action{mem.ActionFreeRequested, mem.ActionFreeCompleted, mem.NumActions, mem.NumActions}[i%4]
		tr, live := randomHistory(random, 1+random.IntN(2*chunkEvents), without)
		if i%5 == 0 {
			tr.Gaps = []int{1 + random.IntN(len(tr.Events))}
		}
		want, err := ToProgram(tr, ProgramOptions{Live: live, Attempts: true})
		if err != nil {
			t.Fatal(err)
		}
		var ops []Op
		watch := ProgramWatcher{
			Options: ProgramOptions{Attempts: true},
			Op:      func(op Op) { ops = append(ops, op) },
		}
		numbers := Numbers{Streams: make([]uint32, len(tr.Streams)), Pools: make([]uint32, len(tr.Pools))}
		for k := range numbers.Streams {
			numbers.Streams[k] = uint32(len(tr.Streams) - 1 - k)
		}
		for k := range numbers.Pools {
			numbers.Pools[k] = uint32(len(tr.Pools) - 1 - k)
		}
		w := ColumnsWriter{Watch: watch.Watch, Discard: true}
		for _, e := range tr.Events {
			numbers.Replace(&e) // which is its own inverse
			w.Add(&e)
		}
		if n := w.Columns().Len(); n != 0 || w.Len() != len(tr.Events) {
			t.Fatalf("%d events are kept of %d", n, w.Len())
		}
		empty := *tr
		empty.Events = nil
		got, err := watch.Program(&empty, numbers, ProgramOptions{Live: live, Attempts: true})
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			continue
		}
		watched++
		for k := range ops {
			watch.Replace(&ops[k], numbers)
		}
		if !slices.Equal(append(got.Ops, ops...), want.Ops) {
			t.Fatalf("history %d: the ops that were watched differ", i)
		}
		got.Ops, want.Ops, got.Entries, want.Entries = nil, nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("history %d: %+v, want %+v", i, got, want)
		}
	}
	if watched < 50 {
		t.Errorf("%d histories could be watched, want most of those without gaps", watched)
	}
}
