package replay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/trace"
)

func scripted(t *testing.T, lines ...string) *Work {
	t.Helper()
	s, err := trace.ParseScript(strings.Join(lines, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	w, err := ScriptWork(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// On a simulated device a wait for a stream is a stall if a block of it was allocated or freed since the last wait.
func TestStallsAreWaitsForBlocksInUse(t *testing.T) {
	segments := []string{"alloc a 64MiB", "alloc b 64MiB on=s1", "free a", "free b", "empty_cache", "empty_cache"}
	pending := []string{"alloc a 64MiB", "free a pending", "empty_cache", "complete a"}
	for _, c := range []struct {
		what, spec string
		script     []string
		stalls     int64
	}{
		{"two segments go back, after one wait for all", "caching:", segments, 1},
		{"pages of two streams, a wait for each", "caching:expandable_segments:True", segments, 2},
		{"every free asks the driver", "direct", segments, 2},
		{"memory is kept", "bfc", segments[:4], 0},
		{"another stream is waited for first, which leaves the free of the segment", "caching:", pending, 2},
		{"what other streams do is no affair of the arena's", "arena:size=64MiB", pending[:2], 0},
		{"live blocks are in use", "direct", []string{"alloc a 1MiB", "alloc b 1MiB", "free a", "alloc c 1MiB", "free b"}, 2},
	} {
		got := compareOne(t, scripted(t, c.script...), CompareOptions{Specs: []string{c.spec}})
		if got.Stalls != c.stalls || !got.Completed() {
			t.Errorf("%s, %s: %d stalls, want %d", c.what, c.spec, got.Stalls, c.stalls)
		}
	}
}

func compareOne(t *testing.T, w *Work, opts CompareOptions) Row {
	t.Helper()
	c, err := Compare(w, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c.Rows[0]
}

// marking is an allocator that gives memory back when a mark after its last use is reached, and waits for the oldest
// when it holds too much.
type marking struct {
	dev     driver.Device
	used    []driver.Mark
	freed   []mem.Block
	reached int
	s       driver.Stream
}

func (m *marking) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	m.s = s
	for len(m.freed) > 0 {
		if done, err := s.Reached(m.used[0]); err != nil || !done {
			break
		}
		m.reached++
		m.freed, m.used = m.freed[1:], m.used[1:]
	}
	if len(m.freed) > 3 {
		if err := s.Sync(context.Background()); err != nil {
			return mem.Block{}, err
		}
	}
	return mem.Block{Ptr: 4096, Size: size}, nil
}

func (m *marking) Free(b mem.Block, _ ...driver.Stream) {
	mark, err := m.s.Mark()
	if err != nil {
		panic(err)
	}
	m.freed, m.used = append(m.freed, b), append(m.used, mark)
}

// No mark is reached before a wait, and then all are. The opener observes the work.
func TestMarksAreReachedWhenSomebodyWaits(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("alloc b%d 1KiB", i), fmt.Sprintf("free b%d", i))
	}
	w := scripted(t, lines...)
	var m *marking
	run := simulation{work: w, capacity: 1 << 30, spec: &Spec{open: func(of *Work, dev driver.Device, _ int64) (mem.Allocator, error) {
		if of != w {
			t.Error("the opener was shown other work")
		}
		m = &marking{dev: dev}
		return m, nil
	}}}
	res, err := run.do()
	if err != nil {
		t.Fatal(err)
	}
	// Every fifth request finds four blocks whose marks are not reached, waits, and the next gives all four back.
	if res.use.Stalls != 4 || m.reached != 16 {
		t.Errorf("%d stalls, %d marks found reached; want 4 and 16", res.use.Stalls, m.reached)
	}
}

// waiting is an allocator that waits for its stream before every request.
type waiting struct{}

func (waiting) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return mem.Block{Ptr: 4096, Size: size}, s.Sync(context.Background())
}

func (waiting) Free(mem.Block, ...driver.Stream) {}

// A block is in use from the moment it is allocated.
func TestBlocksAreInUseBeforeTheyAreFreed(t *testing.T) {
	for _, c := range []struct {
		script []string
		stalls int64
	}{
		{[]string{"alloc a 1KiB", "alloc b 1KiB", "alloc c 1KiB on=s1", "alloc d 1KiB on=s1", "alloc e 1KiB"}, 3},
		{[]string{"alloc a 1KiB", "free a", "alloc b 1KiB", "alloc c 1KiB"}, 2},
	} {
		run := simulation{
			work: scripted(t, c.script...), capacity: 1 << 30,
			spec: &Spec{open: func(*Work, driver.Device, int64) (mem.Allocator, error) { return waiting{}, nil }},
		}
		if res, err := run.do(); err != nil || res.use.Stalls != c.stalls {
			t.Errorf("%q: %d stalls, %v; want %d", c.script, res.use.Stalls, err, c.stalls)
		}
	}
}

// The first third of the ops counts in the whole run alone; a run that ends in it has no later part.
func TestLaterIsAfterTheFirstThird(t *testing.T) {
	script := []string{"alloc a 1MiB", "alloc b 1MiB", "free a", "free b", "alloc c 1MiB", "free c"}
	r := compareOne(t, scripted(t, script...), CompareOptions{Specs: []string{"direct"}})
	if r.DriverCalls != 6 || r.Stalls != 3 || r.Later == nil || r.Later.DriverCalls != 4 || r.Later.Stalls != 3 {
		t.Fatalf("%+v, later %+v", r.DriverUse, r.Later)
	}
	if r.Later.DriverTime <= 0 || r.Later.DriverTime >= r.DriverTime || r.Later.Recorded != 0 || r.Later.Share() != -1 {
		t.Errorf("later %+v of %+v; nothing was recorded", r.Later, r.DriverUse)
	}
	r = compareOne(t, scripted(t, script...), CompareOptions{Specs: []string{"direct"}, Capacity: 1<<20 + 1})
	if r.FirstOOM != 1 || r.Later != nil {
		t.Errorf("out of memory at op %d: later %+v", r.FirstOOM, r.Later)
	}
	r = compareOne(t, scripted(t, "alloc a 1MiB"), CompareOptions{Specs: []string{"direct"}})
	if r.Later == nil || r.Later.DriverCalls != 1 {
		t.Errorf("of one op all is later: %+v", r.Later)
	}
}

// On real memory calls are counted and timed too: as many as on a simulated device, but for what ends the run.
func TestDriverUseOnRealMemory(t *testing.T) {
	w := scripted(t, "alloc a 1MiB", "alloc b 70000", "free a", "alloc c 3MiB on=s1", "free c", "alloc d 2MiB on=s1", "free b")
	var clock time.Time
	opts := CompareOptions{
		Capacity: 256 << 20, Contents: WholeContents, Specs: []string{"direct", "caching", "arena:size=16MiB"},
		Now:        func() time.Time { clock = clock.Add(time.Millisecond); return clock },
		OpenDevice: func(total int64) (driver.Device, error) { return host.Open(host.Options{Total: total}) },
	}
	c, err := Compare(w, opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		simulated := compareOne(t, w, CompareOptions{Specs: opts.Specs[i : i+1], Capacity: opts.Capacity})
		if r.Priced || !r.Completed() || r.DriverCalls != simulated.DriverCalls || r.Later.DriverCalls != simulated.Later.DriverCalls {
			t.Errorf("%s: %+v, later %+v; simulated %+v, later %+v", r.Allocator, r.DriverUse, r.Later, simulated.DriverUse, simulated.Later)
		}
		if r.DriverTime != time.Duration(r.DriverCalls)*time.Millisecond {
			t.Errorf("%s: %d calls took %v, each a millisecond", r.Allocator, r.DriverCalls, r.DriverTime)
		}
		if r.Stalls > r.DriverCalls {
			t.Errorf("%s: %+v", r.Allocator, r.DriverUse)
		}
	}
	opts.Now = nil
	if r := compareOne(t, w, opts); r.DriverTime != -1 || r.Later.DriverTime != -1 || r.Later.Share() != -1 || r.DriverCalls != 7 {
		t.Errorf("without a clock: %+v, later %+v", r.DriverUse, r.Later)
	}
}

// The bound is the memory requested at the peak of the work, under any limit, and is never chosen as the best row.
func TestBoundIsWhatIsRequestedAtThePeak(t *testing.T) {
	w := scripted(t, "alloc a 3MiB", "alloc b 1000", "free a", "alloc c 2MiB", "free b pending", "alloc d 5MiB", "complete b")
	for _, smallest := range []bool{false, true} {
		c, err := Compare(w, CompareOptions{Specs: []string{"caching:", "direct"}, Smallest: smallest, Limit: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		const peak = 7<<20 + 1000
		b := c.Bound
		if b.Allocator != Bound || b.RequestedPeak != peak || b.ReservedPeak != peak || b.Waste() != 1 || b.Allocs != 4 ||
			b.DriverUse != (verify.DriverUse{}) || b.Later.DriverUse != (verify.DriverUse{}) || !b.Completed() {
			t.Errorf("%+v, later %+v", b, b.Later)
		}
		if len(c.Rows) != 2 || c.Best < 0 {
			t.Errorf("%d rows, the best is %d", len(c.Rows), c.Best)
		}
		over := c.OverBound(&c.Rows[0])
		if smallest && (b.SmallestLimit != peak || c.OverBound(&b) != 1 || over != float64(c.Rows[0].SmallestLimit)/peak) ||
			!smallest && (b.SmallestLimit != 0 || over != 0) {
			t.Errorf("smallest %v: %d bytes, the first row is %v times that", smallest, b.SmallestLimit, over)
		}
	}
	if _, err := ParseSpec(Bound, caching.Default()); err == nil {
		t.Error("the bound is no allocator to ask for")
	}
}
