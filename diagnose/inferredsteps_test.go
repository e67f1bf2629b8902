package diagnose_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Frames of Python programs: "function file line".
const (
	mainFrame   = "<module> /home/me/train.py 30"
	modelFrame  = "forward /home/me/model.py 12"
	initFrame   = "__init__ /home/me/model.py 5"
	moduleFrame = "_call_impl /opt/lib/python3.12/site-packages/torch/nn/modules/module.py 1700"
)

// pythonStacks replaces the stacks of events by those that their metadata names: lines such as the frames above, the
// innermost first, separated by "|".
func pythonStacks(s *snapshot.Snapshot) {
	tr := s.Traces[0]
	stacks := &trace.Stacks{}
	ids := make([]trace.StackID, len(tr.Metadata))
	for i, text := range tr.Metadata {
		var frames []uint32
		for line := range strings.SplitSeq(text, "|") {
			var f trace.Frame
			if _, err := fmt.Sscanf(line, "%s %s %d", &f.Name, &f.Filename, &f.Line); err != nil {
				continue
			}
			n := len(stacks.Frames)
			for j := range stacks.Frames {
				if stacks.Frames[j] == f {
					n = j
				}
			}
			if n == len(stacks.Frames) {
				stacks.Frames = append(stacks.Frames, f)
			}
			frames = append(frames, uint32(n))
		}
		ids[i] = stacks.Add(frames)
	}
	for i := range tr.Events {
		tr.Events[i].Stack = ids[tr.Events[i].Metadata]
	}
	s.Stacks, tr.Stacks = stacks, stacks
}

// layers allocates what a layer, or a model of a few layers, allocates: of 28 lines every other one keeps its block.
func layers(p *program, kept, freed int64, outer ...string) {
	for line := range 28 {
		frames := append([]string{fmt.Sprintf("forward /home/me/layer.py %d", 10+line)}, outer...)
		p.recorder.SetMetadata(strings.Join(frames, "|"))
		switch {
		case line%2 == 0:
			p.alloc(kept)
		case freed > 0:
			p.free(p.alloc(freed))
		}
	}
}

// Repetition is a leak only if it is that of steps: not of layers in a forward pass, and not of a model that is loaded.
func TestInferredSteps(t *testing.T) {
	limited := caching.Default()
	limited.Limit = 2000 * mib
	forward := []string{moduleFrame, modelFrame, moduleFrame, mainFrame}
	call := []string{moduleFrame, mainFrame}
	for _, c := range []struct {
		name, want string
		cfg        caching.Config
		run        func(p *program)
	}{
		{"layers of one forward pass, until the limit", "[limit]", limited, func(p *program) {
			for !p.full {
				layers(p, 10, 40, forward...)
			}
		}},
		{"outputs that are kept with their graphs", "[leak]", caching.Default(), func(p *program) {
			for range 12 {
				layers(p, 10, 0, call...)
			}
		}},
		{"outputs that are kept with their graphs, until the limit", "[leak]", limited, func(p *program) {
			for !p.full {
				layers(p, 10, 2, call...)
			}
		}},
		{"a model that is loaded, until the limit", "[limit]", limited, func(p *program) {
			for !p.full {
				layers(p, 10, 0, initFrame, mainFrame)
			}
		}},
		{"a model that is loaded with a conversion, until the limit", "[limit]", limited, func(p *program) {
			for !p.full {
				layers(p, 10, 20, initFrame, mainFrame)
			}
		}},
		{"a model that is loaded", "[none]", caching.Default(), func(p *program) {
			for range 12 {
				layers(p, 10, 0, initFrame, mainFrame)
			}
		}},
		{"steps that free everything", "[none]", caching.Default(), func(p *program) {
			for range 12 {
				var activations []mem.Block
				for line := range 14 {
					p.recorder.SetMetadata(fmt.Sprintf("forward /home/me/layer.py %d|%s|%s", line, moduleFrame, mainFrame))
					activations = append(activations, p.alloc(5))
				}
				for _, b := range activations {
					p.free(b)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := recorded(t, c.cfg, c.run)
			pythonStacks(s)
			r := explain(t, s, diagnose.Options{Memory: 8000 * mib})
			if got := fmt.Sprint(causes(r)); got != c.want {
				t.Errorf("verdict %s, want %s: %q\n%+v", got, c.want, r.Answer, r.Growth)
			}
			checkReport(t, r)
		})
	}
}
