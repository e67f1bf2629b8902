package holders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/trace"
)

// A Key is a property of blocks by which a View groups them.
type Key uint8

const (
	ByLine     Key = iota // the user's innermost line: "train.py:80 forward"
	ByFunction            // the function of that line: "train.py forward"
	ByModule              // the file of that line: "models/unet.py"
	ByStack               // all of the user's lines, the innermost first, or the first 64 of them
	ByCategory            // Block.Category
	ByStream              // the handle: "0x7f00"
	ByPool                // "default", or "(1, 0)" for a private pool
	ByTag                 // the user's text for the allocation
	numKeys
)

var keyNames = [numKeys]string{"line", "function", "module", "stack", "category", "stream", "pool", "tag"}

// String returns the name of the key, as ParseKey reads it.
func (k Key) String() string { return keyNames[k] }

// KeyNames returns the names of all keys.
func KeyNames() []string { return slices.Clone(keyNames[:]) }

// ParseKey returns the key with a name.
func ParseKey(name string) (Key, error) {
	if n := slices.Index(keyNames[:], name); n >= 0 {
		return Key(n), nil
	}
	return 0, fmt.Errorf("holders: unknown key %q: want one of %s", name, strings.Join(keyNames[:], ", "))
}

// stackArrow is between the lines of a stack in labels: from a function to its caller.
const stackArrow = " ← "

// maxLines is the maximum number of lines of a stack in its label.
const maxLines = 64

// noTag is the label of a block without a tag.
const noTag = "(no tag)"

// NoStack returns the label of a block without a stack: "(no stack)" if its allocation was recorded, such as those of
// PyTorch's backward pass, where it records no Python stacks. Otherwise it returns "(before the recording)".
func NoStack(recorded bool) string {
	if recorded {
		return "(no stack)"
	}
	return "(before the recording)"
}

// A View is the memory of a device at one moment.
type View struct {
	Moment Moment
	Blocks []Block // the active blocks, in the order of their allocations
	Bytes  int64   // their requested bytes

	history *History
}

// Device returns the ordinal of the device.
func (v *View) Device() int { return v.history.Trace.Device }

// History returns the history that the view is of.
func (v *View) History() *History { return v.history }

// A Holder is a group of blocks with the same value of each key.
type Holder struct {
	Label  string   // the values, separated by ", "
	Values []string // one for each key
	Bytes  int64    // requested
	Blocks int
}

// NewView returns a view without blocks.
func (h *History) NewView(m Moment) *View { return &View{Moment: m, history: h} }

// At returns the memory at a moment.
func (h *History) At(m Moment) *View {
	v := h.NewView(m)
	for i := range h.NumBlocks() {
		if h.Lifetimes.ActiveAt(i, m.Event) {
			b := h.Block(i)
			v.Blocks = append(v.Blocks, b)
			v.Bytes += b.Size
		}
	}
	return v
}

// FreedSoon returns the event by which the blocks of the view are gone that are freed soon: the first event after the
// moment with at most nine tenths of the bytes, or the last event if there is none. A block is freed soon if its End is
// at most that event.
func (v *View) FreedSoon() (event int) {
	last := v.history.Trace.Len() - 1
	for event, bytes := range v.history.Active(v.Moment.Event+1, last) {
		if bytes <= v.Bytes/10*9 {
			return event
		}
	}
	return last
}

// By groups the blocks by keys, ByLine if there are none. The largest holder is first. The bytes of all holders add up
// to those of the view.
func (v *View) By(keys ...Key) []Holder {
	if len(keys) == 0 {
		keys = []Key{ByLine}
	}
	labels := make([]func(*Block) string, len(keys))
	for i, k := range keys {
		labels[i] = v.history.Labeller(k)
	}
	index := map[string]int{}
	values := make([]string, len(keys))
	var holders []Holder
	for k := range v.Blocks {
		b := &v.Blocks[k]
		for i, label := range labels {
			values[i] = label(b)
		}
		key := strings.Join(values, "\x00")
		n, ok := index[key]
		if !ok {
			n = len(holders)
			index[key] = n
			holders = append(holders, Holder{Label: strings.Join(values, ", "), Values: slices.Clone(values)})
		}
		holders[n].Bytes += b.Size
		holders[n].Blocks++
	}
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Blocks, a.Blocks), strings.Compare(a.Label, b.Label))
	})
	return holders
}

// Label returns the value of a key of a block, as in Holder.Label.
func (h *History) Label(k Key, b *Block) string { return h.Labeller(k)(b) }

// labeller returns a function for the values of a key, which keeps those of stacks.
func (h *History) Labeller(k Key) func(*Block) string {
	switch k {
	case ByCategory:
		return func(b *Block) string { return b.Category.String() }
	case ByStream:
		return func(b *Block) string { return fmt.Sprintf("%#x", h.Streams[b.Stream]) }
	case ByPool:
		return func(b *Block) string { return h.Pools[b.Pool].String() }
	case ByTag:
		return func(b *Block) string { return cmp.Or(h.TagOf(b), noTag) }
	}
	known := map[trace.StackID]string{}
	return func(b *Block) string {
		label, ok := known[b.Stack]
		if !ok {
			label = h.stackLabel(k, b.Stack)
			known[b.Stack] = label
		}
		if label == "" {
			return NoStack(b.Recorded)
		}
		return label
	}
}

// stackLabel returns the value of a key that depends on the stack, or "" if there are no frames.
func (h *History) stackLabel(k Key, id trace.StackID) string {
	f, ok := h.Frames.Innermost(id)
	if !ok {
		return ""
	}
	switch k {
	case ByModule:
		return h.Frames.path(f.Filename)
	case ByFunction:
		return h.Frames.path(f.Filename) + " " + h.Frames.name(f)
	case ByStack:
		var lines []string
		for _, f := range h.Frames.Shown(id) {
			if len(lines) == maxLines {
				lines = append(lines, "...")
				break
			}
			lines = append(lines, h.Frames.Label(f))
		}
		return strings.Join(lines, stackArrow)
	}
	return h.Frames.Label(f)
}

// TagOf returns the user's text for the allocation of a block, or "".
func (h *History) TagOf(b *Block) string {
	if int(b.Tag) >= len(h.Trace.Metadata) {
		return ""
	}
	return h.Trace.Metadata[b.Tag]
}
