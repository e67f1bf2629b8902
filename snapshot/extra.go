package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
)

// An Extra is what a dict of a file has that this package does not know: keys and values, as pickle.Document.Plain
// gives them, in the order of the keys; those that are no str come last. Trace entries and frames in it are dicts like
// others. What is written has it again. Newer versions of PyTorch write keys of which this one knows nothing, such as
// a segment's registration_counter. Nil has no keys. Several dicts that have the same share an Extra.
type Extra struct {
	Pairs []pickle.Pair
}

// Get returns the value of a str key.
func (x *Extra) Get(key string) (value any, ok bool) {
	pairs := x.pairs()
	for i := len(pairs) - 1; i >= 0; i-- { // of a key that comes twice the last one counts
		if pairs[i].Key == key {
			return pairs[i].Value, true
		}
	}
	return nil, false
}

// sort puts the pairs into their order.
func (x *Extra) sort() {
	slices.SortStableFunc(x.Pairs, func(a, b pickle.Pair) int {
		nameA, isA := a.Key.(string)
		nameB, isB := b.Key.(string)
		switch {
		case isA && isB:
			return cmp.Compare(nameA, nameB)
		case isA:
			return -1
		case isB:
			return 1
		}
		return cmp.Compare(fmt.Sprintf("%#v", a.Key), fmt.Sprintf("%#v", b.Key)) // rare
	})
}

func (x *Extra) pairs() []pickle.Pair {
	if x == nil {
		return nil
	}
	return x.Pairs
}

// A TraceExtra is what the trace of a device has in a file beside what is in trace.Trace.
type TraceExtra struct {
	Keys    []EntryExtra   // by First
	Unknown []UnknownEntry // by Before
}

// An EntryExtra is the Extra of each event of a trace from number First on, up to the next EntryExtra; nil for none.
type EntryExtra struct {
	First int
	Extra *Extra
}

// An UnknownEntry is an entry with an action that this package does not know.
type UnknownEntry struct {
	Before int    // it stands before the event of this number, or at the end
	Entry  *Extra // all of it
}

// traceExtra returns that of a device.
func (s *Snapshot) traceExtra(device int) TraceExtra {
	if device < len(s.TraceExtra) {
		return s.TraceExtra[device]
	}
	return TraceExtra{}
}
