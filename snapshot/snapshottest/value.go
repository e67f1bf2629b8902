package snapshottest

import (
	"bytes"
	"fmt"
)

// A D is a dict for Pickle: keys and values in turn, in that order.
type D []any

// A L is a list for Pickle.
type L []any

// A T is a tuple of two for Pickle.
type T [2]any

// Pickle returns the pickle of a value: nil, bool, int, int64, uint64, float64, string, D, L, T. Strings are memoised
// by content, containers are not shared. It panics on other types.
func Pickle(v any, protocol int) []byte {
	var b bytes.Buffer
	p := NewPickler(&b, protocol)
	p.value(v)
	p.Close() // a bytes.Buffer does not fail
	return b.Bytes()
}

// value pushes v. Its recursion is as deep as the nesting of v.
func (p *Pickler) value(v any) {
	switch v := v.(type) {
	case nil:
		p.None()
	case bool:
		p.Bool(v)
	case int:
		p.Int(int64(v))
	case int64:
		p.Int(v)
	case uint64:
		p.Uint(v)
	case float64:
		p.Float(v)
	case string:
		p.Key(v)
	case D:
		p.Dict()
		p.Mark()
		for _, item := range v {
			p.value(item)
		}
		p.SetItems()
	case L:
		p.List()
		p.Mark()
		for _, item := range v {
			p.value(item)
		}
		p.Appends()
	case T:
		p.value(v[0])
		p.value(v[1])
		p.Tuple2()
	default:
		panic(fmt.Sprintf("snapshottest: cannot pickle a %T", v))
	}
}
