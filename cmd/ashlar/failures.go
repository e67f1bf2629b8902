package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// failureText describes a recorded request that failed.
func failureText(f *replay.Failure, stacks *trace.Stacks) string {
	left := "the device had %s left"
	if f.Limit > 0 && f.Free <= f.Limit-f.Reserved {
		left = "%s was left of the limit"
	}
	text := fmt.Sprintf("%s on stream %#x, at entry %s, with %s in use and %s reserved; "+left, bytesize.Format(f.Size),
		f.Stream, count(f.Entry), bytesize.Format(f.Requested), bytesize.Format(f.Reserved), bytesize.Format(f.Free))
	if where := holders.NewFrames(stacks).Line(f.Stack); where != "" {
		text += "; asked for by " + clean(where, maxWhere)
	}
	return text
}

// limitText is a sentence if a limit of the process refused the request; otherwise it is empty.
func limitText(f *replay.Failure) string {
	switch {
	case f.Limit > 0:
		return fmt.Sprintf(" Your own limit of %s was reached.", bytesize.Format(f.Limit))
	case f.Below == 0:
		return ""
	}
	return fmt.Sprintf(" Your own limit, of less than %s, was reached: the device had room.", bytesize.Format(f.Below))
}

// writeFailures describes the requests without room: the recorded request, the allocator's error for it or for that of
// the first row without room, and a line for each of the other rows.
func writeFailures(p *page, in *input, c *replay.Comparison) {
	if n := c.Work.NumFailures; n > 0 {
		var stacks *trace.Stacks
		if in.snapshot != nil {
			stacks = in.snapshot.Stacks
		}
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" It was the first of %s.", count(n))
		}
		f := &c.Work.Failures[0]
		p.paragraph("", "The request that failed when this was recorded: "+failureText(f, stacks)+"."+limitText(f)+more)
	}
	whole := true // is still to be written
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Failure == nil {
			continue
		}
		name := rowName(c, r.Allocator)
		var oom *mem.OutOfMemory
		switch {
		case whole:
			p.paragraph("", fmt.Sprintf("What the allocator says of the failure in the row %q:", name))
			for line := range strings.Lines(r.Failure.Err.Error()) {
				text := strings.TrimLeft(line, " ")
				p.paragraph("  "+strings.Repeat(" ", len(line)-len(text)), text)
			}
			whole = false
		case errors.As(r.Failure.Err, &oom):
			p.paragraph("", fmt.Sprintf("%s: no room for %s with %s allocated and %s reserved; largest free block "+
				"%s, stranded %s.",
				name, bytesize.Format(r.Failure.Size), bytesize.Format(oom.Allocated), bytesize.Format(oom.Reserved),
				bytesize.Format(oom.LargestFree), bytesize.Format(oom.Stranded)))
		default:
			p.paragraph("", fmt.Sprintf("%s: no room for %s: %v", name, bytesize.Format(r.Failure.Size), r.Failure.Err))
		}
	}
}
