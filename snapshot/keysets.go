package snapshot

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
)

// keySets holds the unknown keys of folded dicts of one kind, with their values, while the pickle is read. Dicts with
// the same unknown keys and values share a set. Most dicts have none, and the others of a file nearly always have the
// same set.
type keySets struct {
	kind    string   // "trace entry ", "frame "
	sets    []keySet // the set with number n is sets[n-1]; 0 means no set
	numbers map[string]uint32

	lists map[string]pickle.Value // the first flat list with each content
	flat  map[pickle.Value]bool   // the values of lists

	pairs   [][2]pickle.Value // of the current dict
	content []byte            // pairs as the map key of their set
}

type keySet struct {
	pairs  []pickle.Value // keys and values in turn
	nested bool           // a value is a container that is not flat, or a key is not a str
	dicts  int            // number of dicts with this set
	extra  *Extra         // as Go values; nil until needed
}

// Costs in bytes, for Limits, of a set and of a pair in it, including their Go values.
const (
	costSet     = 192
	costSetPair = 112
)

// longestFlat is the maximum length of a list that is compared by content.
const longestFlat = 256

// number returns the number of the set of those pairs whose field is in unknown, and charges for a new one.
func (t *keySets) number(doc *pickle.Document, m *meanings, pairs []pickle.Value, unknown uint32) uint32 {
	t.pairs = t.pairs[:0]
	for i := 0; i+1 < len(pairs); i += 2 {
		if unknown&(1<<m.field(doc, pairs[i])) != 0 {
			t.pairs = append(t.pairs, [2]pickle.Value{pairs[i], t.shared(doc, pairs[i+1])})
		}
	}
	// The order of keys does not matter. The last of several equal keys counts, so the sort must be stable.
	slices.SortStableFunc(t.pairs, func(a, b [2]pickle.Value) int { return cmp.Compare(a[0], b[0]) })
	t.content = t.content[:0]
	for _, pair := range t.pairs {
		t.content = appendValues(t.content, pair[:])
	}
	if n, ok := t.numbers[string(t.content)]; ok {
		return n
	}
	var set keySet
	for _, pair := range t.pairs {
		set.pairs = append(set.pairs, pair[0], pair[1])
		set.nested = set.nested || pair[0].Kind() != pickle.Str || pair[1].IsContainer() && !t.flat[pair[1]]
	}
	if t.numbers == nil {
		t.numbers = map[string]uint32{}
	}
	t.sets = append(t.sets, set)
	n := uint32(len(t.sets))
	t.numbers[string(t.content)] = n
	doc.Charge(costSet + int64(len(set.pairs)/2)*costSetPair)
	return n
}

// shared returns the first flat list or tuple with the content of v, or v itself. Entries may have separate lists with
// the same content, such as forward_frames. A list is taken with its present content, even if the pickle adds to it
// later; Python's writer completes such lists first.
func (t *keySets) shared(doc *pickle.Document, v pickle.Value) pickle.Value {
	items := doc.Items(v)
	if v.Kind() != pickle.List && v.Kind() != pickle.Tuple || len(items) > longestFlat {
		return v
	}
	for _, item := range items {
		if item.IsContainer() {
			return v
		}
	}
	t.content = appendValues(append(t.content[:0], byte(v.Kind())), items)
	first, ok := t.lists[string(t.content)]
	if !ok {
		if t.lists == nil {
			t.lists, t.flat = map[string]pickle.Value{}, map[pickle.Value]bool{}
		}
		first = v
		t.lists[string(t.content)], t.flat[v] = v, true
		doc.Charge(costSet + int64(len(t.content)))
	}
	return first
}

func appendValues(b []byte, values []pickle.Value) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// nested reports whether a set has containers that are not flat, or keys that are not str. A dict with such a set is
// not folded: a container may hold the dict itself, and that can be detected only while the dict exists.
func (t *keySets) nested(n uint32) bool { return n > 0 && t.sets[n-1].nested }

// has counts a dict that has a set.
func (t *keySets) has(n uint32) {
	if n > 0 {
		t.sets[n-1].dicts++
	}
}

// count counts the keys of all sets.
func (t *keySets) count(doc *pickle.Document, to skips) {
	for i := range t.sets {
		for at := 0; at < len(t.sets[i].pairs); at += 2 {
			to.key(doc, t.kind, t.sets[i].pairs[at], t.sets[i].dicts)
		}
	}
}
