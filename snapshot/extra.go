package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
)

// An Extra holds the unknown keys of a dict and their values, as pickle.Document.Plain returns them. It is sorted by
// key; keys that are not str come last. Trace entries and frames in it are plain dicts. The writers of a snapshot write
// it, too. Newer versions of PyTorch write such keys, for example registration_counter of a segment. A nil Extra has no
// keys. Dicts with the same keys and values share an Extra.
type Extra struct {
	Pairs []pickle.Pair
}

// Get returns the value of a str key.
func (x *Extra) Get(key string) (value any, ok bool) {
	pairs := x.pairs()
	for i := len(pairs) - 1; i >= 0; i-- { // the last of several equal keys counts
		if pairs[i].Key == key {
			return pairs[i].Value, true
		}
	}
	return nil, false
}

// sort sorts the pairs.
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

// A TraceExtra holds the unknown parts of the trace of a device.
type TraceExtra struct {
	Keys    []EntryExtra   // by First
	Unknown []UnknownEntry // by Before
}

// An EntryExtra is the Extra of the events of a trace from index First up to the next EntryExtra. A nil Extra means
// none.
type EntryExtra struct {
	First int
	Extra *Extra
}

// An UnknownEntry is an entry with an unknown action.
type UnknownEntry struct {
	Before int    // the index of the event that follows it, or the number of events
	Entry  *Extra // the whole entry
}

// traceExtra returns the TraceExtra of a device.
func (s *Snapshot) traceExtra(device int) TraceExtra {
	if device < len(s.TraceExtra) {
		return s.TraceExtra[device]
	}
	return TraceExtra{}
}
