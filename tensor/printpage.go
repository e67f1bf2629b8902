package tensor

import (
	"bytes"
	"strings"
)

// A page arranges words in brackets and lines.
type page struct {
	*excerpt
	out   []byte
	words []string // not yet written
	edge  int      // the number of words before an ellipsis

	// row writes the words of the last axis. Its continuation lines start at the column margin; depth is the axis.
	row func(p *page, words []string, cut bool, margin, depth int)
}

// axis writes an axis. The margin is the column after its bracket.
func (p *page) axis(axis, margin int) {
	left := len(p.shape) - axis
	if left == 0 {
		p.out = append(p.out, p.words[0]...)
		return
	}
	p.out = append(p.out, '[')
	n := p.shape[axis]
	if left == 1 {
		p.row(p, p.words[:n], p.cut[axis], margin, axis)
		p.words = p.words[n:]
	} else {
		separator := "," + strings.Repeat("\n", left-1) + strings.Repeat(" ", margin)
		for i := range n {
			if i > 0 {
				p.out = append(p.out, separator...)
			}
			if i == p.edge && p.cut[axis] {
				p.out = append(append(p.out, "..."...), separator...)
			}
			p.axis(axis+1, margin+1)
		}
	}
	p.out = append(p.out, ']')
}

// wrap starts a new line at the margin.
func (p *page) wrap(margin int) {
	p.out = append(bytes.TrimRight(p.out, " "), '\n')
	p.out = append(p.out, strings.Repeat(" ", margin)...)
}

// column returns the length of the last line so far.
func (p *page) column() int { return len(p.out) - 1 - bytes.LastIndexByte(p.out, '\n') }

// pad returns s, padded on the left with spaces to a width.
func pad(s string, width int) string { return strings.Repeat(" ", max(width-len(s), 0)) + s }
