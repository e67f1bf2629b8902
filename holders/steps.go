package holders

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

// Steps are the repeated parts of a recording, such as the steps of a training.
type Steps struct {
	List   []Step // in order, without overlap; empty if none were found
	Source string // how they were found, for sentences: `the annotations "Optimizer.step#AdamW.step"`

	// Inferred says that the recording has no annotations of steps, so that List shows repetitions of any kind: the
	// layers of one forward pass repeat, too.
	Inferred bool
}

// A Step is one of Steps.
type Step struct {
	Number      int  // from 1, or the N of ProfilerStep#N
	First, Last int  // events
	Partial     bool // the recording ended, or a request failed, before the step was complete
}

// Steps returns the steps of the recording, from the first of these sources that has any:
//
//   - annotations ProfilerStep#N, which torch.profiler.profile.step makes;
//   - annotations of the user (torch.profiler.record_function) with a name such as "step", "train_step 3" or "batch";
//   - annotations Optimizer.step, which every optimizer of PyTorch makes: a step ends with each, and the first step
//     begins with the recording;
//   - the repetition of the requests, of the same code or, without stacks, of the same sizes: a step begins where the
//     least memory is active. Requests before the first repetition belong to no step, nor do fewer than half a step's
//     at the end.
func (h *History) Steps() Steps {
	marks := h.marks()
	if s := spans(marks, profilerStep); len(s.List) > 0 {
		return h.withTail(s)
	}
	if s := spans(marks, userStep); len(s.List) > 0 {
		return h.withTail(s)
	}
	if s := h.optimizerSteps(marks); len(s.List) > 0 {
		return s
	}
	return h.repetitions()
}

var (
	profilerStep  = regexp.MustCompile(`^ProfilerStep#(\d+)$`)
	userStep      = regexp.MustCompile(`(?i)^(?:train(?:ing)?[ _-]*)?(?:step|iteration|iter|batch)[ _#:-]*(\d+)?$`)
	optimizerStep = regexp.MustCompile(`^Optimizer\.step#`)
	optimizerZero = regexp.MustCompile(`^Optimizer\.zero_grad#`)
)

// A mark is an annotation: it is between the events event-1 and event.
type mark struct {
	event int
	name  string
	start bool
	tied  int // events from event on that have the time of the annotation, so that their order is not known
}

// marks returns the annotations of the device in order: those among the events, or else those of the snapshot.
func (h *History) marks() (marks []mark) {
	for _, event := range h.Trace.Find(mem.ActionAnnotate) {
		e := h.Trace.At(int(event))
		if int(e.Metadata) >= len(h.Trace.Metadata) {
			continue
		}
		stage, name, _ := strings.Cut(h.Trace.Metadata[e.Metadata], " ")
		if stage == trace.StageStart || stage == trace.StageEnd { // PyTorch annotates blocks with any text
			marks = append(marks, mark{event: int(event), name: name, start: stage == trace.StageStart})
		}
	}
	if len(marks) > 0 || h.Trace.Len() == 0 || h.Since(h.Trace.Len()-1) == 0 {
		return marks
	}
	for i := range h.snapshot.Annotations {
		a := &h.snapshot.Annotations[i]
		if a.Device != h.Trace.Device {
			continue
		}
		event := sort.Search(h.Trace.Len(), func(n int) bool { return h.Trace.TimeUS(n) >= a.TimeUS })
		tied := 0
		for event+tied < h.Trace.Len() && h.Trace.TimeUS(event+tied) == a.TimeUS {
			tied++
		}
		marks = append(marks, mark{event, a.Name, a.Stage == trace.StageStart, tied})
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return a.event - b.event })
	return marks
}

// spans returns a step for each start of an annotation whose name matches, up to its end. Names that differ in more
// than their number, such as those of "step 1" and "batch 1", are different annotations; the first of them counts.
func spans(marks []mark, pattern *regexp.Regexp) (s Steps) {
	form, open := "", false
	for _, m := range marks {
		match := pattern.FindStringSubmatch(m.name)
		if match == nil {
			continue
		}
		own := strings.TrimSuffix(m.name, match[1])
		if form == "" {
			form = own
		}
		switch {
		case own != form:
		case m.start:
			number, err := strconv.Atoi(match[1])
			if err != nil {
				number = len(s.List) + 1
			}
			if open { // its end is missing
				s.List[len(s.List)-1].Last = m.event - 1
			}
			s.List = append(s.List, Step{Number: number, First: m.event, Last: -1})
			open = true
		case open:
			s.List[len(s.List)-1].Last = m.event - 1
			open = false
		}
	}
	s.List = slices.DeleteFunc(s.List, func(x Step) bool { return x.Last >= 0 && x.Last < x.First })
	s.Source = fmt.Sprintf("the annotations %q", form)
	return s
}

// withTail ends a step whose end the recording lacks.
func (h *History) withTail(s Steps) Steps {
	if last := &s.List[len(s.List)-1]; last.Last < 0 {
		last.Last, last.Partial = h.Trace.Len()-1, true
	}
	return s
}

// optimizerSteps returns a step for each end of Optimizer.step of the optimizer that comes first. What follows the last
// one is a step that the recording does not complete, if requests failed in it.
func (h *History) optimizerSteps(marks []mark) (s Steps) {
	name, first := "", 0
	for _, m := range marks {
		if m.start || !optimizerStep.MatchString(m.name) || name != "" && m.name != name {
			continue
		}
		if name = m.name; m.event > first {
			s.List = append(s.List, Step{Number: len(s.List) + 1, First: first, Last: m.event - 1})
			first = m.event
		}
	}
	s.Source = fmt.Sprintf("the annotations %q", name)
	failures := h.Trace.Find(mem.ActionOOM)
	failed := len(failures) > 0 && int(failures[len(failures)-1]) >= first
	if len(s.List) > 0 && failed {
		s.List = append(s.List, Step{len(s.List) + 1, first, h.Trace.Len() - 1, true})
	}
	return s
}

// stepPeak returns the peak within a step.
func (h *History) stepPeak(number int) (Moment, error) {
	s := h.Steps()
	if len(s.List) == 0 {
		return Moment{}, fmt.Errorf("no steps were found: there are no annotations of steps, and the requests do not " +
			"repeat; run the body of the loop in torch.profiler.record_function(\"step\"), or name a time")
	}
	for _, x := range s.List {
		if x.Number == number {
			return h.moment(h.peak(x.First, x.Last), fmt.Sprintf("the peak of step %d", number)), nil
		}
	}
	return Moment{}, fmt.Errorf("the recording has the steps %d to %d (from %s)", s.List[0].Number,
		s.List[len(s.List)-1].Number, s.Source)
}
