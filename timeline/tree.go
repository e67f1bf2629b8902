package timeline

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// TreeOptions say how WriteTree prints.
type TreeOptions struct {
	Depth    int  // levels of spans printed below a lane; 0 means all
	Unfolded bool // every span has a line of its own
}

// longestInTree is the number of characters of a name that the tree shows.
const longestInTree = 60

// A node is a line of the tree: a lane, or the spans of one name within the same node, or one of them.
type node struct {
	name     string
	spans    []*Entry // empty for a lane
	lanes    map[int]bool
	total    time.Duration // of the spans that have times
	timed    int
	flops    float64 // of the spans that have times, and have operations themselves or within
	flopTime time.Duration
	peak     int64
	states   [Failed + 1]int
	children []*node
	find     map[string]*node
}

// WriteTree prints a Recording as a tree of lanes, spans and spans within them. Spans of the same name within one node
// share a line, which tells their number, and so do lanes of the same name. The columns are:
//
//	total ms, mean ms  time on the device of the spans that have a time
//	share              the fraction of its parent line's time; above 100 % if work ran on several streams
//	TFLOP/s            a span's operations, or those of the spans within it if it has none, by its time
//	peak memory        the most bytes in use when these spans, or spans within them, began or ended
//
// A note in words follows for spans whose State is not Done.
func WriteTree(w io.Writer, r *Recording, opts TreeOptions) error {
	rows := [][]string{{"span", "total ms", "mean ms", "share", "TFLOP/s", "peak memory", ""}}
	for _, lane := range tree(r, opts) {
		rows = lane.rows(rows, 0, nil, opts)
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s: %s\n", anyRune.visible(r.Device), r.summary())
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch i {
			case 0:
				line.WriteString(cell + pad)
			case len(row) - 1:
				line.WriteString("  " + cell)
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.Flush()
}

// summary returns the numbers of lanes, spans and samples.
func (r *Recording) summary() string {
	s := fmt.Sprintf("%d spans", len(r.Spans))
	if len(r.Spans) == 1 {
		s = "1 span"
	}
	if !r.Clock {
		s += ", no clock"
	}
	if r.Dropped > 0 {
		s += fmt.Sprintf(", %d older ones dropped", r.Dropped)
	}
	return s
}

// tree returns the lanes, in the order of their first spans.
func tree(r *Recording, opts TreeOptions) []*node {
	root := &node{}
	of := make([]*node, len(r.Spans))
	flops := r.flops()
	for i := range r.Spans {
		e := &r.Spans[i]
		in := root.child(e.Lane, true)
		if in.lanes == nil {
			in.lanes = map[int]bool{}
		}
		in.lanes[e.LaneNumber] = true
		if e.Parent >= 0 {
			in = of[e.Parent]
		}
		of[i] = in.child(e.Name, !opts.Unfolded)
		of[i].add(e, flops[i])
	}
	for _, lane := range root.children {
		for _, c := range lane.children {
			lane.total, lane.timed = lane.total+c.total, lane.timed+c.timed
			lane.flops, lane.flopTime = lane.flops+c.flops, lane.flopTime+c.flopTime
			lane.peak = max(lane.peak, c.peak)
		}
	}
	return root.children
}

// flops returns the operations of each span: its own, or those of the spans in it.
func (r *Recording) flops() []float64 {
	all := make([]float64, len(r.Spans))
	for i := len(r.Spans) - 1; i >= 0; i-- {
		e := &r.Spans[i]
		if e.FLOPs > 0 {
			all[i] = e.FLOPs
		}
		if e.Parent >= 0 {
			all[e.Parent] += all[i]
		}
	}
	return all
}

// child returns the node within n for spans of a name.
func (n *node) child(name string, fold bool) *node {
	if c := n.find[name]; c != nil && fold {
		return c
	}
	if n.find == nil {
		n.find = map[string]*node{}
	}
	c := &node{name: name, peak: unknownBytes}
	n.find[name] = c
	n.children = append(n.children, c)
	return c
}

func (n *node) add(e *Entry, flops float64) {
	n.spans = append(n.spans, e)
	n.states[e.State]++
	n.peak = max(n.peak, e.Memory.Peak)
	took, ok := e.Duration()
	if !ok {
		return
	}
	n.timed++
	n.total += took
	if flops > 0 {
		n.flops += flops
		n.flopTime += took
	}
}

// rows appends the lines of n and what is in it.
func (n *node) rows(rows [][]string, depth int, in *node, opts TreeOptions) [][]string {
	name, count := n.name, len(n.spans)
	if depth == 0 {
		name, count = "lane "+n.name, len(n.lanes)
	}
	name = strings.Repeat("  ", depth) + anyRune.name(name, longestInTree)
	if count > 1 {
		name += fmt.Sprintf(" ×%d", count)
	}
	row := []string{name, "", "", "", "", "", n.notes()}
	if n.timed > 0 {
		row[1] = millis(n.total)
		if depth > 0 {
			row[2] = millis(n.total / time.Duration(n.timed))
		}
		if in != nil && in.total > 0 {
			row[3] = fmt.Sprintf("%.1f%%", 100*float64(n.total)/float64(in.total))
		}
	}
	if n.flops > 0 && n.flopTime > 0 {
		row[4] = threeDigits(n.flops / n.flopTime.Seconds() / 1e12)
	}
	if n.peak >= 0 {
		row[5] = bytesize.Format(n.peak)
	}
	rows = append(rows, row)
	if opts.Depth > 0 && depth >= opts.Depth {
		return rows
	}
	for _, c := range n.children {
		rows = c.rows(rows, depth+1, n, opts)
	}
	return rows
}

// notes describes the spans of a node whose State is not Done.
func (n *node) notes() string {
	var notes []string
	for state := Open; state <= Failed; state++ {
		if k := n.states[state]; k == 0 {
			continue
		} else if len(n.spans) == 1 {
			notes = append(notes, state.String())
		} else {
			notes = append(notes, fmt.Sprintf("%d %s", k, state))
		}
	}
	for _, e := range n.spans {
		if e.Err != nil {
			notes = append(notes, "("+anyRune.name(e.Err.Error(), 2*longestInTree)+")")
			break
		}
	}
	return strings.Join(notes, " ")
}
