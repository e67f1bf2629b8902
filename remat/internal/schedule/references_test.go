package schedule

import (
	"errors"
	"testing"
)

// throughView reads a value through a view, which it releases.
func (b *chainTest) throughView(v Value) {
	b.t.Helper()
	view := b.call("split", 0, Output{Alias: 0}, v)
	b.e.Release(b.call("read", 1, Output{Size: 1, Alias: -1}, view))
	b.e.Release(view)
	b.check()
}

// A value that was read only through views, all of which are released, is evicted before one that may be read again.
func TestBaseOfReleasedViewsGoesFirst(t *testing.T) {
	b := newChainTest(t)
	base := b.owner(100)
	b.throughView(base)
	direct := b.owner(10)
	b.owner(10)
	b.owner(10)
	b.owner(10)
	if b.e.Resident(base) || !b.e.Resident(direct) {
		t.Errorf("resident: the base is %v, the value without views %v", b.e.Resident(base), b.e.Resident(direct))
	}
	for _, v := range []Value{base, direct} {
		if err := b.e.Lock(v); err != nil {
			t.Fatal(err)
		}
		b.e.Unlock(v)
	}
	b.check()
}

// If a program makes views of such values again, the policy does not count on it any more.
func TestBaseThatIsViewedAgainStays(t *testing.T) {
	b := newChainTest(t)
	first := b.owner(1)
	b.throughView(first)
	b.throughView(first)
	b.e.Release(first)
	base := b.owner(100)
	b.throughView(base)
	direct := b.owner(10)
	b.owner(10)
	b.owner(10)
	b.owner(10)
	if !b.e.Resident(base) || b.e.Resident(direct) {
		t.Errorf("resident: the base is %v, the value without views %v", b.e.Resident(base), b.e.Resident(direct))
	}
}

// A value is not a base of views because an operation failed that would have made some, or after a program locked it.
func TestValueThatIsNoBaseStays(t *testing.T) {
	for name, read := range map[string]func(b *chainTest, v Value){
		"failed": func(b *chainTest, v Value) {
			b.fail = func() error { return errors.New("no") }
			if _, _, err := b.e.Call(Call{
				Name: "split", Inputs: []Value{v}, Outputs: []Output{{Alias: 0}}, Work: task{},
			}); err == nil {
				b.t.Fatal("no error")
			}
			b.fail = nil
		},
		"locked": func(b *chainTest, v Value) {
			b.throughView(v)
			if err := b.e.Lock(v); err != nil {
				b.t.Fatal(err)
			}
			b.e.Unlock(v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newChainTest(t)
			base := b.owner(100)
			read(b, base)
			direct := b.owner(10)
			b.owner(10)
			b.owner(10)
			b.owner(10)
			if !b.e.Resident(base) || b.e.Resident(direct) {
				t.Errorf("resident: the dear value is %v, the other %v", b.e.Resident(base), b.e.Resident(direct))
			}
		})
	}
}
