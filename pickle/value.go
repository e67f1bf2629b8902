package pickle

import "math"

// A Value is a Python value in a Document, resolved by the methods of that Document. Equal Values are equal scalars or
// the same container; equal strings are equal Values. The zero Value is not a value.
type Value uint64

// A Kind is the Python type of a Value.
type Kind uint8

const (
	Invalid Kind = iota
	None
	Bool
	Int
	Float
	Str
	Bytes // bytes and bytearray
	List
	Tuple
	Dict
)

var kindNames = [...]string{"nothing", "None", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict"}

// String returns Python's name for the type.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// The tag of a Value is its lowest four bits, the rest is its payload.
const (
	tagInvalid = iota
	tagNone
	tagBool  // payload 0 or 1
	tagInt   // payload is the number, signed
	tagWide  // payload is the index of an int64's bits in Document.wide
	tagUint  // the same of a uint64 above the largest int64
	tagFloat // the same of a float64
	tagStr   // payload is the index into Document.strs
	tagBytes
	tagList // payload is the index into Document.nodes
	tagTuple
	tagDict
	tagFolded // a folded dict; payload is its handle
	numTags

	// tagRun is that of folded dicts with consecutive handles, on the stack of the machine and in lists. The payload is
	// the number of dicts, and in the lowest 32 bits the first handle. No other part sees such a Value.
	tagRun

	tagBits = 4
	tagMask = 1<<tagBits - 1
)

var kindOfTag = [tagMask + 1]Kind{
	tagNone: None, tagBool: Bool, tagInt: Int, tagWide: Int, tagUint: Int, tagFloat: Float, tagStr: Str,
	tagBytes: Bytes,
	tagList:  List, tagTuple: Tuple, tagDict: Dict, tagFolded: Dict, tagRun: Dict,
}

const (
	valueNone  Value = tagNone
	valueFalse Value = tagBool
	valueTrue  Value = 1<<tagBits | tagBool
)

func pack(tag, payload uint64) Value { return Value(payload<<tagBits | tag) }

func (v Value) tag() uint64     { return uint64(v) & tagMask }
func (v Value) payload() uint64 { return uint64(v >> tagBits) }

// Kind returns the type of v.
func (v Value) Kind() Kind { return kindOfTag[v.tag()] }

// IsContainer reports whether v is a list, a tuple or a dict.
func (v Value) IsContainer() bool { return v.tag() >= tagList && v.tag() < numTags }

// hasNode reports whether v is a container in Document.nodes.
func (v Value) hasNode() bool { return v.tag() >= tagList && v.tag() <= tagDict }

// Node returns the number of a container: two Values with one number are the same container. Numbers start at 0 and are
// at most Document.Nodes()-1. Lists, tuples and dicts share one numbering. It panics if v is not a container, or a
// folded dict, which may have no number.
func (v Value) Node() uint32 {
	if !v.hasNode() {
		panic("pickle: Node of a value that is not a container")
	}
	return uint32(v.payload())
}

// StrID returns the number of a str: equal strings have equal numbers. Numbers start at 0 and count the distinct
// contents of str and bytes in the order in which they first appear.
func (v Value) StrID() (id uint32, ok bool) { return uint32(v.payload()), v.tag() == tagStr }

// Bool returns the value of a bool.
func (v Value) Bool() (b, ok bool) { return v == valueTrue, v.tag() == tagBool }

// Int returns an int, if it fits into an int64.
func (d *Document) Int(v Value) (int64, bool) {
	switch v.tag() {
	case tagInt:
		return int64(v) >> tagBits, true
	case tagWide:
		return int64(d.wide[v.payload()]), true
	}
	return 0, false
}

// Bits returns an int in [-2^63, 2^64) as 64 bits: negative numbers as two's complement.
func (d *Document) Bits(v Value) (uint64, bool) {
	switch v.tag() {
	case tagInt:
		return uint64(int64(v) >> tagBits), true
	case tagWide, tagUint:
		return d.wide[v.payload()], true
	}
	return 0, false
}

// Float returns a float.
func (d *Document) Float(v Value) (float64, bool) {
	if v.tag() != tagFloat {
		return 0, false
	}
	return math.Float64frombits(d.wide[v.payload()]), true
}

// Str returns the bytes of a str, which need not be valid UTF-8.
func (d *Document) Str(v Value) (string, bool) {
	if v.tag() != tagStr {
		return "", false
	}
	return d.strs[v.payload()], true
}

// StrByID returns the str with a number from StrID.
func (d *Document) StrByID(id uint32) string { return d.strs[id] }

// Bytes returns the content of a bytes or bytearray. It is a string because callers must not change it.
func (d *Document) Bytes(v Value) (string, bool) {
	if v.tag() != tagBytes {
		return "", false
	}
	return d.strs[v.payload()], true
}
