package holders

import (
	"strings"

	"github.com/ashlar-go/ashlar/trace"
)

// A phase is the part of a training loop that a stack belongs to.
type phase uint8

const (
	phaseOther     phase = iota // the user's code outside of modules, or not known
	phaseSetup                  // a module is built, moved or loaded
	phaseForward                // a module is called
	phaseRecompute              // a checkpoint repeats a forward pass in the backward pass
	phaseBackward               // autograd
	phaseStep                   // an optimizer's step
	phaseState                  // an optimizer is built or loaded
	phaseZero                   // zero_grad
)

// A role says what a frame tells about the phase of its stack.
type role uint8

const (
	roleNone role = iota
	roleUser
	roleUserStep // a function of the user with the name "step"
	roleSetup
	roleConvert // the part of it that replaces the parameters of a module
	roleForward
	roleRecompute
	roleBackward
	roleApply    // of an autograd function: the backward pass, if it is the outermost frame
	roleEngine   // native code of the backward pass
	roleStep     // of an optimizer of PyTorch
	roleStepHook // around the step of every optimizer
	roleState
	roleZero
	roleCuBLAS // native code that gets the workspace of cuBLAS
)

// setupNames are functions that build modules in libraries.
var setupNames = map[string]bool{
	"from_pretrained": true, "load_state_dict": true, "_load_pretrained_model": true, "load_model": true,
	"_load_state_dict_into_model": true, "_load_state_dict_into_meta_model": true, "load_file": true,
}

// roleOf returns the role of a frame with a kind.
func roleOf(kind frameKind, f trace.Frame) role {
	file := slashed(f.Filename)
	switch kind {
	case frameUser, frameLibrary:
		switch {
		case setupNames[f.Name] && kind == frameLibrary:
			return roleSetup
		case f.Name == "step":
			return roleUserStep
		}
		return roleUser
	case frameTorch:
		if _, rest, ok := cutLast(file, "torch"); ok {
			return torchRole(rest, f.Name)
		}
		return roleNone
	}
	switch name := f.Name; {
	case strings.Contains(name, "CUDABlas"):
		return roleCuBLAS
	case strings.Contains(name, "autograd::Engine::thread_main"),
		strings.Contains(name, "autograd::Engine::evaluate_function"),
		strings.Contains(name, "PythonEngine::thread_init"):
		return roleEngine
	}
	return roleNone
}

// torchRole is roleOf for a function in a file of PyTorch's Python package.
func torchRole(file, name string) role {
	switch {
	case name == "zero_grad":
		return roleZero
	case strings.HasPrefix(file, "optim/"):
		return optimRole(strings.TrimPrefix(file, "optim/"), name)
	case file == "nn/modules/module.py":
		switch name {
		case "_call_impl":
			return roleForward
		case "_apply":
			return roleConvert
		case "to", "cuda", "half", "float", "double", "bfloat16", "to_empty", "load_state_dict", "__init__":
			return roleSetup
		}
	case file == "nn/parameter.py", file == "nn/init.py":
		return roleSetup
	case strings.HasPrefix(file, "nn/modules/"):
		switch name {
		case "flatten_parameters":
			return roleConvert
		case "__init__", "reset_parameters", "_reset_parameters":
			return roleSetup
		}
	case file == "nn/functional.py":
		return roleForward
	case file == "utils/checkpoint.py":
		switch name {
		case "unpack_hook", "recompute_fn", "backward":
			return roleRecompute
		}
	case file == "autograd/graph.py" && name == "_engine_run_backward", file == "_tensor.py" && name == "backward",
		file == "autograd/__init__.py" && (name == "backward" || name == "grad" || name == "_make_grads"):
		return roleBackward
	case file == "autograd/function.py" && name == "apply":
		return roleApply
	}
	return roleNone
}

// optimRole is torchRole for a file in the directory of the optimizers.
func optimRole(file, name string) role {
	built := name == "__init__" || name == "add_param_group" || name == "load_state_dict"
	switch file {
	case "swa_utils.py": // averages of models
		if name == "__init__" {
			return roleSetup
		}
		return roleNone
	case "lr_scheduler.py", "__init__.py":
		return roleNone
	case "optimizer.py":
		switch {
		case built:
			return roleState
		case name == "wrapper":
			return roleStepHook
		}
		return roleNone
	}
	if built {
		return roleState
	}
	return roleStep
}

// stackPhases has the phase of each stack, by trace.StackID.
type stackPhases struct {
	stacks  *trace.Stacks
	roles   []role // of each frame
	phases  []phase
	inside  []bool // it ran in autograd's thread
	cublas  []bool // it got a workspace of cuBLAS
	convert []bool // it replaced the parameters of a module
	python  bool   // there are stacks of Python: autograd's thread has no other frames
	entered map[frameKey]bool
}

// A frameKey identifies a function.
type frameKey struct{ name, file string }

func newStackPhases(x *Frames) *stackPhases {
	s := &stackPhases{stacks: x.stacks, entered: map[frameKey]bool{}}
	if x.stacks == nil {
		s.resize(1)
		return s
	}
	s.roles = make([]role, len(x.stacks.Frames))
	for i, f := range x.stacks.Frames {
		s.roles[i] = roleOf(x.kinds[i], f)
		if x.kinds[i] == frameTorch && strings.HasSuffix(f.Filename, ".py") {
			s.python = true
		}
	}
	n := x.stacks.Len() + 1
	s.resize(n)
	for id := 1; id < n; id++ {
		s.phases[id] = s.phaseOf(x.stacks.At(trace.StackID(id)))
		if root, ok := s.root(id); ok && (s.phases[id] == phaseSetup || s.phases[id] == phaseForward) {
			s.entered[root] = true
		}
	}
	for id := 1; id < n; id++ {
		for _, f := range x.stacks.At(trace.StackID(id)) {
			s.cublas[id] = s.cublas[id] || s.roles[f] == roleCuBLAS
			s.convert[id] = s.convert[id] || s.roles[f] == roleConvert
		}
		s.inside[id] = s.runsInside(id)
	}
	return s
}

func (s *stackPhases) resize(n int) {
	s.phases = make([]phase, n)
	s.inside, s.cublas, s.convert = make([]bool, n), make([]bool, n), make([]bool, n)
}

// phaseOf returns the phase of a stack: that of its innermost frame that tells one.
func (s *stackPhases) phaseOf(stack []uint32) phase {
	result := phaseOther
	user, userStep, closure := false, false, false
	for i, n := range stack {
		switch r := s.roles[n]; r {
		case roleUser, roleUserStep:
			user, userStep = true, r == roleUserStep
		case roleRecompute:
			return phaseRecompute
		case roleBackward, roleEngine:
			if result == phaseOther {
				return phaseBackward
			}
		case roleApply:
			if i == len(stack)-1 {
				return phaseBackward
			}
		case roleForward:
			if result == phaseOther && !closure {
				result = phaseForward
			}
		case roleStep:
			if result == phaseOther && !closure && !user {
				return phaseStep
			}
			closure = true // the optimizer called the user's code, which runs the passes
		case roleStepHook:
			if result == phaseOther && !closure && userStep {
				return phaseStep
			}
		case roleSetup, roleConvert, roleState, roleZero:
			if result == phaseOther && !closure {
				return map[role]phase{
					roleSetup: phaseSetup, roleConvert: phaseSetup, roleState: phaseState, roleZero: phaseZero,
				}[r]
			}
		}
	}
	return result
}

// root returns the outermost function of a stack. A native one tells nothing: all threads have the same.
func (s *stackPhases) root(id int) (frameKey, bool) {
	stack := s.stacks.At(trace.StackID(id))
	if len(stack) == 0 {
		return frameKey{}, false
	}
	f := s.stacks.Frames[stack[len(stack)-1]]
	return frameKey{f.Name, f.Filename}, strings.HasSuffix(f.Filename, ".py") || strings.HasPrefix(f.Filename, "<")
}

// runsInside reports whether a stack is of autograd's thread: the outermost function is not one from which modules are
// called.
func (s *stackPhases) runsInside(id int) bool {
	for _, n := range s.stacks.At(trace.StackID(id)) {
		if s.roles[n] == roleEngine {
			return true
		}
	}
	root, python := s.root(id)
	if !python || len(s.entered) == 0 || root.name == "<module>" || strings.HasPrefix(root.name, "_bootstrap") {
		return false
	}
	return !s.entered[root]
}

// of returns the phase of a stack and whether it is of autograd's thread. An empty stack that was recorded is.
func (s *stackPhases) of(id trace.StackID, recorded bool) (p phase, inside bool) {
	switch {
	case id == 0 && recorded && s.python:
		return phaseBackward, true
	case int(id) >= len(s.phases):
		return phaseOther, false
	}
	return s.phases[id], s.inside[id]
}
