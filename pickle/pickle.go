// Package pickle reads and writes the plain data of Python pickles: dict, list, tuple, str, bytes, int, float, bool and
// None.
//
// Read reads a pickle of protocol 2 to 5 into a Document, whose Values are resolved one by one (Document.ItemsOf) or
// all at once (Document.Plain). A Writer writes protocol 4 as a stream, in bounded memory. Reading executes no code: an
// opcode that names a class, calls a function or refers to data outside of the file is an error that matches
// ErrRefused, with its offset and the name.
//
// Memory use is bounded by the bytes read (at most about thirty times as much), by Limits, and by Options.Allow, with
// which a caller that decompresses can bound it by the size of the compressed file. The process may use about twice the
// counted memory until the next garbage collection. A declared length alone allocates nothing.
//
// Not supported are protocols 0 and 1 (text opcodes), sets, Python 2 strings, integers outside [-2^63, 2^64),
// out-of-band buffers and values that contain themselves. A str is not checked to be valid UTF-8. Read stops after the
// STOP opcode; bytes that its buffer took beyond it are lost to the reader.
//
// A Document is read-only after Read and may be used by several goroutines. A Writer is not safe for concurrent use.
package pickle

// A pickle is a program for a stack machine. The machine has a stack of Values, the positions of the marks in the
// stack, the memo, and the Document that the program builds. A Value is one word: four bits of tag, and a number of up
// to 60 bits or an index into a table of the Document. Strings are interned, so equal strings are equal Values.
// Containers are nodes, identified by number. A node is one word, too: it refers to its items in a table of slices, or
// holds the handle of a folded dict.
//
// Folding saves memory for files with millions of similar dicts. When an empty dict is filled at once, the caller
// receives its keys and values in place on the stack, copies the data it needs, and returns a number of its own. The
// dict then holds only that number.
//
// Most folded dicts of a file have the same opcodes, except for some values. They are compared with a template (see
// template.go), and only the values are read. Such dicts are not nodes and take no memory: where their numbers are
// consecutive, the stack and lists hold a run of them, and the memo only the first number (see runs.go and memo.go).
//
// Invariants. Every slot of the stack, the memo and the tables holds a Value that the Document can resolve, before and
// after every opcode. No opcode reaches below the last mark. A finished Document has no cycles, and no path in it is
// longer than Limits.Depth, so a walk ends. But nodes may be shared, and a walk of all paths may take exponential time,
// so a walk visits each node once.
//
// The tables of the stack and the nodes are doubled only if the limit permits it. There is no recursion.

import (
	"cmp"
	"io"
)

// Limits bound the cost of reading a pickle. A zero field means the default.
type Limits struct {
	Bytes  int64 // of input; default 64 GiB
	Memory int64 // bytes that the machine and the Document hold, as they count them; default 8 GiB, at most 256 GiB
	Nodes  int64 // dicts, lists and tuples; default 2^29, at most 2^32-2
	Memo   int64 // memo entries, and the highest index; default 2^29
	Depth  int   // nesting depth of containers, and number of open marks; default 1000, at most 60,000
	String int64 // bytes of one str, bytes or bytearray; default 1 GiB, at most 2^32-1

	// Open is the maximum number of empty dicts, lists and tuples on the stack at a time; default 2^20. Writers push an
	// empty container and fill it, so there is about one for each level of nesting, plus empty ones among the items of
	// one list. Folded dicts and filled containers do not count. The stack is checked only when it has doubled, so up
	// to twice as many may pass.
	Open int64
}

const (
	defaultBytes  = 64 << 30
	defaultMemory = 8 << 30
	defaultNodes  = 1 << 29
	defaultMemo   = 1 << 29
	defaultDepth  = 1000
	defaultString = 1 << 30
	defaultOpen   = 1 << 20

	maxMemory = 256 << 30
	maxNodes  = 1<<32 - 2
	maxDepth  = 60000
	maxString = 1<<32 - 1
)

// withDefaults sets zero fields to the defaults and reduces the others to the maxima of the representation.
func (l Limits) withDefaults() Limits {
	l.Bytes = cmp.Or(max(l.Bytes, 0), defaultBytes)
	l.Memory = cmp.Or(max(l.Memory, 0), defaultMemory)
	l.Nodes = cmp.Or(max(l.Nodes, 0), defaultNodes)
	l.Memo = cmp.Or(max(l.Memo, 0), defaultMemo)
	l.Depth = cmp.Or(max(l.Depth, 0), defaultDepth)
	l.String = cmp.Or(max(l.String, 0), defaultString)
	l.Open = cmp.Or(max(l.Open, 0), defaultOpen)
	l.Memory = min(l.Memory, maxMemory)
	l.Nodes = min(l.Nodes, maxNodes)
	l.Memo = min(l.Memo, maxNodes)
	l.Depth = min(l.Depth, maxDepth)
	l.String = min(l.String, l.Memory, maxString)
	return l
}

// A Fold may replace a dict. It receives the alternating keys and values of an empty dict that is filled at once; they
// are valid during the call only. If it returns true, the dict keeps only the handle, and a file that adds to the dict
// later is refused. It must not keep or change pairs. Containers among the values may be filled after the call, but
// Python's own writer completes them before.
type Fold func(d *Document, pairs []Value) (handle uint32, ok bool)

// Options configure Read. The zero value has the default limits and folds nothing.
type Options struct {
	Limits Limits
	Fold   Fold

	// Allow, if not nil, returns the number of bytes of memory that reading may use at present, counted as for
	// Limits.Memory, which applies too. It is called whenever the use exceeds its last result, so the bound can grow
	// with the input; Read fails with the Code over if the new result is still too small. over must not be nil.
	Allow func() (bytes int64, over error)
}

// Read reads one pickle from r. It reads with a buffer, so it may consume more of r than the pickle. The error is an
// *Error.
func Read(r io.Reader, o Options) (*Document, error) {
	m := newMachine(r, o)
	if err := m.run(); err != nil {
		return nil, err
	}
	return m.doc, nil
}
