package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/replay/tune"
)

// tuneWidth is the number of columns of the output of tune.
const tuneWidth = 80

// write writes the answer, then the figures of the recordings, the checks, and other settings.
func (t *tuning) write(p *page, all bool) {
	p.width = min(p.width, tuneWidth)
	if !slices.ContainsFunc(t.Works, func(w *replay.Work) bool { return w.Program.LowerBound() > 0 }) {
		none := fmt.Sprintf("none of %s has allocations", plural(len(t.Works), "recording"))
		if len(t.Works) == 1 {
			none = t.names[0] + " has no allocations"
		}
		p.paragraph("", fmt.Sprintf("There is nothing to tune: %s.", none))
		return
	}
	p.paragraph("", t.answer())
	if t.Helps() {
		fmt.Fprintf(p, "\n    %s\n", clean(t.line(), 10*maxWord))
	}
	if t.anyCompletes() {
		fmt.Fprintln(p)
		if len(t.Works) == 1 {
			t.writeRecording(p)
		} else {
			t.writeRecordings(p)
		}
	}
	fmt.Fprintln(p)
	for _, sentence := range t.remarks() {
		p.paragraph("", sentence)
	}
	if t.anyCompletes() {
		t.writeLimit(p)
		t.writeChecks(p)
	}
	if all || t.anyCompletes() {
		t.writeTried(p, all)
	}
	for i, w := range t.Works {
		for _, note := range w.Notes {
			p.paragraph("Note: ", t.about(i)+note)
		}
	}
}

// anyCompletes reports whether a recording completes with the best setting.
func (t *tuning) anyCompletes() bool {
	return slices.ContainsFunc(t.Best.Needs, func(n tune.Need) bool { return n.Bytes >= 0 })
}

// about is the beginning of a note about a recording.
func (t *tuning) about(work int) string {
	if len(t.Works) == 1 {
		return ""
	}
	return t.names[work] + ": "
}

// enough reports whether a setting is enough for a recording: it completes within the budget, and within its limit.
func enough(n *tune.Need) bool { return n.Bytes >= 0 && n.Fits }

// answer is the first sentences: that a setting helps, or that none does and why.
func (t *tuning) answer() string {
	lead := ""
	var failing, saved []int // recordings that no setting is enough for, and those that the best setting alone is for
	for i := range t.Works {
		if best := enough(&t.Best.Needs[i]); !best {
			failing = append(failing, i)
		} else if !enough(&t.Recorded.Needs[i]) {
			saved = append(saved, i)
		}
	}
	switch {
	case len(failing) == len(t.Works) && len(failing) == 1:
		lead = t.whyNotEnough(0) + " "
	case len(failing) == len(t.Works):
		lead = "No setting is enough for any of the recordings. "
	case len(failing) > 0:
		lead = fmt.Sprintf("No setting is enough for %d of the %s. ", len(failing), plural(len(t.Works), "recording"))
	}
	best := "This setting"
	if n := len(t.Tried); n > 1 {
		best += ", the best of " + count(n) + ","
	}
	now, then := t.Recorded.Needs[0].Bytes, t.Best.Needs[0].Bytes
	switch {
	case !t.Helps():
		return lead + t.whyNothingHelps(len(failing) > 0)
	case len(saved) == 1:
		return fmt.Sprintf("%s%s is enough for %s. The recorded settings are not:", lead, best, t.names[saved[0]])
	case len(saved) > 1:
		return fmt.Sprintf("%s%s is enough for %s for which the recorded settings are not:", lead, best,
			plural(len(saved), "recording"))
	case len(t.Works) == 1:
		return fmt.Sprintf("%s%s needs %s (%s) less memory than the recorded settings:", lead, best,
			bytesize.Format(now-then), fraction(t.Saving(t.Best)))
	}
	return fmt.Sprintf("%s%s needs %s less memory than the recorded settings, averaged over %s:", lead, best,
		fraction(t.Saving(t.Best)), plural(len(t.Works), "recording"))
}

// mostlyLive is the part of the needed memory that is live at the peak from which on that is why nothing helps.
const mostlyLive = 0.98

// whyNothingHelps says why no setting is better than the recorded ones, which fail if they are not enough.
func (t *tuning) whyNothingHelps(fail bool) string {
	nothing := fmt.Sprintf("Nothing helps: none of %s is better than the recorded ones.", plural(len(t.Tried), "setting"))
	if fail {
		return nothing
	}
	part, of := 1.0, "" // the smallest part of a recording's memory that is live
	for i, w := range t.Works {
		live, need := w.Program.LowerBound(), t.Recorded.Needs[i].Bytes
		part = min(part, float64(live)/float64(max(need, 1)))
		of = fmt.Sprintf("%s (%s) of the %s that the recorded settings need is live at once.", bytesize.Format(live),
			fraction(math.Floor(1000*part)/1000), bytesize.Format(need))
	}
	if len(t.Works) > 1 {
		of = fmt.Sprintf("At least %s of what the recorded settings need for each recording is live at once.",
			fraction(math.Floor(1000*part)/1000))
	}
	if part >= mostlyLive {
		return "Nothing helps: the live memory is the peak. " + of
	}
	for _, trial := range t.Tried {
		if s := t.Saving(trial); s > 0 && t.flaw(trial) == "" {
			saves := fraction(s)
			if len(t.Works) == 1 {
				saves = fmt.Sprintf("%s (%s)", bytesize.Format(t.Recorded.Needs[0].Bytes-trial.Needs[0].Bytes), saves)
			}
			of += fmt.Sprintf(" The closest setting, %s, saves %s.", settingsName(t.settings(trial)), saves)
			break
		}
	}
	return nothing + " " + of
}

// settingsName is the name of settings in sentences and tables.
func settingsName(settings string) string {
	if settings == "" {
		return "PyTorch's defaults"
	}
	return settings
}

// fraction writes a part of 1 as a percentage.
func fraction(part float64) string {
	const whole = 1_000_000
	text := bytesize.Percent(int64(math.Round(whole*math.Abs(part))), whole)
	if part < 0 && text != "0 %" {
		return "-" + text
	}
	return text
}

// remarks are sentences about the figures: what they mean, limits, and keys of the setting.
func (t *tuning) remarks() (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	bound := t.budget.String() + " of the time"
	if t.budget.Time > 0 {
		bound = t.budget.String()
	}
	if t.anyCompletes() {
		say("Needed is the memory at the smallest limit under which a recording completes while the driver's calls take "+
			"at most %s after its first third, or no more than with the recorded settings.", bound)
	}
	if len(t.Works) > 1 && t.anyCompletes() {
		say("Calls are those to the driver, without a limit.")
	}
	for i, w := range t.Works {
		n := &t.Best.Needs[i]
		switch limit := t.opts.LimitOf(w); {
		case !enough(n) && len(t.Works) > 1:
			say("%s", t.whyNotEnough(i))
		case !enough(n): // the answer says so
		case limit > 0:
			say("%s fits into %s.", t.names[i], bytesize.Format(limit))
		case w.RecordedLimit >= n.Bytes && t.Helps():
			say("%s ran out of memory when it was recorded, with at least %s. With this setting it fits.", t.names[i],
				bytesize.Format(w.RecordedLimit))
		case w.RecordedLimit > 0:
			say("%s ran out of memory when it was recorded, with %s. It needs %s: --limit says how much there is.",
				t.names[i], recordedMemory(w), needed(n))
		}
	}
	for _, i := range t.Untimed {
		say("%s has no times, so a part of the time does not bound its driver calls; --budget 20ms would.", t.names[i])
	}
	if recorded := t.inputs[0].snapshot != nil; recorded && (!t.Helps() || !t.everyRecordingFits()) {
		say("\"ashlar explain\" shows which lines of the program hold the live memory.")
	}
	for _, note := range keyNotes {
		if t.Helps() && strings.Contains(t.Best.Settings, note.key+":") {
			say("%s %s.", note.key, note.text)
		}
	}
	return out
}

// keyNotes are what a user must know about keys of a setting.
var keyNotes = []struct{ key, text string }{
	{"large_segment_size_mb", "needs PyTorch 2.11 or newer"},
	{"max_non_split_rounding_mb", "needs PyTorch 2.6 or newer"},
	{"garbage_collection_threshold", "works only under a limit, such as the one below"},
}

// recordedMemory is what is known of the memory of a recording that ran out of it.
func recordedMemory(w *replay.Work) string {
	text := "at least " + bytesize.Format(w.RecordedLimit)
	for i := range w.Failures {
		if below := w.Failures[i].Below; below > 0 {
			return text + " and less than " + bytesize.Format(below)
		}
	}
	return text
}

// whyNotEnough says why the best setting is not enough for a recording, and which is.
func (t *tuning) whyNotEnough(work int) string {
	w, n := t.Works[work], &t.Best.Needs[work]
	live, limit := w.Program.LowerBound(), t.opts.LimitOf(w)
	into := "into " + bytesize.Format(limit)
	if limit == 0 {
		into = "on a device of " + bytesize.Format(cmp.Or(t.opts.Capacity, w.Capacity, replay.H200Memory))
	}
	if n.Bytes < 0 || live > limit && limit > 0 {
		return fmt.Sprintf("%s does not fit %s with any setting: %s is live at once.", t.names[work], into,
			bytesize.Format(live))
	}
	for _, trial := range t.Tried {
		if enough(&trial.Needs[work]) {
			return fmt.Sprintf("%s does not fit %s: it needs %s. With %s it fits.", t.names[work], into, needed(n),
				settingsName(t.settings(trial)))
		}
	}
	return fmt.Sprintf("%s does not fit %s with any setting that was tried: it needs %s.", t.names[work], into, needed(n))
}

// writeLimit writes how to limit a program to the memory that it needs.
func (t *tuning) writeLimit(p *page) {
	most, device := int64(0), t.Works[0].Device
	for i := range t.Works {
		n := &t.Best.Needs[i]
		if !enough(n) {
			return
		}
		most = max(most, n.Bytes)
		if t.Works[i].Device != device {
			device = -1
		}
	}
	const hundredth = 1 << 30 / 100
	gib := float64((most+hundredth-1)/hundredth) / 100
	arg := "device"
	if device >= 0 {
		arg = fmt.Sprint(device)
	}
	fmt.Fprintln(p)
	p.paragraph("", fmt.Sprintf("A limit of %.2fGiB is enough. To leave the rest of the GPU to others:", gib))
	fmt.Fprintf(p, "\n    total = torch.cuda.get_device_properties(%s).total_memory\n", arg)
	fmt.Fprintf(p, "    torch.cuda.set_per_process_memory_fraction(%.2f * 2**30 / total, %s)\n", gib, arg)
}

// flaw says why a setting is not enough for a recording that the best setting is enough for, or returns "".
func (t *tuning) flaw(trial *tune.Trial) string {
	for i := range trial.Needs {
		switch n := &trial.Needs[i]; {
		case !enough(&t.Best.Needs[i]):
		case n.OverBudget():
			return "over budget"
		case n.Bytes < 0:
			return "too much"
		case t.opts.LimitOf(t.Works[i]) > 0 && !n.Fits:
			return "does not fit"
		}
	}
	return ""
}
