package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
)

// An Extra is the unknown keys of a dict with their values, as pickle.Document.Plain returns them, in the order of the
// keys; keys that are not str come last. Trace entries and frames in it are dicts like others. It is written again with
// the snapshot. Newer versions of PyTorch write such keys, for example registration_counter of a segment. Nil has no
// keys. Several dicts with the same keys and values share an Extra.
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

// A TraceExtra is the unknown parts of the trace of a device.
type TraceExtra struct {
	Keys    []EntryExtra   // by First
	Unknown []UnknownEntry // by Before
}

// An EntryExtra is the Extra of each event of a trace from index First on, up to the next EntryExtra; nil for none.
type EntryExtra struct {
	First int
	Extra *Extra
}

// An UnknownEntry is an entry with an unknown action.
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
