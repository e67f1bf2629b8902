package diagnose

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// columns is the width of a line of Report.Answer.
const columns = 80

// answer sets Report.Answer.
func (x *explainer) answer() {
	for _, line := range []string{x.what(), x.who(), x.remedy()} {
		if line != "" {
			x.r.Answer = append(x.r.Answer, line)
		}
	}
}

// what says what happened.
func (x *explainer) what() string {
	r, b, l := x.r, &x.r.Barrier, x.r.Layout
	if l == nil {
		l = &Layout{}
	}
	limit := x.limitReached()
	switch r.Verdicts[0].Cause {
	case Limit:
		return fmt.Sprintf("%s; the GPU had %s free.", limit, FormatSize(b.Free))
	case TooMuch:
		if b.Required <= b.AtLeast {
			return fmt.Sprintf("The run fills the GPU: it needs %s, of %s that it could have.", FormatSize(b.Required),
				FormatSize(b.Reachable))
		}
		return fmt.Sprintf("The run needs more than the GPU has: %s, of %s that it could have.", FormatSize(b.Required),
			FormatSize(b.Reachable))
	case OtherProcesses:
		if b.Memory > 0 {
			return fmt.Sprintf("Other processes, or other libraries, hold %s of the GPU's %s.", FormatSize(b.Others),
				FormatSize(b.Memory))
		}
		return fmt.Sprintf("Other processes hold memory of the GPU: this one could have %s.", FormatSize(b.Reachable))
	case Fragmentation:
		return fmt.Sprintf("Fragmentation: %s is free in holes up to %s; %s is needed.", FormatSize(x.free()),
			FormatSize(l.LargestHole), FormatSize(r.Failure.Size))
	case PrivatePools:
		if r.Failure == nil {
			return fmt.Sprintf("Private pools keep %s free, of %s that is reserved at the end.", FormatSize(l.FreePools),
				FormatSize(l.Reserved))
		}
		return fmt.Sprintf("Private pools keep %s free that a request of %s could not use.", FormatSize(l.FreePools),
			FormatSize(r.Failure.Size))
	case Cached:
		return fmt.Sprintf("Other streams cache %s that a request of %s could not use.", FormatSize(l.FreeStreams),
			FormatSize(r.Failure.Size))
	case Setting:
		if r.Failure != nil {
			return short("The setting ", x.harmful.dropped, " made a request of "+FormatSize(r.Failure.Size)+" fail.")
		}
		return short("The setting ", x.harmful.dropped, " costs memory: the run reserved "+FormatSize(r.ReservedPeak)+".")
	case Leak:
		return short(fmt.Sprintf("Live memory grows by %s each step: ", FormatSize(r.Growth.PerStep)),
			r.Growth.Lines[0].Label, ".")
	}
	return fmt.Sprintf("Nothing failed: at most %s was in use at a time, of %s reserved.", FormatSize(r.RequestedPeak),
		FormatSize(r.ReservedPeak))
}

// limitReached says which limit was reached.
func (x *explainer) limitReached() string {
	b := &x.r.Barrier
	if b.Known {
		return fmt.Sprintf("Your limit of %s was reached", FormatSize(b.AtLeast))
	}
	return fmt.Sprintf("Your limit of %s was reached", between(b.AtLeast, b.Below))
}

// who says who holds the most memory at the moment.
func (x *explainer) who() string {
	r := x.r
	if len(r.Holders) == 0 {
		return "At " + r.View.Moment.Name + " nothing was in use."
	}
	share := func(bytes int64) string {
		percent := fmt.Sprintf("%.0f %%", 100*float64(bytes)/float64(max(r.View.Bytes, 1)))
		if r.View.Moment.Name == "the peak" {
			return percent + " of the peak"
		}
		return "At " + r.View.Moment.Name + ", " + percent
	}
	category := r.View.By(holders.ByCategory)[0]
	known := category.Label != holders.Unknown.String()
	top := x.topLine(func(h *holders.Holder) bool { return !known || h.Values[1] == category.Label })
	if top == nil {
		top = &r.Holders[0]
	}
	line, part := top.Values[0], float64(top.Bytes)/float64(category.Bytes)
	switch {
	case known && hasLine(top) && part >= mostOfCategory:
		return short(share(top.Bytes)+" is "+category.Label+" of ", line, ".")
	case known && hasLine(top):
		return short(share(category.Bytes)+" is "+category.Label+", the largest part at ", line, ".")
	case known:
		return share(category.Bytes) + " is " + category.Label + "."
	case hasLine(top):
		return short(share(top.Bytes)+" was allocated by ", line, ".")
	}
	return "The recording has no stacks, so the lines that hold the memory are unknown."
}

// mostOfCategory is the part of a category's bytes from which one line stands for it.
const mostOfCategory = 0.7

// topLine returns the largest holder with a line, which the user can change, among some; or nil.
func (x *explainer) topLine(among func(*holders.Holder) bool) *holders.Holder {
	for i := range x.r.Holders {
		if h := &x.r.Holders[i]; among(h) && hasLine(h) {
			return h
		}
	}
	return nil
}

// hasLine reports whether a holder by line has one, not "(no stack)".
func hasLine(h *holders.Holder) bool { return !strings.HasPrefix(h.Values[0], "(") }

// remedy says what to do.
func (x *explainer) remedy() string {
	r, b := x.r, &x.r.Barrier
	best := r.best()
	switch r.Verdicts[0].Cause {
	case None:
		if best != nil && r.Needed[0].Bytes > 0 {
			return fits(best, "This run needs at least "+FormatSize(r.Needed[0].Bytes)+", and with ", ".")
		}
		return "No other setting that was replayed needs notably less."
	case Leak:
		without := x.withoutGrowth(x.w.Program).LowerBound()
		return fmt.Sprintf("If a step freed the blocks of the one before, at most %s would be in use.", FormatSize(without))
	case TooMuch:
		if b.Required <= b.AtLeast {
			break
		}
		return "No setting helps: the live memory must shrink by " + FormatSize(b.Required-b.Reachable) + " or more."
	case OtherProcesses:
		return fmt.Sprintf("Stop them (nvidia-smi lists them), or use less: this run needs %s.", FormatSize(x.least()))
	case Setting:
		return x.withoutHarm()
	case PrivatePools:
		if x.onePool {
			return "If all private pools were one (graphs can share a pool), this run would fit."
		}
		if r.Failure == nil {
			return "Let graphs share a pool, or free the pools, so that other requests can use it."
		}
		return "Without private pools the run fits: free them, or do less in them."
	case Cached:
		if best == nil || best.Bytes > b.AtLeast {
			return "If all of this ran on one stream, the run would fit."
		}
	}
	switch {
	case best != nil && best.Bytes <= b.AtLeast:
		return fits(best, "With ", " and fits.")
	case best != nil && best.Bytes < b.Below:
		return fits(best, "With ", "; the limit may allow it.")
	case best != nil && r.Needed[0].Bytes > 0:
		return fits(best, "With ", "; as recorded, "+FormatSize(r.Needed[0].Bytes)+".")
	case best != nil:
		return fits(best, "With ", ".")
	case r.Needed[0].Bytes > 0:
		return fmt.Sprintf("The request needs a limit of %s or more; no setting that was tried helps.",
			FormatSize(r.Needed[0].Bytes))
	}
	return "No setting that was replayed helps: the live memory must shrink."
}

// fits says what a setting needs.
func fits(n *Need, before, after string) string {
	needs := " this run needs "
	if !strings.HasPrefix(before, "With") {
		needs = " "
	}
	return short(before, n.Name(), needs+FormatSize(n.Bytes)+after)
}

// withoutHarm says what the run needs without the harmful setting.
func (x *explainer) withoutHarm() string {
	n := x.r.need(x.harmful.spec)
	switch {
	case x.r.Failure == nil:
		return fmt.Sprintf("Without it the run reserves %s.", FormatSize(x.harmful.reserved))
	case n == nil:
		return ""
	case n.Bytes <= x.r.Barrier.AtLeast:
		return fmt.Sprintf("Without it this run needs %s and fits.", FormatSize(n.Bytes))
	}
	return fmt.Sprintf("Without it this run needs %s.", FormatSize(n.Bytes))
}

// least returns the least that the run needs with any setting.
func (x *explainer) least() int64 {
	least := x.w.Program.LowerBound()
	found := int64(0)
	for _, n := range x.r.Needed {
		if n.Bytes > 0 && (found == 0 || n.Bytes < found) {
			found = n.Bytes
		}
	}
	return max(least, found)
}

// short joins texts, of which the one in the middle is cut at its beginning if the line would be longer than columns.
func short(before, middle, after string) string {
	room := max(columns-utf8.RuneCountInString(before+after), 8)
	if runes := []rune(middle); len(runes) > room {
		middle = "..." + string(runes[len(runes)-room+3:])
	}
	return before + middle + after
}

var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// FormatSize writes a number of bytes with three digits: 17.9 GiB.
func FormatSize(n int64) string {
	for _, u := range units {
		if n >= u.bytes {
			return bytesize.ThreeDigits(float64(n)/float64(u.bytes)) + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// between writes a range of sizes: 18.0 to 18.9 GiB.
func between(low, high int64) string {
	for _, u := range units {
		if low >= u.bytes {
			a, b := bytesize.ThreeDigits(float64(low)/float64(u.bytes)), bytesize.ThreeDigits(float64(high)/float64(u.bytes))
			if a == b {
				return "about " + a + " " + u.name
			}
			return a + " to " + b + " " + u.name
		}
	}
	return fmt.Sprintf("%d to %d bytes", low, high)
}
