package holders_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Stacks as PyTorch records them, innermost first, without lines.
const (
	moved    = "torch/nn/modules/module.py convert < torch/nn/modules/module.py _apply < train.py <module>"
	built    = "torch/nn/modules/linear.py __init__ < model.py __init__ < train.py <module>"
	linear   = "torch/nn/modules/linear.py forward < torch/nn/modules/module.py _call_impl < train.py <module>"
	attend   = "model.py attend < model.py forward < torch/nn/modules/module.py _call_impl < train.py <module>"
	user     = "train.py batch < train.py <module>"
	autograd = "" // PyTorch's own thread
	step     = "torch/optim/adam.py step < torch/optim/optimizer.py wrapper < train.py <module>"
	adam     = "torch/optim/adam.py _init_group < " + step
	update   = "torch/optim/adam.py _multi_tensor_adam < " + step
	zero     = "torch/optim/optimizer.py zero_grad < train.py <module>"
)

// A story is a recording that is made by hand. Blocks have names.
type story struct {
	trace  trace.Trace
	notes  []snapshot.Annotation
	stacks *trace.StackSet
	live   map[string]trace.Event
	names  map[driver.Pointer]string
}

func newStory() *story {
	return &story{
		trace:  trace.Trace{Streams: []uint64{0}, Metadata: []string{""}},
		stacks: trace.NewStackSet(nil), live: map[string]trace.Event{}, names: map[driver.Pointer]string{},
	}
}

func (s *story) stack(text string) trace.StackID {
	if text == "" {
		return 0
	}
	var frames []trace.Frame
	for _, frame := range strings.Split(text, " < ") {
		file, name, _ := strings.Cut(frame, " ")
		if strings.HasPrefix(file, "torch/") {
			file = "/v/lib/python3.12/site-packages/" + file
		}
		frames = append(frames, trace.Frame{Name: name, Filename: file, Line: 1})
	}
	return s.stacks.Add(frames)
}

// alloc allocates a block. A block of that name that is live is freed afterwards by the same code, as when a variable
// gets a new value.
func (s *story) alloc(name string, size int64, stack string) {
	e := trace.Event{
		Action: mem.ActionAlloc, Ptr: driver.Pointer(1+len(s.trace.Events)) << 32, Size: size, Stack: s.stack(stack),
		TimeUS: int64(len(s.trace.Events)),
	}
	s.trace.Events = append(s.trace.Events, e)
	if _, ok := s.live[name]; ok {
		s.free(name, stack)
	}
	s.live[name], s.names[e.Ptr] = e, name
}

func (s *story) free(name, stack string) {
	e, ok := s.live[name]
	if !ok {
		panic("no live block " + name)
	}
	delete(s.live, name)
	e.Stack, e.TimeUS = s.stack(stack), int64(len(s.trace.Events))
	e.Action = mem.ActionFreeRequested
	s.trace.Events = append(s.trace.Events, e)
	e.Action = mem.ActionFreeCompleted
	s.trace.Events = append(s.trace.Events, e)
}

// annotate records the start or the end of an annotation, at the time of the next event.
func (s *story) annotate(name, stage string) {
	s.notes = append(s.notes, snapshot.Annotation{Name: name, Stage: stage, TimeUS: int64(len(s.trace.Events))})
}

// categories returns the categories of the blocks of each name.
func (s *story) categories(t *testing.T) map[string][]holders.Category {
	t.Helper()
	s.trace.Stacks = s.stacks.Table()
	h := history(t, &snapshot.Snapshot{
		Traces: []*trace.Trace{&s.trace}, Stacks: s.trace.Stacks, Annotations: s.notes,
	})
	all := map[string][]holders.Category{}
	for _, b := range h.Blocks() {
		all[s.names[b.Ptr]] = append(all[s.names[b.Ptr]], b.Category)
	}
	return all
}

// want checks that all blocks of a name have a category.
func (s *story) want(t *testing.T, names string, want holders.Category) {
	t.Helper()
	all := s.categories(t)
	for _, name := range strings.Fields(names) {
		if len(all[name]) == 0 {
			t.Errorf("no block %s", name)
		}
		for i, c := range all[name] {
			if c != want {
				t.Errorf("block %d of %s: %s, want %s", i, name, c, want)
			}
		}
	}
}

// train records the usual steps of a training of one weight. More may happen in the forward pass and after the step.
func (s *story) train(steps int, forward, after func(step int)) {
	s.alloc("weight", 4000, moved)
	for step := range steps {
		s.alloc("product", 900, linear)
		s.alloc("result", 800, linear)
		s.free("product", linear)
		if forward != nil {
			forward(step)
		}
		s.alloc("seed", 4, autograd)
		s.alloc("gradient", 4000, autograd)
		s.alloc("upstream", 700, autograd)
		s.free("seed", autograd)
		s.free("result", autograd)
		s.free("upstream", autograd)
		if step == 0 {
			s.alloc("moment", 4000, adam)
		}
		s.alloc("root", 4000, update)
		s.free("root", update)
		s.free("gradient", zero)
		if after != nil {
			after(step)
		}
	}
}

func TestCategoriesOfATraining(t *testing.T) {
	s := newStory()
	s.train(3, nil, nil)
	s.want(t, "weight", holders.Weights)
	s.want(t, "gradient", holders.Gradients)
	s.want(t, "moment", holders.OptimizerState)
	s.want(t, "result", holders.Activations)
	s.want(t, "product seed upstream root", holders.Temporaries)
}

// Modules that are built on the device are weights, also those that are converted, and so is a copy of the optimizer's
// own if its gradients show it.
func TestCategoriesOfOtherWeights(t *testing.T) {
	s := newStory()
	s.alloc("built", 100, built)
	s.alloc("first", 200, built)
	s.free("first", built)
	s.alloc("single", 8000, built) // of the size of copy, but it does not stay
	s.alloc("half", 4000, moved)
	s.free("single", moved)
	s.alloc("copy", 8000, user)
	s.alloc("data", 6000, user)
	s.train(3, nil, func(step int) {
		s.alloc("own gradient", 8000, user)
		s.free("own gradient", zero)
	})
	s.alloc("late", 8000, "train.py later < train.py <module>")
	s.want(t, "built copy single half", holders.Weights)
	s.want(t, "late", holders.Unknown)
	s.want(t, "first", holders.Temporaries)
	testkit.Equal(t, "own gradient", s.categories(t)["own gradient"][0], holders.Gradients)
	s.want(t, "data", holders.Unknown)
}

// If more blocks than gradients have a size, any of them may be the weight.
func TestCategoriesOfAmbiguousWeights(t *testing.T) {
	s := newStory()
	s.alloc("copy", 8000, user)
	s.alloc("data", 8000, user)
	s.train(3, nil, func(step int) {
		s.alloc("g", 8000, user)
		s.free("g", zero)
	})
	s.want(t, "copy data", holders.Unknown)
}

// Gradients that zero_grad keeps have the size of a weight.
func TestCategoriesOfKeptGradients(t *testing.T) {
	s := newStory()
	s.alloc("weight", 4000, moved)
	s.alloc("result", 800, linear)
	s.alloc("gradient", 4000, autograd)
	s.alloc("kept", 5000, autograd)
	s.free("result", autograd)
	for range 3 {
		s.alloc("result", 800, linear)
		s.free("result", autograd)
		s.alloc("t", 1, update)
		s.free("t", update)
	}
	s.want(t, "gradient", holders.Gradients)
	s.want(t, "kept", holders.Unknown)
}

// The optimizer calls the passes (a closure, as PyTorch Lightning gives), or is the user's own.
func TestCategoriesOfOptimizers(t *testing.T) {
	closure := " < train.py closure < torch/optim/adam.py step < torch/optim/optimizer.py wrapper < train.py <module>"
	s := newStory()
	s.alloc("weight", 4000, moved)
	for range 3 {
		s.alloc("result", 800, "torch/nn/modules/linear.py forward < torch/nn/modules/module.py _call_impl"+closure)
		s.alloc("loss", 8, "train.py loss"+closure)
		s.alloc("gradient", 4000, autograd)
		s.free("loss", autograd)
		s.free("result", autograd)
		s.alloc("temporary", 4000, update)
		s.free("temporary", update)
		s.free("gradient", "torch/optim/optimizer.py zero_grad"+closure)
	}
	s.want(t, "result loss", holders.Activations)
	s.want(t, "gradient", holders.Gradients)
	s.want(t, "temporary", holders.Temporaries)

	closure = " < train.py step < torch/optim/adam.py step < torch/optim/optimizer.py wrapper < train.py <module>"
	s = newStory()
	s.train(3, nil, func(step int) {
		s.alloc("metric", 8, "train.py measure"+closure)
	})
	s.want(t, "metric", holders.Unknown)

	own := "optimizers.py step < torch/optim/optimizer.py wrapper < train.py <module>"
	s = newStory()
	s.train(3, nil, func(step int) {
		if step == 0 {
			s.alloc("state", 4000, own)
		}
		s.alloc("scratch", 4000, own)
		s.free("scratch", own)
	})
	s.want(t, "state", holders.OptimizerState)
	s.want(t, "scratch", holders.Temporaries)

	s = newStory()
	s.alloc("sum", 4000, "torch/optim/adagrad.py __init__ < train.py <module>")
	s.alloc("average", 4000, "torch/_tensor.py __deepcopy__ < torch/optim/swa_utils.py __init__ < train.py <module>")
	s.alloc("clone", 4000, "torch/nn/parameter.py __deepcopy__ < train.py <module>")
	s.train(3, nil, func(step int) {
		s.alloc("norm", 4, update)
		s.alloc("text", 8, user)
		s.free("norm", user)
		s.free("text", user)
	})
	s.want(t, "sum", holders.OptimizerState)
	s.want(t, "average clone", holders.Weights)
	s.want(t, "norm", holders.Unknown) // the user's code keeps it after the step
}

// A checkpoint repeats the forward pass in autograd's thread, and a hook there may run an optimizer.
func TestCategoriesInTheBackwardPass(t *testing.T) {
	again := "model.py forward < torch/nn/modules/module.py _call_impl < torch/utils/checkpoint.py recompute_fn < " +
		"torch/utils/checkpoint.py unpack_hook"
	hooked := "model.py forward < torch/nn/modules/module.py _call_impl < torch/utils/checkpoint.py unpack_hook"
	hook := "torch/optim/adam.py adam < torch/optim/adam.py step < torch/optim/optimizer.py wrapper < train.py hook"
	s := newStory()
	s.alloc("weight", 4000, moved)
	for step := range 3 {
		s.alloc("input", 800, linear)
		s.alloc("first", 700, autograd)
		s.alloc("repeated", 600, again)
		s.alloc("scratch", 500, again)
		s.free("scratch", again)
		s.alloc("other", 650, hooked)
		s.alloc("gradient", 4000, autograd)
		s.free("other", autograd)
		s.free("repeated", autograd)
		if step == 0 {
			s.alloc("moment", 4000, hook)
		}
		s.alloc("t", 4000, hook)
		s.free("t", hook)
		s.free("gradient", "torch/optim/optimizer.py zero_grad < train.py hook")
		s.free("first", autograd)
		s.free("input", autograd)
	}
	s.want(t, "input repeated other", holders.Activations)
	s.want(t, "first scratch t", holders.Temporaries)
	s.want(t, "gradient", holders.Gradients)
	s.want(t, "moment", holders.OptimizerState)
}

// A workspace is told from other lasting blocks of its size by its line, which runs again and does not allocate it.
func TestCategoriesOfWorkspaces(t *testing.T) {
	const size = 32 << 20
	s := newStory()
	s.train(4, func(step int) {
		if step == 0 {
			s.alloc("mask", size, attend)
			s.alloc("workspace", size, linear)
			s.alloc("lt", 1<<20, linear)
			s.alloc("of the backward pass", size, autograd)
		}
	}, nil)
	s.want(t, "workspace lt", holders.Workspace)
	testkit.Equal(t, "of the backward pass", s.categories(t)["of the backward pass"][0], holders.Workspace)
	s.want(t, "mask", holders.Unknown)

	s = newStory()
	s.alloc("large weight", size, moved)
	s.train(4, func(step int) {
		if step == 0 {
			s.alloc("table", size, linear)
			s.alloc("second table", size, linear)
			s.alloc("workspace or gradient", size, autograd)
		}
	}, nil)
	s.want(t, "table", holders.Unknown)
	testkit.Equal(t, "either", s.categories(t)["workspace or gradient"][0], holders.Unknown)

	compiled := "cab.py call < torch/nn/modules/module.py _call_impl < train.py <module>"
	s = newStory()
	s.train(4, func(step int) {
		if step == 0 {
			s.alloc("workspace", size, compiled)
			s.alloc("lt", 1<<20, compiled)
		}
	}, nil)
	s.want(t, "workspace lt", holders.Workspace)

	native := newStory()
	native.alloc("named", 5<<20, "at.cpp at::cuda::getCurrentCUDABlasHandle() < "+linear)
	native.train(1, nil, nil)
	native.want(t, "named", holders.Workspace)
}

// Results that pile up, and caches that each pass replaces, are neither activations nor temporaries.
func TestCategoriesOfResultsThatStay(t *testing.T) {
	s := newStory()
	kept := 0
	s.train(5, func(step int) {
		s.alloc("kept "+string(rune('a'+kept)), 300, attend)
		kept++
	}, nil)
	all := s.categories(t)
	testkit.Equal(t, "kept", all["kept a"][0], holders.Unknown)

	// What the backward pass makes and the next one frees is no temporary of either.
	s = newStory()
	s.train(3, nil, func(step int) {
		s.alloc("between", 60, autograd)
	})
	testkit.Equal(t, "between two passes", s.categories(t)["between"][0], holders.Unknown)

	s = newStory()
	s.alloc("weight", 4000, moved)
	for range 6 {
		for _, layer := range []string{"cache 0", "cache 1"} {
			s.alloc("scratch", 500, linear)
			s.free("scratch", linear)
			s.alloc(layer, 600, attend)
		}
	}
	s.want(t, "weight", holders.Weights)
	s.want(t, "scratch", holders.Temporaries)
	all = s.categories(t)
	for _, name := range []string{"cache 0", "cache 1"} {
		for _, c := range all[name] {
			testkit.Equal(t, name, c, holders.Unknown)
		}
	}
}

// In a training too, a line that allocates again and again during the life of a long-lived block may keep a cache.
func TestCategoriesOfCachesInTrainings(t *testing.T) {
	s := newStory()
	s.train(2, nil, func(step int) {
		for range 100 {
			s.alloc("scratch", 5, attend)
			s.alloc("more", 6, attend)
			s.free("more", attend)
			s.free("scratch", attend)
		}
		s.alloc("wide", 8, attend)
		for range 5 {
			s.alloc("more", 6, attend)
			s.free("more", attend)
		}
		s.free("wide", attend)
		s.alloc("cache", 7, attend)
		for range 100 {
			s.alloc("more", 6, attend)
			s.free("more", attend)
		}
		s.free("cache", attend)
	})
	s.want(t, "scratch more wide", holders.Temporaries)
	s.want(t, "cache", holders.Unknown)
}

// Without stacks the annotations tell what an optimizer did. Events at the time of a start may have come before it.
func TestCategoriesByAnnotations(t *testing.T) {
	s := newStory()
	const step, zero = "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"
	for n := range 4 {
		for i := range 40 {
			s.alloc("early"+string(rune('A'+i)), 10, "")
		}
		s.alloc("loss", 4, "")
		s.alloc("gradient", 4000, "")
		for i := range 40 {
			s.free("early"+string(rune('A'+i)), "")
		}
		s.annotate(step, trace.StageStart)
		s.alloc("tied", 4, "")
		if n == 0 {
			s.alloc("state", 4000, "")
		}
		s.alloc("temporary", 4000, "")
		s.free("temporary", "")
		s.annotate(step, trace.StageEnd)
		s.annotate(zero, trace.StageStart)
		s.free("loss", "")
		s.free("gradient", "")
		s.annotate(zero, trace.StageEnd)
		s.free("tied", "")
	}
	s.free("state", "")
	s.want(t, "gradient", holders.Gradients)
	s.want(t, "state", holders.OptimizerState)
	s.want(t, "temporary", holders.Temporaries)
	s.want(t, "loss tied", holders.Unknown)
	// The last ones before the first gradient may be of the backward pass.
	s.want(t, "earlyA earlyH", holders.Activations)
	s.want(t, "earlyJ earlyZ", holders.Unknown)
}

// At an out-of-memory error the blocks of the last step are live. They are like those of the steps before, if all of
// these are alike.
func TestCategoriesOfTheLastStep(t *testing.T) {
	s := newStory()
	s.train(2, nil, nil)
	s.alloc("product", 900, linear)
	s.alloc("result", 800, linear)
	s.alloc("new", 100, attend)
	all := s.categories(t)
	testkit.Equal(t, "results", len(all["result"]), 3)
	testkit.Equal(t, "new", all["new"][0], holders.Unknown)
	testkit.Equal(t, "product, which is young", all["product"][2], holders.Unknown)
	for range 3 {
		s.alloc("later", 50, user)
	}
	testkit.Equal(t, "result, which outlived the temporaries", s.categories(t)["result"][2], holders.Activations)
}

// Programs that are not PyTorch's have no phases: nothing is known.
func TestCategoriesOfOtherPrograms(t *testing.T) {
	for _, stack := range []string{"", "main.go main.load < main.go main.main"} {
		s := newStory()
		for range 4 {
			s.alloc("block", 100, stack)
			s.alloc("short", 200, stack)
			s.free("short", stack)
		}
		s.want(t, "block short", holders.Unknown)
	}
}

// A stack that the table lacks is like none.
func TestCategoriesOfMissingStacks(t *testing.T) {
	s := newStory()
	s.train(2, nil, nil)
	for i := range s.trace.Events {
		s.trace.Events[i].Stack += 100
	}
	s.want(t, "weight gradient moment result root", holders.Unknown)
}
