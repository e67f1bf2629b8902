package pinned_test

import (
	"errors"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A card is a network card. It knows the memory that is registered with it.
type card struct {
	t        *testing.T
	segments map[uintptr]int // bytes by address
	calls    int
	fails    error // of the next calls
}

func newCard(t *testing.T) *card { return &card{t: t, segments: map[uintptr]int{}} }

func (c *card) attach(segment []byte) (func() error, error) {
	c.calls++
	if c.fails != nil {
		return nil, c.fails
	}
	p := at(segment)
	if c.segments[p] != 0 {
		c.t.Errorf("the segment at %#x is attached twice", p)
	}
	c.segments[p] = len(segment)
	segment[0], segment[len(segment)-1] = 1, 1 // it is there
	return func() error {
		if c.fails != nil {
			return c.fails
		}
		segment[0] = 2 // and still is
		delete(c.segments, p)
		return nil
	}, nil
}

// knows reports whether the card could read all of b.
func (c *card) knows(b []byte) bool {
	for p, n := range c.segments {
		if at(b) >= p && at(b)+uintptr(len(b)) <= p+uintptr(n) {
			return true
		}
	}
	return false
}

// theCard is the card of the allocators that mem.AllocatorFor opens.
var theCard *card

func init() {
	pinned.RegisterNIC(func(segment []byte) (func() error, error) { return theCard.attach(segment) })
}

// TestDefect19_NetworkCardsKnowTheirMemory: a request for memory for network cards returns registered page-locked
// memory, and only such a request does.
func TestDefect19_NetworkCardsKnowTheirMemory(t *testing.T) {
	theCard = newCard(t)
	d := newDevice()
	nic := mem.OnHost | mem.GPUCompatible | mem.NICCompatible
	for want, known := range map[mem.Attributes]bool{
		nic: true, mem.NICCompatible | mem.OnHost: true, mem.OnHost | mem.GPUCompatible: false,
	} {
		a, err := mem.AllocatorFor(d, want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Alloc(d.DefaultStream(), 5000)
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := a.(driver.Visible).Bytes(b.Ptr, 5000)
		if err != nil || theCard.knows(bytes) != known {
			t.Errorf("%v: the card knows the memory: %v, want %v; %v", want, theCard.knows(bytes), known, err)
		}
		a.Free(b)
		if err := a.(io.Closer).Close(); err != nil || len(theCard.segments) != 0 {
			t.Errorf("%v: after Close (%v) the card knows %v", want, err, theCard.segments)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A segment is attached once, however many blocks it has, and however often they are allocated.
func TestAttachOncePerSegment(t *testing.T) {
	for name, cfg := range map[string]pinned.Config{
		"allocated": {}, "registered": {HostRegister: true}, "reserved": {ReserveSegment: 1 << 20},
	} {
		c, d := newCard(t), newDevice()
		cfg.Attach = c.attach
		a := open(t, d, cfg)
		for range 3 {
			x, y := alloc(t, a, 5000), alloc(t, a, 5000)
			if !c.knows(a.Bytes(x)) || !c.knows(a.Bytes(y)) {
				t.Errorf("%s: a block that the card does not know", name)
			}
			a.Free(x)
			a.Free(y)
		}
		want := 2
		if cfg.ReserveSegment > 0 {
			want = 1
		}
		if c.calls != want || len(c.segments) != want {
			t.Errorf("%s: %d calls for %d segments, want %d", name, c.calls, len(c.segments), want)
		}
		closeAll(t, a, d)
		if len(c.segments) != 0 {
			t.Errorf("%s: after Close the card knows %v", name, c.segments)
		}
	}
}

// A segment that cannot be attached is not allocated. A segment that cannot be detached is not freed. A segment that
// the device fails to free is attached again.
func TestAttachThatFails(t *testing.T) {
	c, d := newCard(t), newDevice()
	a := open(t, d, pinned.Config{Attach: c.attach})
	c.fails = errors.New("no more regions")
	if _, err := a.Alloc(5000); !errors.Is(err, c.fails) || errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("Alloc: %v", err)
	}
	if n := d.CallsOf(intercept.FreeHost); n != 1 {
		t.Errorf("%d segments went back, want the one", n)
	}
	c.fails = nil
	b := alloc(t, a, 5000)
	a.Free(b)

	c.fails = errors.New("busy")
	if err := a.EmptyCache(); !errors.Is(err, c.fails) || d.CallsOf(intercept.FreeHost) != 1 {
		t.Errorf("EmptyCache: %v", err)
	}
	c.fails = nil
	if again := alloc(t, a, 5000); !same(again, b) || !c.knows(a.Bytes(again)) {
		t.Error("what could not be detached is lost")
	} else {
		a.Free(again)
	}

	d.failing(intercept.FreeHost, driver.ErrLost)
	if err := a.EmptyCache(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("EmptyCache: %v", err)
	}
	d.healthy()
	if again := alloc(t, a, 5000); !same(again, b) || !c.knows(a.Bytes(again)) {
		t.Error("what the device did not take is not attached")
	} else {
		a.Free(again)
	}
	closeAll(t, a, d)
	if len(c.segments) != 0 {
		t.Errorf("after Close the card knows %v", c.segments)
	}
}
