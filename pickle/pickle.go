// Package pickle reads and writes the plain data of Python pickles: dict, list, tuple, str, bytes, int, float, bool and
// None. It reads protocols 2 to 5 (Read), and writes protocol 4 as a stream, in bounded memory (Writer). It runs nothing: every opcode that names a class, calls a function or asks for something outside
// the file is refused, with its offset and the name it asked for.
//
// # Data structures
//
// A pickle is a program for a stack machine. The machine here keeps four things: a stack of Values, the positions of
// the marks in it, the memo, and the Document that the program builds. A Value is one word: four bits of tag, and a
// number of up to 60 bits or an index into a table of the Document. Strings are interned, so equal strings are equal
// Values. Containers are nodes, found by number; a node is one word too, and finds its items in a table of slices, or
// says that the dict was folded.
//
// Folding is how millions of equal-shaped dicts become columns: when an empty dict is filled in one go, the caller is
// shown its keys and values where they lie on the stack, and may take what it needs and answer with a number of its
// own. The dict then holds nothing but that number.
//
// # Invariants
//
// Every slot of the stack, the memo and the tables holds a Value that the Document can resolve, before and after every
// opcode. No opcode reaches below the last mark. A finished Document has no cycles, and no path in it is longer than
// Limits.Depth, so a walk ends; but nodes may be shared, so that a walk of all paths may take exponential time: walk
// by node.
//
// # Bounds
//
// Memory is bounded by the bytes that were read (about thirty times them, at the worst), by Limits and by
// Options.Allow, with which a caller that decompresses bounds it by the bytes of the compressed file. The stack and the
// nodes are not doubled unless the limit leaves room for it. Slices that were outgrown stay until the next garbage
// collection, so the process may take about twice what is counted. A declared length allocates nothing by itself. There
// is no recursion.
//
// # What it does not do
//
// It does not read protocols 0 and 1 (text opcodes), sets, Python 2 strings, integers outside [-2^63, 2^64),
// out-of-band buffers or values that contain themselves. It does not check that a str is valid UTF-8. It reads up to
// the STOP opcode and leaves what follows unread, except for what its buffer took.
package pickle

import (
	"io"
)

// Limits bound what a pickle may cost. A field that is zero means the default.
type Limits struct {
	Bytes  int64 // of input; default 64 GiB
	Memory int64 // bytes that the machine and the Document hold, as they count them; default 8 GiB, at most 256 GiB
	Nodes  int64 // dicts, lists and tuples; default 2^29, at most 2^32-2
	Memo   int64 // memo entries, and the highest index; default 2^29
	Depth  int   // of containers in containers, and of open marks; default 1000, at most 60,000
	String int64 // bytes of one str, bytes or bytearray; default 1 GiB, at most 2^32-1

	// Open is how many empty dicts, lists and tuples may lie on the stack at a time; default 2^20. Writers put an empty
	// container there and fill it, so there is about one for each level that the data is deep, besides empty ones among
	// the items of one list. Folded dicts and filled containers do not count. The stack is looked through only when it
	// has doubled, so up to twice as many may pass.
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

// withDefaults fills the zero fields and cuts the others to what the representation can hold.
func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Memory <= 0 {
		l.Memory = defaultMemory
	}
	if l.Nodes <= 0 {
		l.Nodes = defaultNodes
	}
	if l.Memo <= 0 {
		l.Memo = defaultMemo
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	if l.String <= 0 {
		l.String = defaultString
	}
	if l.Open <= 0 {
		l.Open = defaultOpen
	}
	l.Memory = min(l.Memory, maxMemory)
	l.Nodes = min(l.Nodes, maxNodes)
	l.Memo = min(l.Memo, maxNodes)
	l.Depth = min(l.Depth, maxDepth)
	l.String = min(l.String, l.Memory, maxString)
	return l
}

// A Fold may take the place of a dict. It is shown a dict that was empty and is now filled in one go: keys and values
// in turn, valid during the call only. If it returns true, the dict keeps nothing but the handle, and a file that adds
// to the dict later is refused. It must not keep pairs nor change them. Containers among the values may still be
// filled after the call, though Python's own writer completes them before.
type Fold func(d *Document, pairs []Value) (handle uint32, ok bool)

// Options say how to read. The zero value has the default limits and folds nothing.
type Options struct {
	Limits Limits
	Fold   Fold

	// Allow, if there is one, says how many bytes of memory the reading may hold by now, counted as for Limits.Memory,
	// which holds besides. It is asked again whenever what is held is more than it said last, so that it can grow with
	// the input; Read fails with over as the Code if that is still not enough. over must not be nil.
	Allow func() (bytes int64, over error)
}

// Read reads one pickle from r. It buffers, so it may take more from r than the pickle has. The error is an *Error.
func Read(r io.Reader, o Options) (*Document, error) {
	m := newMachine(r, o)
	if err := m.run(); err != nil {
		return nil, err
	}
	return m.doc, nil
}
