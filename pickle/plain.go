package pickle

import "fmt"

// A Pair is an item of a dict that Plain could not convert to a map.
type Pair struct {
	Key, Value any
}

// A Handle represents a folded dict in the result of Plain.
type Handle uint32

// A TupleValue represents a tuple in the result of Plain.
type TupleValue []any

// Plain returns v as Go values: nil, bool, int64 (uint64 if it is above the largest int64), float64, string, []byte;
// []any for a list and TupleValue for a tuple; map[string]any for a dict whose keys are all str, or else []Pair, in the
// order of the file; Handle for a folded dict. Each container (or bytes) of the file becomes a single slice or map, so
// the cost is proportional to the distinct ones that v reaches, however often they are shared.
func (d *Document) Plain(v Value) any {
	plain, _ := d.Converter().Value(v) // cannot fail
	return plain
}

// A Converter converts several Values of a Document as Plain does. Each container of the file becomes a single slice or
// map in all results. Not safe for concurrent use.
type Converter struct {
	// Folded, if not nil, returns the value of a folded dict in place of its Handle. It must not convert containers
	// with the Converter.
	Folded func(handle uint32) (any, error)

	// Charge, if not nil, is called with the size in bytes of each container before it is allocated.
	Charge func(bytes int64) error

	doc  *Document
	done map[Value]converted
	open map[Value]bool // containers that are being converted
}

// A converted is a converted container with its nesting depth.
type converted struct {
	value  any
	height int
}

// Converter returns a Converter for the values of d.
func (d *Document) Converter() *Converter {
	return &Converter{doc: d, done: map[Value]converted{}, open: map[Value]bool{}}
}

// Value returns v as Plain does. The error is that of Folded or Charge, or an *Error: values that the root does not
// reach (see ItemsOf) may contain themselves, or be deeper than Limits.Depth.
func (c *Converter) Value(v Value) (any, error) {
	stack := []Value{v}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		if !top.IsContainer() || c.has(top) {
			stack = stack[:len(stack)-1]
			continue
		}
		known, height := len(stack), 1
		for _, item := range c.doc.contents(top) {
			switch {
			case !item.IsContainer():
			case c.has(item):
				height = max(height, c.done[item].height+1)
			case c.open[item] || item == top:
				return nil, c.refuse("a %v contains itself", item.Kind())
			default:
				stack = append(stack, item)
			}
		}
		if len(stack) > known {
			c.open[top] = true
			continue
		}
		if height > c.doc.depth {
			return nil, c.refuse("a %v is more than %d deep", top.Kind(), c.doc.depth)
		}
		value, err := c.build(top)
		if err != nil {
			return nil, err
		}
		c.done[top] = converted{value, height}
		delete(c.open, top)
		stack = stack[:len(stack)-1]
	}
	return c.plain(v), nil
}

func (c *Converter) refuse(format string, args ...any) error {
	return &Error{Offset: c.doc.size, Reason: "in what was read, " + fmt.Sprintf(format, args...), Code: ErrRefused}
}

func (c *Converter) has(v Value) bool {
	_, ok := c.done[v]
	return ok
}

// plain returns a scalar, or a container that was built before.
func (c *Converter) plain(v Value) any {
	d := c.doc
	switch v.Kind() {
	case Bool:
		return v == valueTrue
	case Int:
		if x, ok := d.Int(v); ok {
			return x
		}
		x, _ := d.Bits(v)
		return x
	case Float:
		x, _ := d.Float(v)
		return x
	case Str:
		s, _ := d.Str(v)
		return s
	case Bytes:
		if !c.has(v) {
			s, _ := d.Bytes(v)
			c.done[v] = converted{value: []byte(s)}
		}
		return c.done[v].value
	case List, Tuple, Dict:
		return c.done[v].value
	}
	return nil
}

// Approximate cost in bytes of containers as Go values: an item with the value that it points to, a map of up to eight
// pairs, and a further pair.
const (
	costPlain = 64
	costItem  = 32
	costMap   = 320
	costPair  = 80
)

// build converts a container. The containers in it must be converted already.
func (c *Converter) build(v Value) (any, error) {
	if handle, ok := c.doc.Folded(v); ok {
		if c.Folded == nil {
			return Handle(handle), nil
		}
		return c.Folded(handle)
	}
	contents := c.doc.contents(v)
	if v.Kind() == Dict {
		if err := c.charge(costMap + int64(len(contents)/2)*costPair); err != nil {
			return nil, err
		}
		return c.buildDict(contents), nil
	}
	if err := c.charge(costPlain + int64(len(contents))*costItem); err != nil {
		return nil, err
	}
	items := make([]any, len(contents))
	for i, item := range contents {
		items[i] = c.plain(item)
	}
	if v.Kind() == Tuple {
		return TupleValue(items), nil
	}
	return items, nil
}

func (c *Converter) charge(bytes int64) error {
	if c.Charge == nil {
		return nil
	}
	return c.Charge(bytes)
}

func (c *Converter) buildDict(contents []Value) any {
	byName := make(map[string]any, len(contents)/2)
	for i := 0; i < len(contents); i += 2 {
		key, ok := c.doc.Str(contents[i])
		if !ok {
			return c.buildPairs(contents)
		}
		byName[key] = c.plain(contents[i+1])
	}
	return byName
}

func (c *Converter) buildPairs(contents []Value) []Pair {
	pairs := make([]Pair, 0, len(contents)/2)
	for i := 0; i < len(contents); i += 2 {
		pairs = append(pairs, Pair{Key: c.plain(contents[i]), Value: c.plain(contents[i+1])})
	}
	return pairs
}
