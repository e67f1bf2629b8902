package reuse_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// A scene is a device with streams.
type scene struct {
	*reuse.Streams
	t   *testing.T
	dev driver.Device
	s   []driver.Stream // by number, if none was closed
	sim *sim.Device
}

func newScene(t *testing.T, n int, wrap func(*sim.Device) driver.Device) *scene {
	d := drivertest.OpenSim(t, 64<<20)
	c := &scene{t: t, dev: d, sim: d}
	if wrap != nil {
		c.dev = wrap(d)
	}
	c.Streams = reuse.New(c.dev, "owner")
	c.s = []driver.Stream{c.dev.DefaultStream()}
	for len(c.s) < n {
		c.s = append(c.s, c.open())
	}
	t.Cleanup(func() { c.must(d.Close()) })
	return c
}

func (c *scene) must(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Fatal(err)
	}
}

func (c *scene) open() driver.Stream {
	s, err := c.dev.NewStream(driver.StreamOptions{})
	c.must(err)
	return s
}

// note is the set of streams by their numbers.
func (c *scene) note(numbers ...int) (set reuse.Set) {
	for _, n := range numbers {
		set = c.Union(set, c.Register(c.s[n]))
	}
	return set
}

// costs checks what is done in waits, of two driver calls each, and that it does nothing else.
func (c *scene) costs(waits int64, what string, do func()) {
	c.t.Helper()
	before := c.sim.Calls()
	do()
	after := c.sim.Calls()
	if n := after[sim.CallWaitFor].Count - before[sim.CallWaitFor].Count; n != waits {
		c.t.Errorf("%s: %d waits, want %d", what, n, waits)
	}
	if n := after.Total().Count - before.Total().Count; n != 2*waits {
		c.t.Errorf("%s: %d driver calls, want %d", what, n, 2*waits)
	}
}

// follow hands memory to a stream.
func (c *scene) follow(n int, p reuse.Dependencies, waits int64, what string) {
	c.t.Helper()
	c.costs(waits, what, func() {
		c.t.Helper()
		c.must(c.Wait(c.s[n], p))
	})
}

// free is the past of memory that streams used.
func (c *scene) free(numbers ...int) (p reuse.Dependencies) {
	c.t.Helper()
	c.costs(0, "a free", func() { p = c.Freed(c.note(numbers...)) })
	return p
}

// A stream follows each other that used the memory, once, as long as that frees nothing more.
func TestWaitsAreNotRepeated(t *testing.T) {
	c := newScene(t, 4, nil)
	c.follow(1, reuse.Dependencies{}, 0, "fresh memory")
	c.follow(1, c.free(1), 0, "memory of the same stream")
	p := c.free(1, 2, 3, 3)
	c.follow(1, p, 2, "memory of three")
	c.follow(1, p, 0, "and the same again")
	c.follow(1, c.free(1), 0, "memory of its own since")
	c.follow(1, c.free(1, 2), 1, "memory that one of them freed again")
	c.follow(1, p, 0, "what was waited for long ago")
	c.follow(0, p, 3, "another stream, for all three")
	c.follow(0, p, 0, "which has waited now")
	c.follow(1, c.free(0), 1, "the first for that one")
}

// Of what merged, the time of the last free is known, and of each stream that of its own last free: the later of the
// two does not make a wait for the other worthless.
func TestMergedPasts(t *testing.T) {
	c := newScene(t, 4, nil)
	one := c.free(1)
	c.follow(3, one, 1, "memory of one")
	two := c.free(2)
	c.follow(3, c.Merge(one, two), 1, "merged with memory of another, freed later")
	c.follow(3, c.Merge(two, one), 0, "the same in the other order")
	again := c.free(1)
	c.follow(3, two, 0, "memory of the second alone")
	c.follow(3, one, 0, "memory that the first freed before")
	c.follow(3, c.Merge(two, again), 1, "merged with what the first has freed since")
	if got := c.Merge(one, two).Users; got != c.note(1, 2) {
		t.Errorf("users are %#x", got)
	}
}

// A stream can have queued more on a block in use by the next time, so a wait counts once; and it counts for other
// memory.
func TestOnLoan(t *testing.T) {
	c := newScene(t, 3, nil)
	p := c.free(1)
	inUse := reuse.InUse(c.note(1, 2))
	c.follow(2, inUse, 1, "a block in use")
	c.follow(2, p, 0, "memory freed before")
	c.follow(2, inUse, 1, "the block again")
	c.follow(2, c.free(1), 1, "the block freed, maybe after more work")
}

// Streams with numbers beyond the bits of a word are distinguished like others.
func TestDefect22_EveryStreamIsToldApart(t *testing.T) {
	c := newScene(t, 1030, nil)
	p := c.free(61, 62, 63, 65, 1029)
	c.follow(1, p, 5, "streams below and beyond")
	c.follow(1, p, 0, "the same again")
	c.note(64, 69)
	c.follow(65, p, 4, "one that is among them, for the others")
	c.follow(65, c.free(65), 0, "memory of its own")
	c.follow(1, c.free(65), 1, "memory of one that has freed since")
	c.follow(1, p, 0, "what merged before it did")
	c.follow(1, c.Merge(p, c.free(1029)), 1, "merged with what one freed since")
	c.follow(69, reuse.Dependencies{}, 0, "fresh memory")
	if got := slices.Collect(c.All(p.Users)); !slices.Equal(got, []driver.Stream{c.s[61], c.s[62], c.s[63], c.s[65], c.s[1029]}) {
		t.Errorf("%d streams are in the set", len(got))
	}
	for s := range c.All(p.Users) {
		if s != c.s[61] {
			t.Error("All goes on after the loop has ended")
		}
		break
	}
}

// A stream that is closed has done its work: no stream waits for it, and one that gets its number is not taken for it.
func TestClosedStreams(t *testing.T) {
	c := newScene(t, 4, nil)
	old := c.s[3]
	p := c.free(3, 2)
	c.follow(3, c.free(1), 1, "memory of another")
	c.must(old.Close())
	calls := c.sim.Calls()
	c.must(c.Wait(c.s[1], p))
	c.must(c.Wait(c.s[0], p))
	after := c.sim.Calls()
	if n := after[sim.CallWaitFor].Count - calls[sim.CallWaitFor].Count; n != 2 {
		t.Errorf("%d waits for an open stream and a closed one, by two", n)
	}
	if got := slices.Collect(c.All(p.Users)); !slices.Equal(got, []driver.Stream{c.s[2]}) {
		t.Errorf("%d streams are in the set", len(got))
	}

	old = c.open()
	if old.ID() != 3 {
		t.Fatalf("the device gave the new stream the number %d", old.ID())
	}
	c.Register(old)
	c.must(old.Close())
	c.s[3] = c.open()
	if a, b := c.Register(old), c.Register(c.s[3]); a != 1<<3 || b != 1<<3 {
		t.Errorf("sets %#x and %#x", a, b)
	}
	if a := c.Register(old); a != 0 {
		t.Errorf("the closed one is in the set %#x when the new one is known", a)
	}
	c.follow(1, c.Freed(c.note(3)), 1, "memory of the new one")
	c.follow(3, c.free(3), 0, "its own")
	if err := c.Wait(old, c.Freed(c.note(3))); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the closed one follows the new one: %v", err)
	}
	if err := c.Wait(old, c.free(1)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the closed one follows another: %v", err)
	}
}

// What a stream waited for is nothing that an older one of its number, which is closed, waited for: it could not hand
// memory on in order.
func TestClosedStreamsInheritNothing(t *testing.T) {
	c := newScene(t, 3, nil)
	old := c.s[2]
	c.must(old.Close())
	c.s[2] = c.open()
	p := c.free(1)
	c.note(2)
	c.follow(2, p, 1, "memory of another")
	if err := c.Wait(old, p); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the closed one follows too: %v", err)
	}
	c.follow(2, p, 0, "the same again")
}

// A stream that captures is not waited for, and no stream is drawn into the capture.
func TestCapturingStreams(t *testing.T) {
	c := newScene(t, 3, nil)
	g := c.dev.Graphs()
	p := c.free(1)
	c.must(g.Begin(c.s[1]))
	if err := c.Wait(c.s[2], p); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("Follow: %v, want ErrCapturing", err)
	}
	if captures, err := g.Capturing(c.s[2]); captures || err != nil {
		t.Errorf("the one that should wait captures: %t, %v", captures, err)
	}
	c.follow(1, p, 0, "its own memory")
	if err := c.NotCapturing(c.s[1]); !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("NotCapturing: %v, want ErrCapturing", err)
	}
	c.must(c.NotCapturing(c.s[2]))
	graph, err := g.End(c.s[1])
	c.must(errors.Join(err, graph.Close(), c.NotCapturing(c.s[1])))
	c.follow(2, p, 1, "after the capture")
}

// A failed wait is made again, and the error names the stream.
func TestFailedWaits(t *testing.T) {
	var dev *fault.Device
	c := newScene(t, 3, func(d *sim.Device) driver.Device {
		dev = fault.Wrap(d)
		return dev
	})
	p := c.free(0, 1)
	for _, rule := range []fault.Rule{{Kind: intercept.Mark, Nth: 2}, {Kind: intercept.WaitFor}, {Kind: intercept.Capturing}} {
		dev.SetRules(rule)
		err := c.Wait(c.s[2], p)
		dev.SetRules()
		if !errors.Is(err, driver.ErrLost) || !strings.HasPrefix(err.Error(), "owner: have stream 2 wait for stream 1: ") {
			t.Errorf("%s fails, and Follow says %v", rule.Kind, err)
		}
	}
	c.follow(2, p, 1, "the rest")
}

// A stream may begin to capture right after it was asked whether it does. Then its mark fails, and the wait.
func TestAStreamThatBeginsToCapture(t *testing.T) {
	var dev *fault.Device
	c := newScene(t, 3, func(d *sim.Device) driver.Device {
		dev = fault.Wrap(d)
		return dev
	})
	p := c.free(0, 1)
	dev.SetRules(fault.Rule{Kind: intercept.Mark, Nth: 2, Code: driver.ErrCapturing}) // see TestFailedWaits
	err := c.Wait(c.s[2], p)
	dev.SetRules()
	if !errors.Is(err, driver.ErrCapturing) {
		t.Errorf("the wait for a stream that captures: %v", err)
	}
	c.follow(2, p, 1, "after the capture")
}

// Sync waits for the queued work, but not for closed streams, which are no error; a closed device is an error.
func TestSync(t *testing.T) {
	var dev *fault.Device
	c := newScene(t, 4, func(d *sim.Device) driver.Device {
		dev = fault.Wrap(d)
		return dev
	})
	p, err := c.dev.Alloc(4096)
	c.must(err)
	set := c.note(1, 2)
	c.note(3)
	for _, s := range c.s[1:] {
		c.sim.Hold(s.ID())
		c.must(s.Fill(p+driver.Pointer(256*int(s.ID())), 1, 256))
	}
	c.must(c.s[1].Close())
	c.must(c.Sync(set))
	if two, three := c.sim.Pending(2), c.sim.Pending(3); two != 0 || three == 0 {
		t.Errorf("pending on a stream of the set: %d; on another: %d", two, three)
	}
	dev.SetRules(fault.Rule{Kind: intercept.Sync})
	if err := c.Sync(set); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Sync on a device that is lost: %v", err)
	}
	dev.SetRules()
	c.must(c.dev.Close())
	if err := c.Sync(set); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Sync on a closed device: %v", err)
	}
	c.must(c.Sync(0))
}

func TestNilStream(t *testing.T) {
	c := newScene(t, 1, nil)
	testkit.Equal(t, "panic of Register(nil)", testkit.Panic(t, func() { c.Register(nil) }), "owner: a nil stream")
}
