package main

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
)

// replaySentences returns sentences about the memory of the recorded run and about the savings of the best row.
func replaySentences(c *replay.Comparison) []string {
	out := where(c)
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	r := c.RecordedRow()
	if c.Best < 0 {
		return append(out, noneCompletedText(c))
	}
	b := &c.Rows[c.Best]
	within := ""
	if c.Limit > 0 {
		within = " within the limit of " + bytesize.Format(c.Limit)
	}
	switch {
	case c.BySmallest && b.SmallestLimit > 0:
		if r != nil && !r.Completed() && r != b {
			say("%s would have let it complete%s.", setting(c, b), within)
		}
		say("%s", leastNeeded(c, r, b))
	case r == nil || len(c.Rows) == 1:
	case !r.Completed():
		say("%s would have let it complete%s, with %s reserved.", setting(c, b), within,
			bytesize.Format(b.ReservedPeak))
	case c.Saving() > 0:
		of := ""
		if !asRecorded(c, r) {
			of = " of that"
		}
		say("%s would have saved %s (%s)%s.", setting(c, b), bytesize.Format(c.Saving()),
			bytesize.Percent(c.Saving(), r.ReservedPeak), of)
	default:
		say("None of the other rows reserves less than %s.", recordedSettings(c))
	}
	return out
}

// where returns sentences about the use of the memory under the recorded settings.
func where(c *replay.Comparison) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	r := c.RecordedRow()
	if r == nil || r.AtPeak.Reserved == 0 {
		return nil
	}
	what := "As recorded,"
	switch {
	case c.Work.Script:
		what = "With PyTorch's defaults,"
	case !asRecorded(c, r):
		what = fmt.Sprintf("While this was recorded, %s was reserved at most. Run again here with the recorded "+
			"settings, which is what the other rows can be compared with,", bytesize.Format(c.Work.RecordedReserved))
	}
	u := r.AtPeak
	over := r.ReservedPeak - r.RequestedPeak
	say("%s %s was reserved for at most %s in use at a time: %s, %s of it, beyond that.",
		what, bytesize.Format(r.ReservedPeak), bytesize.Format(r.RequestedPeak), bytesize.Format(over),
		bytesize.Percent(over, r.ReservedPeak))
	say("When the reserved memory reached its peak, %s of it was in use, %s was cached in segments that this "+
		"request could not use, %s was free beside live blocks in the same segments, and %s was rounding.",
		bytesize.Format(u.Requested), bytesize.Format(u.Free), bytesize.Format(u.Stranded), bytesize.Format(u.Rounding))
	return out
}

// asRecorded reports whether the row of the recorded settings reserves what was reserved when this was recorded.
func asRecorded(c *replay.Comparison, r *replay.Row) bool {
	return c.Work.Script || r.FromRecording || c.Work.RecordedReserved == 0 || r.ReservedPeak == c.Work.RecordedReserved
}

// noneCompletedText says what to do if no row completed.
func noneCompletedText(c *replay.Comparison) string {
	searched := false
	for i := range c.Rows {
		searched = searched || c.Rows[i].SmallestLimit != 0
	}
	switch b := c.LeastLimit(); {
	case !searched:
		return "No row completed: try a higher --limit or --capacity, or other settings."
	case b == nil:
		return "No row completed, and no limit would do: a device of " + bytesize.Format(c.Capacity) +
			" is too small; try a higher --capacity, or other settings."
	default:
		text := fmt.Sprintf("No row completed. The least that would do is a limit of about %s, with %s.",
			bytesize.Format(b.SmallestLimit), settingInside(c, b))
		if c.LimitRecorded && !c.Work.LimitKnown {
			text += " The recorded run had at least " + bytesize.Format(c.Limit) + ", perhaps more: if you know how " +
				"much, say so with --limit."
		}
		return text
	}
}

// leastNeeded returns a sentence about the smallest limit of the best row.
func leastNeeded(c *replay.Comparison, r, b *replay.Row) string {
	text := fmt.Sprintf("%s needs at least about %s", setting(c, b), bytesize.Format(b.SmallestLimit))
	switch {
	case r == b && len(c.Rows) > 1:
		return text + "; no other row can do with less."
	case r == nil || r == b || r.SmallestLimit <= 0:
		return text + "."
	}
	more := r.SmallestLimit - b.SmallestLimit
	return fmt.Sprintf("%s; %s need %s, %s (%s) more.", text, recordedSettings(c), bytesize.Format(r.SmallestLimit),
		bytesize.Format(more), bytesize.Percent(more, b.SmallestLimit))
}

// recordedSettings is the name of the settings of the row AsRecorded in sentences.
func recordedSettings(c *replay.Comparison) string {
	if c.Work.Script {
		return "PyTorch's defaults"
	}
	return "the recorded settings"
}

// setting is the setting that gives a row, at the beginning of a sentence.
func setting(c *replay.Comparison, r *replay.Row) string {
	text := settingInside(c, r)
	return strings.ToUpper(text[:1]) + text[1:]
}

// settingInside is the setting that gives a row, inside a sentence.
func settingInside(c *replay.Comparison, r *replay.Row) string {
	settings, caching := strings.CutPrefix(r.Allocator, "caching:")
	switch {
	case r.Allocator == replay.AsRecorded && c.Work.Script:
		return "the row of PyTorch's defaults"
	case r.Allocator == replay.AsRecorded:
		return "the row of the recorded settings"
	case caching && settings == "":
		return "an empty PYTORCH_CUDA_ALLOC_CONF"
	case caching && c.Work.Script:
		return "the row " + settings
	case caching:
		return "PYTORCH_CUDA_ALLOC_CONF=" + settings
	}
	return "the allocator " + r.Allocator
}
