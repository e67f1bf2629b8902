package trace

import (
	"slices"

	"github.com/ashlar-go/ashlar/internal/packed"
)

// Changes are the changes of the requested bytes of the active blocks by each event, in about a byte each. They do not
// change, and may be used by several goroutines.
type Changes struct {
	before   int64 // the first event
	sequence packed.Sequence

	// While lifetimes are derived: the changes by later events than those in the sequence, and those by earlier events
	// that became known late.
	recent []int64
	late   map[int]int64
}

// Before returns the bytes of the blocks that are active before the first event.
func (c *Changes) Before() int64 { return c.before }

// Len returns the number of events.
func (c *Changes) Len() int { return c.sequence.Len() }

// Read sets v to the changes by the events from an index on, as signed numbers.
func (c *Changes) Read(from int, v []uint64) { c.sequence.Read(from, v) }

// recentChanges is how many changes are packed at a time. A multiple of packed.PartLength.
const recentChanges = 16 * packed.PartLength

// add adds to the change by an event; -1 is before the first.
func (c *Changes) add(event int, bytes int64) {
	if event < 0 {
		c.before += bytes
		return
	}
	i := event - c.sequence.Len()
	if i < 0 {
		if c.late == nil {
			c.late = map[int]int64{}
		}
		c.late[event] += bytes
		return
	}
	if i >= 2*recentChanges {
		c.pack(i + 1 - recentChanges)
		i = event - c.sequence.Len()
	}
	if i >= len(c.recent) {
		c.recent = slices.Grow(c.recent, i+1-len(c.recent))[:i+1]
	}
	c.recent[i] += bytes
}

// pack moves at least n changes to the sequence, in whole parts.
func (c *Changes) pack(n int) {
	n = (n + packed.PartLength - 1) / packed.PartLength * packed.PartLength
	if n > len(c.recent) {
		c.recent = append(c.recent, make([]int64, n-len(c.recent))...)
	}
	c.sequence.Append(c.recent[:n])
	left := copy(c.recent, c.recent[n:])
	clear(c.recent[left:])
	c.recent = c.recent[:left]
}

// finish completes the changes by a number of events.
func (c *Changes) finish(events int) {
	if more := events - c.sequence.Len() - len(c.recent); more > 0 {
		c.recent = append(c.recent, make([]int64, more)...)
	}
	c.sequence.Append(c.recent)
	c.recent = nil
	late := make([]int, 0, len(c.late))
	for event := range c.late {
		late = append(late, event)
	}
	slices.Sort(late)
	for len(late) > 0 {
		part := late[0] / packed.PartLength
		n := slices.IndexFunc(late, func(event int) bool { return event/packed.PartLength != part })
		if n < 0 {
			n = len(late)
		}
		c.sequence.Change(part, func(numbers []int64) {
			for _, event := range late[:n] {
				numbers[event%packed.PartLength] += c.late[event]
			}
		})
		late = late[n:]
	}
	c.late = nil
}
