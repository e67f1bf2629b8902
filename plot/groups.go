package plot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
)

// maxGroups is the most groups that are named. The others are one group.
const maxGroups = 8

// A group is blocks with the same value of each key.
type group struct {
	label  string
	others bool    // it is all groups that are not named
	bytes  []int64 // requested, in each column
	at     int64   // requested, at the moment
}

// groups are those of a recording. The bytes of all groups in a column add up to the active bytes at its moment.
type groups struct {
	keys   []holders.Key
	moment holders.Moment
	all    []group // from the bottom of the stack to its top
	of     func(*holders.Block) int
}

func newGroups(c *columns, keys []holders.Key, moment holders.Moment) *groups {
	view := c.h.At(moment)
	g := &groups{keys: keys, moment: moment}
	if keys == nil {
		g.keys = usualKeys(view)
	}
	found := view.By(g.keys...)
	named := found
	if len(found) > maxGroups+1 {
		named = found[:maxGroups]
	}
	index := map[string]int{}
	for i, x := range named {
		index[x.Label] = i
		g.all = append(g.all, group{label: x.Label, at: x.Bytes, bytes: make([]int64, len(c.moments)+1)})
	}
	others := group{label: "others", others: true, bytes: make([]int64, len(c.moments)+1), at: view.Bytes}
	for _, x := range named {
		others.at -= x.Bytes
	}
	if n := len(found) - len(named); n > 0 {
		others.label = fmt.Sprintf("%d others", n)
	}
	g.all = append(g.all, others)
	of := grouper(c.h, g.keys, index, len(named))
	present := false
	for i := range c.h.NumBlocks() {
		b := c.h.Block(i)
		from, to := c.span(b.Start, b.End)
		if from >= to {
			continue
		}
		n := of(&b)
		present = present || n == len(named)
		g.all[n].bytes[from] += b.Size
		g.all[n].bytes[to] -= b.Size
	}
	for i := range g.all {
		g.all[i].accumulate()
	}
	if !present {
		g.all = g.all[:len(named)]
	}
	g.order(of)
	return g
}

// usualKeys are the keys if the caller chose none.
func usualKeys(v *holders.View) []holders.Key {
	key := holders.ByStream
	for _, b := range v.Blocks {
		if _, ok := v.History().Frames.Innermost(b.Stack); ok {
			return []holders.Key{holders.ByLine}
		}
		if b.Category != holders.Unknown {
			key = holders.ByCategory
		}
	}
	return []holders.Key{key}
}

// grouper returns a function for the index of the group of a block: others if index has none.
func grouper(h *holders.History, keys []holders.Key, index map[string]int, others int) func(*holders.Block) int {
	labels := make([]func(*holders.Block) string, len(keys))
	for i, k := range keys {
		labels[i] = h.Labeller(k)
	}
	values := make([]string, len(keys))
	return func(b *holders.Block) int {
		for i, label := range labels {
			values[i] = label(b)
		}
		if n, ok := index[strings.Join(values, ", ")]; ok {
			return n
		}
		return others
	}
}

// accumulate turns changes into sums.
func (g *group) accumulate() {
	for i := 1; i < len(g.bytes); i++ {
		g.bytes[i] += g.bytes[i-1]
	}
	g.bytes = g.bytes[:len(g.bytes)-1]
}

// order puts the groups that change the least at the bottom, so that those above them are not moved up and down, and
// the others at the top.
func (g *groups) order(of func(*holders.Block) int) {
	change := make([]int64, len(g.all))
	order := make([]int, len(g.all))
	for i := range g.all {
		order[i] = i
		for c := 1; c < len(g.all[i].bytes); c++ {
			change[i] += abs(g.all[i].bytes[c] - g.all[i].bytes[c-1])
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(g.all[a].rank()-g.all[b].rank(), cmp.Compare(change[a], change[b]))
	})
	sorted, place := make([]group, len(order)), make([]int, len(order))
	for to, from := range order {
		sorted[to] = g.all[from]
		place[from] = to
	}
	g.all = sorted
	g.of = func(b *holders.Block) int { return place[of(b)] }
}

// rank puts the others last.
func (g *group) rank() int {
	if g.others {
		return 1
	}
	return 0
}

func abs(n int64) int64 { return max(n, -n) }

// keysText is the keys for a sentence: "line and category".
func (g *groups) keysText() string {
	names := make([]string, len(g.keys))
	for i, k := range g.keys {
		names[i] = k.String()
	}
	return strings.Join(names, " and ")
}

// paint returns the color of a group.
func (g *group) paint(p *palette) paint {
	if g.others {
		return paintOther
	}
	return p.of(g.label)
}

// bySize returns the groups, the largest at the moment first and the others last.
func (g *groups) bySize() []*group {
	sorted := make([]*group, len(g.all))
	for i := range g.all {
		sorted[i] = &g.all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *group) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(b.at, a.at))
	})
	return sorted
}

// choosePaints gives the first colors to the largest groups.
func (g *groups) choosePaints(p *palette) {
	for _, x := range g.bySize() {
		x.paint(p)
	}
}
