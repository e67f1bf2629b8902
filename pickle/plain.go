package pickle

// A Pair is an item of a dict that Plain could not make a map of.
type Pair struct {
	Key, Value any
}

// A Handle is what Plain makes of a folded dict.
type Handle uint32

// Plain returns v as Go values: nil, bool, int64 (uint64 if it is above the largest), float64, string, []byte; []any of
// a list or tuple; map[string]any of a dict whose keys are all str, or else []Pair, in the order of the file; Handle of
// a folded dict. What is one container (or bytes) in the file is one slice or map here, so the cost is that of the
// distinct ones that v reaches, however often they are shared.
func (d *Document) Plain(v Value) any {
	done := map[Value]any{}
	stack := []Value{v}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		if !top.IsContainer() || done[top] != nil {
			stack = stack[:len(stack)-1]
			continue
		}
		waits := false
		for _, item := range d.contents(top) {
			if item.IsContainer() && done[item] == nil {
				stack = append(stack, item)
				waits = true
			}
		}
		if !waits {
			done[top] = d.build(top, done)
			stack = stack[:len(stack)-1]
		}
	}
	return d.plain(v, done)
}

// plain returns a scalar, or a container that was built before.
func (d *Document) plain(v Value, done map[Value]any) any {
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
		if done[v] == nil {
			s, _ := d.Bytes(v)
			done[v] = []byte(s)
		}
		return done[v]
	case List, Tuple, Dict:
		return done[v]
	}
	return nil
}

// build makes a container whose containers are all built.
func (d *Document) build(v Value, done map[Value]any) any {
	if handle, ok := d.Folded(v); ok {
		return Handle(handle)
	}
	contents := d.contents(v)
	if v.Kind() != Dict {
		items := make([]any, len(contents))
		for i, item := range contents {
			items[i] = d.plain(item, done)
		}
		return items
	}
	byName := make(map[string]any, len(contents)/2)
	for i := 0; i < len(contents); i += 2 {
		key, ok := d.Str(contents[i])
		if !ok {
			return d.buildPairs(contents, done)
		}
		byName[key] = d.plain(contents[i+1], done)
	}
	return byName
}

func (d *Document) buildPairs(contents []Value, done map[Value]any) any {
	pairs := make([]Pair, 0, len(contents)/2)
	for i := 0; i < len(contents); i += 2 {
		pairs = append(pairs, Pair{Key: d.plain(contents[i], done), Value: d.plain(contents[i+1], done)})
	}
	return pairs
}
