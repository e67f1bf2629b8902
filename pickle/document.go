package pickle

import "math"

// A Document is the content of a pickle: a root, and tables that its Values refer to. After Read has returned it, it
// does not change and may be used by several goroutines.
type Document struct {
	root     Value
	protocol int
	size     int64
	depth    int // Limits.Depth

	strs  []string
	ids   map[string]uint32 // index into strs
	near  [256]uint32       // cache of ids, plus 1, by a cheap hash: most strings of a file repeat
	wide  []uint64          // bits of numbers that do not fit into a Value
	nodes []node
	items [][]Value // of nonempty nodes; for a dict, keys and values alternate
	slab  []Value   // free space for short item lists

	repeated int64 // folded dicts without a node

	memory int64 // bytes in the tables above, in the machine's stack and memo, and those charged
}

// A node is a container: a state in the lowest two bits, and a number.
type node uint64

const (
	nodeEmpty  node = iota // no items
	nodeFilled             // the number is an index into Document.items
	nodeFolded             // the number is the caller's
	nodeRuns               // as nodeFilled, and there are Values with tagRun among the items
	nodeState  node = 3
)

func (n node) number() uint32 { return uint32(n >> 2) }

// Costs in bytes of entries in the tables, for Limits.Memory. That of a string includes its header, its map entry and
// the rounding of the heap.
const (
	costNode   = 8
	costItems  = 24
	costValue  = 8
	costString = 96
	slabSize   = 4096 // Values
)

// Root returns the value that was pickled.
func (d *Document) Root() Value { return d.root }

// Protocol returns the protocol that the file declares, 2 to 5.
func (d *Document) Protocol() int { return d.protocol }

// Size returns the length of the pickle in bytes, up to and including its STOP.
func (d *Document) Size() int64 { return d.size }

// Nodes returns the number of containers, except folded dicts that have no number.
func (d *Document) Nodes() int { return len(d.nodes) }

// Len returns the number of items of a list or tuple, or the number of pairs of a dict (a repeated key counts each
// time). It returns 0 for a folded dict and for other values.
func (d *Document) Len(v Value) int {
	items := d.raw(v)
	n := len(items)
	if v.tag() == tagDict {
		return n / 2
	}
	for _, item := range items {
		if item.tag() == tagRun {
			_, dicts := item.run()
			n += dicts - 1
		}
	}
	return n
}

// Items returns the items of a list or tuple, and nil for other values. The caller must not change them. For a long
// list of folded dicts, Runs takes less memory.
func (d *Document) Items(v Value) []Value {
	if v.tag() == tagDict {
		return nil
	}
	return d.contents(v)
}

// Pairs returns the keys and values of a dict alternately, in the order of the file. It returns nil for a folded dict
// and for other values. A key may repeat: the last one counts. The caller must not change them.
func (d *Document) Pairs(v Value) []Value {
	if v.tag() != tagDict {
		return nil
	}
	return d.contents(v)
}

// Charge adds bytes of memory that a Fold keeps for itself to those of the Document, for Limits.Memory and
// Options.Allow. After Read it only changes Memory, and must not run concurrently with other calls.
func (d *Document) Charge(bytes int64) { d.memory += bytes }

// Memory returns the bytes that the Document holds, as counted for Limits.Memory, including charged bytes.
func (d *Document) Memory() int64 { return d.memory }

// ItemsOf returns the items of the list or tuple whose Node is n. With it a Fold can keep the number of a list that may
// be incomplete and read the list after Read. Such a list need not be reachable from the root, and may contain itself.
func (d *Document) ItemsOf(n uint32) []Value { return d.contents(pack(tagList, uint64(n))) }

// Lookup returns the value of a str key in a dict.
func (d *Document) Lookup(v Value, key string) (Value, bool) {
	id, ok := d.ids[key]
	if !ok {
		return 0, false
	}
	want := pack(tagStr, uint64(id))
	pairs := d.Pairs(v)
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		if pairs[i] == want {
			return pairs[i+1], true
		}
	}
	return 0, false
}

// Folded returns the handle that Fold returned for the dict v, and whether v is a folded dict.
func (d *Document) Folded(v Value) (handle uint32, ok bool) {
	switch v.tag() {
	case tagFolded:
		return uint32(v.payload()), true
	case tagDict:
		n := d.nodes[v.payload()]
		return n.number(), n&nodeState == nodeFolded
	}
	return 0, false
}

// contents returns the items of a container. For a dict, keys and values alternate.
func (d *Document) contents(v Value) []Value {
	items := d.raw(v)
	if !v.hasNode() || d.nodes[v.payload()]&nodeState != nodeRuns {
		return items
	}
	all := make([]Value, 0, d.Len(v))
	for _, item := range items {
		all = appendExpanded(all, item)
	}
	return all
}

// raw is contents with runs as they are stored.
func (d *Document) raw(v Value) []Value {
	if !v.hasNode() {
		return nil
	}
	n := d.nodes[v.payload()]
	if s := n & nodeState; s != nodeFilled && s != nodeRuns {
		return nil
	}
	return d.items[n.number()]
}

// newNode makes an empty container. The caller has checked Limits.Nodes.
func (d *Document) newNode(tag uint64) Value {
	if len(d.nodes) == cap(d.nodes) {
		d.nodes = grow(d.nodes, &d.memory, costNode)
	}
	d.nodes = append(d.nodes, 0)
	return pack(tag, uint64(len(d.nodes)-1))
}

// extend adds to a container that was not folded.
func (d *Document) extend(v Value, more []Value) {
	if len(more) == 0 {
		return
	}
	n := &d.nodes[v.payload()]
	state := nodeFilled
	if *n&nodeState == nodeRuns || hasRun(more) {
		state = nodeRuns
	}
	if *n&nodeState == nodeEmpty {
		if len(d.items) == cap(d.items) {
			d.items = grow(d.items, &d.memory, costItems)
		}
		d.items = append(d.items, d.cut(more))
		*n = node(len(d.items)-1)<<2 | state
		return
	}
	*n = *n&^nodeState | state
	all := d.items[n.number()]
	if state == nodeRuns {
		if last := &all[len(all)-1]; last.join(more[0]) {
			more = more[1:]
		}
	}
	if room := len(all) + len(more); room > cap(all) {
		room = max(room, 2*cap(all))
		d.memory += int64(room-cap(all)) * costValue
		all = append(make([]Value, 0, room), all...)
	}
	d.items[n.number()] = append(all, more...)
}

// cut copies the first items of a container. Short lists share a slab.
func (d *Document) cut(more []Value) []Value {
	if len(more) > slabSize/16 {
		d.memory += int64(len(more)) * costValue
		return append(make([]Value, 0, len(more)), more...)
	}
	if len(d.slab) < len(more) {
		d.slab = make([]Value, slabSize)
		d.memory += slabSize * costValue
	}
	own := d.slab[:len(more):len(more)]
	d.slab = d.slab[len(more):]
	copy(own, more)
	return own
}

// intern returns the Value of a string. It does not keep b.
func (d *Document) intern(tag uint64, b []byte) Value {
	slot := &d.near[0]
	if n := len(b); n > 0 {
		slot = &d.near[(n*31+int(b[0])*7+int(b[n-1]))%len(d.near)]
	}
	if i := *slot; i > 0 && d.strs[i-1] == string(b) {
		return pack(tag, uint64(i-1))
	}
	id, ok := d.ids[string(b)]
	if !ok {
		s := string(b)
		id = uint32(len(d.strs))
		d.strs = append(d.strs, s)
		d.ids[s] = id
		d.memory += int64(len(s)) + costString
	}
	*slot = id + 1
	return pack(tag, uint64(id))
}

func (d *Document) newInt(x int64) Value {
	v := pack(tagInt, uint64(x))
	if int64(v)>>tagBits == x {
		return v
	}
	return d.newWide(tagWide, uint64(x))
}

func (d *Document) newUint(x uint64) Value {
	if x <= math.MaxInt64 {
		return d.newInt(int64(x))
	}
	return d.newWide(tagUint, x)
}

func (d *Document) newWide(tag, bits uint64) Value {
	if n := len(d.wide); n > 0 && d.wide[n-1] == bits {
		return pack(tag, uint64(n-1))
	}
	if len(d.wide) == cap(d.wide) {
		d.wide = grow(d.wide, &d.memory, costValue)
	}
	d.wide = append(d.wide, bits)
	return pack(tag, uint64(len(d.wide)-1))
}

// grow doubles the capacity of the full slice s and adds the cost to *memory. For long slices, doubling copies less
// than append, and these slices are short-lived.
func grow[T any](s []T, memory *int64, each int64) []T {
	more := growth(s)
	*memory += more * each
	return append(make([]T, 0, len(s)+int(more)), s...)
}

// growth returns the number of values by which grow increases the capacity.
func growth[T any](s []T) int64 { return int64(max(64, len(s))) }
