package schedule

import "testing"

// A chainTest is a model with room for 40 bytes and the policy chain.
type chainTest struct {
	t *testing.T
	*model
	e *Engine
}

func newChainTest(t *testing.T) *chainTest {
	m, e := newModel(t, "chain", 40)
	return &chainTest{t, m, e}
}

func (b *chainTest) call(name string, cost int64, out Output, in ...Value) Value {
	b.t.Helper()
	_, values, err := b.e.Call(Call{Name: name, Inputs: in, Outputs: []Output{out}, Cost: cost, Work: task{}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.check()
	return values[0]
}

// owner makes a value of 10 bytes.
func (b *chainTest) owner(cost int64, in ...Value) Value {
	b.t.Helper()
	return b.call("make", cost, Output{Size: 10, Alias: -1}, in...)
}

// Of results that cost the same and were never read the oldest is evicted.
func TestOldestResultGoesFirst(t *testing.T) {
	b := newChainTest(t)
	oldest := b.owner(10)
	var others []Value
	for range 4 {
		others = append(others, b.owner(10))
	}
	if b.e.Resident(oldest) {
		t.Error("the oldest result is resident")
	}
	for i, v := range others {
		if !b.e.Resident(v) {
			t.Errorf("result %d is not resident", i+1)
		}
	}
}

// An operation that the caller runs itself reads its inputs at the program's time, which repetitions do not advance.
func TestInputsOfBegunOperationsAreReadNow(t *testing.T) {
	b := newChainTest(t)
	first := b.owner(10)
	for range 4 {
		b.owner(10)
	}
	if err := b.e.Lock(first); err != nil { // it is made again, which takes 10
		t.Fatal(err)
	}
	b.e.Unlock(first)
	if err := b.e.Begin("by the caller", []Value{first}); err != nil {
		t.Fatal(err)
	}
	b.e.Abort()
	if s := b.e.storages[b.e.Storage(first)]; s.used != 50 || s.accessed != 60 {
		t.Errorf("the input was used at %d and accessed at %d, want 50 and 60", s.used, s.accessed)
	}
}

// A small result that is dear is kept after its release while large ones are made of it that are cheap with it: these
// are evicted instead, and made again.
func TestReleasedResultThatSavesOthersStays(t *testing.T) {
	b := newChainTest(t)
	small := b.call("dear", 1000, Output{Size: 2, Alias: -1})
	var large []Value
	for range 2 {
		large = append(large, b.call("cheap", 1, Output{Size: 10, Alias: -1}, small))
	}
	other := b.owner(100)
	b.e.Release(small)
	for range 2 {
		b.owner(100)
	}
	if !b.e.Resident(other) {
		t.Error("another result was evicted")
	}
	for _, v := range large {
		if err := b.e.Lock(v); err != nil {
			t.Fatal(err)
		}
		b.e.Unlock(v)
	}
	b.check()
	if ns := b.e.Stats().RecomputeNs; ns == 0 || ns >= 1000 {
		t.Errorf("%d ns were computed again, want some and less than 1000", ns)
	}
}

// A released result of which only as much is made as it takes itself is dropped at once.
func TestReleasedResultThatSavesNothingIsDropped(t *testing.T) {
	b := newChainTest(t)
	first := b.owner(1000)
	b.owner(1, first)
	b.e.Release(first)
	if b.e.Resident(first) {
		t.Error("the released result is resident")
	}
}

// Without a budget released results are dropped at once, whatever they would save.
func TestReleasedResultIsDroppedWithoutABudget(t *testing.T) {
	m, e := newModel(t, "chain", 0)
	b := &chainTest{t, m, e}
	small := b.call("dear", 1000, Output{Size: 2, Alias: -1})
	b.call("cheap", 1, Output{Size: 10, Alias: -1}, small)
	b.e.Release(small)
	if b.e.Resident(small) {
		t.Error("the released result is resident")
	}
}
