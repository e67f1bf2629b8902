package main

import (
	"fmt"
	"slices"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
)

// needed is the memory that a setting needs for a recording.
func needed(n *tune.Need) string {
	switch {
	case n.OverBudget():
		return "over budget"
	case n.Bytes < 0:
		return "too much"
	}
	return bytesize.Format(n.Bytes)
}

// writeRecording writes the figures of the only recording, with the recorded and the best settings.
func (t *tuning) writeRecording(p *page) {
	bound := bytesize.Format(t.Works[0].Program.LowerBound())
	with := []*tune.Need{&t.Recorded.Needs[0]}
	tab := table{marked: -1, header: []string{t.names[0], "recorded\nsettings"}}
	if t.Helps() {
		with = append(with, &t.Best.Needs[0])
		tab.header = append(tab.header, "this\nsetting")
	}
	row := func(name string, cell func(n *tune.Need) string) {
		cells := []string{name}
		for _, n := range with {
			cells = append(cells, cell(n))
		}
		tab.rows = append(tab.rows, cells)
	}
	later := func(r *replay.Row) string {
		switch {
		case r.Later == nil || !r.Completed():
			return "-"
		case r.Later.Share() < 0:
			return duration(r.Later.DriverTime)
		}
		return smallPercent(r.Later.Share())
	}
	timed := "their part of the time, after a third"
	if with[0].Free.Later != nil && with[0].Free.Later.Share() < 0 {
		timed = "their time, after a third"
	}
	row("live memory at the peak", func(*tune.Need) string { return bound })
	row("needed memory", needed)
	row("driver calls with this memory", func(n *tune.Need) string { return calls(&n.Smallest) })
	row("  "+timed, func(n *tune.Need) string { return later(&n.Smallest) })
	row("reserved memory without a limit", func(n *tune.Need) string {
		if !n.Free.Completed() {
			return "too much"
		}
		return bytesize.Format(n.Free.ReservedPeak)
	})
	row("driver calls without a limit", func(n *tune.Need) string { return calls(&n.Free) })
	row("  "+timed, func(n *tune.Need) string { return later(&n.Free) })
	tab.write(p)
}

// calls is the number of driver calls of a run.
func calls(r *replay.Row) string {
	if !r.Completed() || r.Allocator == "" {
		return "-" // it ran out of memory, or there is none
	}
	return count(r.DriverCalls)
}

// writeRecordings writes the figures of several recordings.
func (t *tuning) writeRecordings(p *page) {
	tab := table{
		marked: -1, optional: []int{5, 6},
		header: []string{
			"recording", " live at\n the peak", " needed as\n recorded", " needed with\n this setting", " saved",
			" calls as\n recorded", " calls with\n this setting",
		},
	}
	if !t.Helps() {
		tab.header, tab.optional = []string{tab.header[0], tab.header[1], tab.header[2], tab.header[5]}, nil
	}
	for i, w := range t.Works {
		now, then := &t.Recorded.Needs[i], &t.Best.Needs[i]
		saved := "-"
		if now.Bytes > 0 && then.Bytes > 0 {
			saved = fraction(1 - float64(then.Bytes)/float64(now.Bytes))
		}
		cells := []string{
			t.names[i], bytesize.Format(w.Program.LowerBound()), needed(now), needed(then), saved, calls(&now.Free),
			calls(&then.Free),
		}
		if !t.Helps() {
			cells = []string{cells[0], cells[1], cells[2], cells[5]}
		}
		tab.rows = append(tab.rows, cells)
	}
	tab.write(p)
}

// writeChecks writes the choices without a part of the recordings, and what they save there.
func (t *tuning) writeChecks(p *page) {
	fmt.Fprintln(p)
	if len(t.HeldBack) == 0 {
		p.paragraph("", "The recordings are too short to hold back a part of them and check the choice on it.")
		return
	}
	p.paragraph("", "Settings chosen without a part of the recordings, and what they save on it:")
	fmt.Fprintln(p)
	tab := table{marked: -1, header: []string{"chosen", " held back", " saved"}}
	worse := false
	for _, c := range t.HeldBack {
		cells := []string{settingsName(t.settings(c.Chosen)), "", fraction(c.Saving)}
		switch c.Chosen {
		case t.Recorded:
			cells[0] = "the recorded settings"
		case t.Best:
			cells[0] = "this setting"
			worse = worse || c.Saving < 0 || !c.Complete
		}
		switch {
		case c.Work >= 0:
			cells[1] = t.names[c.Work]
		case c.Part == tune.FirstHalf:
			cells[1] = "first half"
		default:
			cells[1] = "second half"
		}
		if !c.Complete {
			cells[2] = "not enough"
		}
		tab.rows = append(tab.rows, cells)
	}
	tab.write(p)
	if worse {
		fmt.Fprintln(p)
		p.paragraph("", "On a part that it was not chosen by, this setting needs more memory: what it saves may be "+
			"particular to these recordings.")
	}
}

// maxListed is the number of other settings that are listed without --all.
const maxListed = 5

// writeTried writes the settings that were not chosen.
func (t *tuning) writeTried(p *page, all bool) {
	others := slices.DeleteFunc(slices.Clone(t.Tried), func(trial *tune.Trial) bool { return trial == t.Best })
	if len(others) == 0 {
		return
	}
	fmt.Fprintln(p)
	p.paragraph("", "Other settings, the best first:")
	fmt.Fprintln(p)
	left := 0
	if !all {
		left = max(0, len(others)-maxListed)
	}
	tab := table{marked: -1, header: []string{"settings", " saved"}}
	if len(t.Works) == 1 {
		tab.header = []string{"settings", " needed", " driver\n calls", " saved"}
	}
	for _, trial := range others[:len(others)-left] {
		cells := []string{settingsName(t.settings(trial))}
		if len(t.Works) == 1 {
			cells = append(cells, needed(&trial.Needs[0]), calls(&trial.Needs[0].Free))
		}
		saved := t.flaw(trial)
		if saved == "" {
			saved = fraction(t.Saving(trial))
		}
		tab.rows = append(tab.rows, append(cells, saved))
	}
	tab.write(p)
	if left > 0 {
		fmt.Fprintln(p)
		p.paragraph("", fmt.Sprintf("--all lists %s more, and --json has all figures.", count(left)))
	}
}
