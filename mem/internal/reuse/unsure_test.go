package reuse_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// marksFail makes the first n calls of Mark fail while do runs.
func marksFail(dev *fault.Device, n int, do func()) {
	var rules []fault.Rule
	for i := range n {
		rules = append(rules, fault.Rule{Kind: intercept.Mark, Nth: int64(i + 1)})
	}
	dev.SetRules(rules...)
	do()
	dev.SetRules()
}

// newSceneWithClosed returns a scene in which stream n is open and closed had its number before.
func newSceneWithClosed(t *testing.T, n int) (c *scene, dev *fault.Device, closed driver.Stream) {
	c = newScene(t, n+1, func(d *sim.Device) driver.Device {
		dev = fault.Wrap(d)
		return dev
	})
	closed = c.s[n]
	c.must(closed.Close())
	c.s[n] = c.open()
	if c.s[n].ID() != closed.ID() {
		t.Fatalf("the new stream has the number %d", c.s[n].ID())
	}
	return c, dev, closed
}

// checkWaits checks that stream 1 waits for stream n, and for it alone, before it reuses memory.
func (c *scene) checkWaits(n int, p reuse.Dependencies) {
	c.t.Helper()
	before := c.sim.Calls()[sim.CallWaitFor].Count
	c.must(c.Wait(c.s[1], p))
	if waits := c.sim.Calls()[sim.CallWaitFor].Count - before; waits != 1 {
		c.t.Errorf("%d waits, want 1", waits)
	}
	if got := slices.Collect(c.All(p.Users)); !slices.Equal(got, []driver.Stream{c.s[n]}) {
		c.t.Errorf("%d streams are known to be open, want 1", len(got))
	}
	c.must(c.Wait(c.s[1], p)) // may wait once more
	c.follow(1, p, 0, "memory that was waited for")
	c.follow(1, c.Freed(c.note(n)), 1, "memory that was freed again")
}

// The device fails to tell which of two streams with one number is closed. The memory of the open one is not reused
// without a wait.
func TestTheDeviceDoesNotTellWhichStreamIsClosed(t *testing.T) {
	for _, n := range []int{2, 65} {
		for failures := range 3 {
			t.Run(fmt.Sprintf("stream %d, the closed one is registered last, %d failures", n, failures), func(t *testing.T) {
				c, dev, closed := newSceneWithClosed(t, n)
				p := c.Freed(c.note(n))
				marksFail(dev, failures, func() { c.Register(closed) })
				c.checkWaits(n, p)
			})
			t.Run(fmt.Sprintf("stream %d, the open one is registered last, %d failures", n, failures), func(t *testing.T) {
				c, dev, closed := newSceneWithClosed(t, n)
				c.Register(closed)
				var p reuse.Dependencies
				marksFail(dev, failures, func() { p = c.Freed(c.note(n)) })
				c.checkWaits(n, p)
			})
		}
	}
}

// Streams of which the device did not tell which is closed are told apart when one of them is registered again.
func TestStreamsAreToldApartLater(t *testing.T) {
	for _, failures := range []int{0, 1} {
		for _, first := range []bool{false, true} {
			c, dev, closed := newSceneWithClosed(t, 2)
			older := c.s[2]
			c.must(older.Close())
			c.s[2] = c.open()
			c.Register(closed)
			marksFail(dev, 4, func() {
				c.Register(c.s[2])
				c.Register(older)
			})
			var set reuse.Set
			marksFail(dev, 2, func() { set = c.Register(c.s[2]) })
			if got := slices.Collect(c.All(set)); len(got) != 3 {
				t.Errorf("%d streams may be open, want 3", len(got))
			}
			again := c.s[2]
			if first {
				again = older
			}
			marksFail(dev, failures, func() { c.Register(again) })
			c.checkWaits(2, c.Freed(set))
		}
	}
}
