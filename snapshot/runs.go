package snapshot

import (
	"cmp"
	"slices"

	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// contexts holds the compile_context of the folded entries. Nearly always it is that of the entry before, so only the
// changes are kept.
type contexts []contextChange

// A contextChange says which string the entries from an index in importer.events on have: its number plus 1, or 0.
type contextChange struct {
	first int
	text  uint32
}

// costContext is what a change costs until it is in a Snapshot, in bytes, for Limits.
const costContext = 2 * 24

// add notes the context of the entry that comes next, and returns what that costs.
func (t *contexts) add(index int, text uint32) (cost int64) {
	if n := len(*t); n == 0 && text == 0 || n > 0 && (*t)[n-1].text == text {
		return 0
	}
	*t = append(*t, contextChange{index, text})
	return costContext
}

// of appends to said the contexts of n folded entries from an index on, which become the entries of a device from number
// at on.
func (t contexts) of(doc *pickle.Document, index, n, at int, said []trace.CompileContext) []trace.CompileContext {
	i, exact := slices.BinarySearchFunc(t, index, func(c contextChange, index int) int { return cmp.Compare(c.first, index) })
	if !exact {
		i-- // that before it holds on
	}
	if i < 0 {
		said = say(doc, said, at, 0)
		i = 0
	}
	for ; i < len(t) && t[i].first < index+n; i++ {
		said = say(doc, said, at+max(t[i].first-index, 0), t[i].text)
	}
	return said
}

// say appends that entries from number at on have the string with a number, plus 1, unless those before have the same.
func say(doc *pickle.Document, said []trace.CompileContext, at int, text uint32) []trace.CompileContext {
	var s string
	if text > 0 {
		s = doc.StrByID(text - 1)
	}
	last := ""
	if len(said) > 0 {
		last = said[len(said)-1].Text
	}
	if s == last {
		return said
	}
	return append(said, trace.CompileContext{First: at, Text: s})
}
