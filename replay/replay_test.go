package replay_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// program reads the ops of a script.
func program(t testing.TB, script string) *trace.Program {
	t.Helper()
	s, err := trace.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantLog(t *testing.T, a *allocator, want string) {
	t.Helper()
	lines := strings.Fields(strings.ReplaceAll(strings.TrimSpace(want), " ", "~"))
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "~", " ")
	}
	if !slices.Equal(a.log, lines) {
		t.Errorf("the allocator was asked:\n%s\nwant:\n%s", strings.Join(a.log, "\n"), strings.Join(lines, "\n"))
	}
}

func TestRunAsksForWhatTheProgramSays(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	p := program(t, `
alloc a 1000 on=s0
alloc b 100 on=s2
free a
alloc c 10 on=s1
empty_cache
free c
`)
	now := time.Unix(0, 0)
	r, err := replay.Run(p, a, d, replay.Options{Now: func() time.Time { now = now.Add(30); return now }})
	if err != nil {
		t.Fatal(err)
	}
	wantLog(t, a, `
s0 alloc 1000 at 0x1000
s2 alloc 100 at 0x1400
free 0x1000
s1 alloc 10 at 0x1000
empty cache
free 0x1000`)
	if r.Ops != 6 || r.Allocs != 3 || r.Frees != 2 || r.EmptyCaches != 1 || !r.Completed || r.NumOOMs != 0 {
		t.Errorf("counts: %+v", r)
	}
	if r.RequestedPeak != 1100 || r.AllocatedPeak != 1536 || r.ReservedPeak != 12345 {
		t.Errorf("peaks: %+v", r)
	}
	if r.Elapsed != 30 || r.NsPerOp() != 5 {
		t.Errorf("elapsed %v, %v an op", r.Elapsed, r.NsPerOp())
	}
}

func TestDeferredFreesWaitForTheirCompletion(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	p := program(t, `
alloc a 512
alloc b 512
free a pending
free b pending
alloc c 512
complete b
alloc d 512
complete a
alloc e 512
`)
	r, err := replay.Run(p, a, d, replay.Options{})
	if err != nil || !r.Completed {
		t.Fatal(r, err)
	}
	wantLog(t, a, `
s0 alloc 512 at 0x1000
s0 alloc 512 at 0x1200
free 0x1000 used by 1
free 0x1200 used by 1
s0 alloc 512 at 0x1400
done 0x1200
s0 alloc 512 at 0x1200
done 0x1000
s0 alloc 512 at 0x1000`)
	if r.RequestedPeak != 4*512-512 || r.AllocatedPeak != 3*512 {
		t.Errorf("peaks: %+v", r)
	}
}

// An allocator that waits for all pending frees must come back from that, and their later completion changes nothing.
func TestSyncCompletesDeferredFrees(t *testing.T) {
	d := newDevice(1024)
	a := newAllocator(d)
	p := program(t, `
alloc a 1024
free a pending
alloc b 1024
complete a
free b
`)
	r, err := replay.Run(p, a, d, replay.Options{Contents: replay.WholeContents})
	if err != nil || !r.Completed {
		t.Fatal(r, err)
	}
	wantLog(t, a, `
s0 alloc 1024 at 0x1000
free 0x1000 used by 1
done 0x1000
s0 alloc 1024 at 0x1000
free 0x1000`)
}

func TestRunStopsWithoutRoom(t *testing.T) {
	d := newDevice(1024)
	p := program(t, `
alloc a 512
alloc b 1024 on=s1
free a
alloc c 1024
free b
`)
	p.Entries = []uint32{7, 8, 9, trace.NoEntry, 11}
	r, err := replay.Run(p, newAllocator(d), d, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Completed || r.Ops != 2 || r.Allocs != 1 || r.NumOOMs != 1 || len(r.OOMs) != 1 {
		t.Fatalf("%+v", r)
	}
	oom := r.OOMs[0]
	if oom.Op != 1 || oom.Entry != 8 || oom.Size != 1024 || oom.Stream != 1 || oom.Attempt || !errors.Is(oom.Err, mem.ErrNoMemory) {
		t.Errorf("%+v", oom)
	}

	a := newAllocator(d)
	r, err = replay.Run(p, a, d, replay.Options{SkipOOM: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Completed || r.Ops != 5 || r.Allocs != 2 || r.Frees != 1 || r.Skipped != 1 || r.NumOOMs != 1 {
		t.Errorf("%+v", r)
	}
}

func TestOOMsAreCountedBeyondThoseDescribed(t *testing.T) {
	d := newDevice(1024)
	p := program(t, strings.Repeat("alloc x 2048\nfree x\n", 100)+"alloc p 2048\nfree p pending\ncomplete p\n")
	r, err := replay.Run(p, newAllocator(d), d, replay.Options{SkipOOM: true})
	if err != nil || r.NumOOMs != 101 || len(r.OOMs) != replay.MaxOOMs || r.Skipped != 101 || r.Frees != 0 || r.RequestedPeak != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAttemptsAreFreedAtOnceAndMayFail(t *testing.T) {
	d := newDevice(1024)
	a := newAllocator(d)
	p := program(t, "alloc a 512\ntry 512 on=s1\ntry 1024\nfree a\n")
	r, err := replay.Run(p, a, d, replay.Options{})
	if err != nil || !r.Completed || r.Allocs != 1 || r.NumOOMs != 1 || !r.OOMs[0].Attempt || r.RequestedPeak != 512 {
		t.Errorf("%+v, %v", r, err)
	}
	wantLog(t, a, `
s0 alloc 512 at 0x1000
s1 alloc 512 at 0x1200
free 0x1200
s0 full 1024
free 0x1000`)
}

func TestPrivatePools(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	p := program(t, `
alloc a 1
alloc b 1 pool=1,0
alloc c 1 pool=1,0
free b
alloc d 1 pool=0,2
alloc e 1 pool=1,0
free a pending
alloc f 1
empty_cache
alloc g 1 pool=0,2
`)
	if _, err := replay.Run(p, a, d, replay.Options{}); err != nil {
		t.Fatal(err)
	}
	wantLog(t, a, `
s0 alloc 1 at 0x1000
begin (1, 0) true
s0 alloc 1 at 0x1200
s0 alloc 1 at 0x1400
free 0x1200
end (1, 0)
begin (0, 2) true
s0 alloc 1 at 0x1200
end (0, 2)
begin (1, 0) true
s0 alloc 1 at 0x1600
end (1, 0)
release (1, 0)
free 0x1000 used by 1
s0 alloc 1 at 0x1800
empty cache
begin (0, 2) true
s0 alloc 1 at 0x1a00
end (0, 2)
release (0, 2)`)
}

func TestDrainFreesWhatIsLeft(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	p := program(t, "alloc a 512\nalloc b 512\nalloc c 0\nfree a pending\nalloc d 512\n")
	if _, err := replay.Run(p, a, d, replay.Options{Drain: true, Contents: replay.WholeContents}); err != nil {
		t.Fatal(err)
	}
	a.poll()
	if len(a.live) != 0 {
		t.Errorf("left: %v", a.live)
	}
}

// An overlapping allocator returns blocks that share all but their first bytes.
type overlapping struct{ next driver.Pointer }

func (o *overlapping) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	o.next += 256
	return mem.Block{Ptr: o.next, Size: size}, nil
}

func (o *overlapping) Free(mem.Block, ...driver.Stream) {}

// Blocks that are left at the end are checked after the last operation.
func TestDrainFindsOverwrittenBlocks(t *testing.T) {
	d := newDevice(1 << 16)
	p := program(t, "alloc a 512\nalloc b 512\nalloc c 512\nfree c\n")
	r, err := replay.Run(p, &overlapping{0x1000}, d, replay.Options{Drain: true, Contents: replay.WholeContents})
	var ce *verify.ContentsError
	if !errors.As(err, &ce) || ce.Op != 3 || r.Ops != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestContentsFindBlocksHandedOutTwice(t *testing.T) {
	for _, mode := range []replay.Contents{replay.SampledContents, replay.WholeContents} {
		d := newDevice(12 << 20)
		a := newAllocator(d)
		a.stale = true // frees at once what other streams still use
		p := program(t, "alloc big 9437000\nalloc a 4096\nfree a pending\nalloc b 8192\nfree big\nfree b\ncomplete a\n")
		r, err := replay.Run(p, a, d, replay.Options{Contents: mode})
		var ce *verify.ContentsError
		if !errors.As(err, &ce) || ce.Op != 6 || ce.Offset != 0 || ce.Block.Size != 4096 || r.Ops != 7 || r.Completed {
			t.Errorf("mode %d: %+v, %v", mode, r, err)
		}
		a = newAllocator(d)
		if r, err = replay.Run(p, a, d, replay.Options{Contents: mode}); err != nil || !r.Completed {
			t.Errorf("mode %d: %+v, %v", mode, r, err)
		}
	}
}

func TestProgressMayEndTheRun(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	a.quiet = true
	p := program(t, strings.Repeat("alloc x 512\nfree x\n", replay.ProgressOps))
	stop := errors.New("stop")
	var seen []int
	r, err := replay.Run(p, a, d, replay.Options{Progress: func(n int) error {
		if seen = append(seen, n); n == replay.ProgressOps {
			return nil
		}
		return stop
	}})
	if err != stop || r.Ops != 2*replay.ProgressOps || !slices.Equal(seen, []int{replay.ProgressOps, 2 * replay.ProgressOps}) {
		t.Errorf("%+v, %v, %v", r, err, seen)
	}
}

func TestRunRefusesImpossiblePrograms(t *testing.T) {
	d := newDevice(1 << 16)
	p := &trace.Program{Ops: []trace.Op{{Kind: trace.OpFree}}, Blocks: 1, Streams: 1}
	var pe *trace.ProgramError
	if _, err := replay.Run(p, newAllocator(d), d, replay.Options{}); !errors.As(err, &pe) || pe.Op != 0 {
		t.Errorf("%v", err)
	}
}

// Fewer streams than the program has are a mistake of the caller, and the panic has both numbers.
func TestTooFewStreams(t *testing.T) {
	d := newDevice(1 << 16)
	p := program(t, "alloc a 1 on=s1\nfree a\n")
	text := testkit.Panic(t, func() {
		_, _ = replay.Run(p, newAllocator(d), d, replay.Options{Streams: []driver.Stream{d.DefaultStream()}})
	})
	testkit.Contains(t, text, "replay: Options.Streams has 1 streams, the program 2")
}

func TestErrorsOfTheAllocatorEndTheRun(t *testing.T) {
	d := newDevice(1 << 16)
	a := newAllocator(d)
	a.empty = errors.New("lost")
	r, err := replay.Run(program(t, "alloc a 1\nempty_cache\nfree a\n"), a, d, replay.Options{})
	if !errors.Is(err, a.empty) || !strings.Contains(fmt.Sprint(err), "op 1") || r.Ops != 2 || r.Completed {
		t.Errorf("%+v, %v", r, err)
	}
}

// holds is nothing that asks for holders, too.
type holds struct {
	nothing
	last mem.Holder
}

func (h *holds) Movable(_ mem.Block, holder mem.Holder) bool { h.last = holder; return true }

func TestRunMakesNoHeapAllocationPerOp(t *testing.T) {
	d := newDevice(1 << 16)
	for _, a := range []mem.Allocator{nothing{}, &holds{}} {
		measure := func(n int) float64 {
			p := program(t, strings.Repeat("alloc x 512\nalloc y 1\nfree x\nfree y\n", n))
			return testing.AllocsPerRun(1, func() {
				if _, err := replay.Run(p, a, d, replay.Options{}); err != nil {
					t.Fatal(err)
				}
			})
		}
		if few, many := measure(10), measure(1000); many > few+10 {
			t.Errorf("%T: %v heap allocations for 40 ops, %v for 4000", a, few, many)
		}
	}
}
