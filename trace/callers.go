package trace

import (
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/callsite"
)

// ownDepth is the number of frames of Ashlar that are expected between an event and the program that caused it. They
// are kept in addition to RecorderOptions.Depth. If there are more, fewer frames of the program are kept.
const ownDepth = 24

// A callerTable holds each distinct call stack once, as program counters. Entries never change.
type callerTable struct {
	pcs    []uintptr // of all stacks, one after the other
	stacks []callStack
	index  []StackID // by hash, with linear probing, at most half full; a power of two, or none

	requests map[StackID]bool // cache of isRequest
}

type callStack struct {
	start, n uint32 // in pcs
	hash     uint32
}

// of returns the number of a stack, from 1. Equal program counters have the same number. It allocates only for new
// stacks. It returns 0 for an empty stack, and for a new stack if the table is full.
func (t *callerTable) of(pcs []uintptr) StackID {
	if len(pcs) == 0 {
		return 0
	}
	h := uint64(len(pcs))
	for _, pc := range pcs {
		h = (h ^ uint64(pc)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	hash := uint32(h)
	i := 0
	if len(t.index) > 0 {
		for i = t.slot(hash); t.index[i] != 0; i = t.after(i) {
			if s := &t.stacks[t.index[i]-1]; s.hash == hash && slices.Equal(t.at(t.index[i]), pcs) {
				return t.index[i]
			}
		}
	}
	if len(t.pcs)+len(pcs) > math.MaxUint32 || len(t.stacks)+1 >= math.MaxInt32 {
		return 0
	}
	t.stacks = append(t.stacks, callStack{uint32(len(t.pcs)), uint32(len(pcs)), hash})
	t.pcs = append(t.pcs, pcs...)
	id := StackID(len(t.stacks))
	if 2*len(t.stacks) <= len(t.index) {
		t.index[i] = id
		return id
	}
	t.index = make([]StackID, max(256, 2*len(t.index)))
	for n := range t.stacks {
		i := t.slot(t.stacks[n].hash)
		for t.index[i] != 0 {
			i = t.after(i)
		}
		t.index[i] = StackID(n + 1)
	}
	return id
}

func (t *callerTable) slot(hash uint32) int { return int(hash) & (len(t.index) - 1) }
func (t *callerTable) after(i int) int      { return (i + 1) & (len(t.index) - 1) }

func (t *callerTable) at(id StackID) []uintptr {
	s := &t.stacks[id-1]
	return t.pcs[s.start : s.start+s.n]
}

// isRequest reports whether a stack contains a call of an allocator's Alloc. It looks up the functions of each stack
// once.
func (t *callerTable) isRequest(id StackID) bool {
	is, known := t.requests[id]
	if known || id == 0 {
		return is
	}
	frames := runtime.CallersFrames(t.at(id))
	for more := true; more && !is; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function != "" && !isAllocators(f.Function) {
			break
		}
		is = strings.Contains(f.Function, ").Alloc")
	}
	if t.requests == nil {
		t.requests = map[StackID]bool{}
	}
	t.requests[id] = is
	return is
}

// A resolver looks up the functions, files and lines of the requested stacks and numbers these anew.
type resolver struct {
	callers callerTable
	depth   int
	stacks  StackSet
	known   map[StackID]StackID
}

func newResolver(callers callerTable, depth int) *resolver {
	return &resolver{callers: callers, depth: depth, known: map[StackID]StackID{}}
}

// of returns the new number of a stack of the table.
func (x *resolver) of(id StackID) StackID {
	if id == 0 {
		return 0
	}
	resolved, ok := x.known[id]
	if !ok {
		resolved = x.stacks.Add(x.frames(id))
		x.known[id] = resolved
	}
	return resolved
}

// frames looks up the frames of a stack of the table, from the program's call of Ashlar on, or all frames if there is
// no such call.
func (x *resolver) frames(id StackID) []Frame {
	var all []Frame
	own := 0 // frames of Ashlar before the first other frame
	frames := runtime.CallersFrames(x.callers.at(id))
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.Function == "" && f.File == "" {
			continue
		}
		if own == len(all) && callsite.Own(f.Function, f.File) {
			own++
		}
		all = append(all, Frame{Name: f.Function, Filename: f.File, Line: int64(f.Line)})
	}
	if own < len(all) {
		all = all[own:]
	}
	return all[:min(len(all), x.depth)]
}

// allocatorsElsewhere are the allocators of this module that are neither below mem nor in this package. A rename there
// must be repeated here.
var allocatorsElsewhere = []string{
	"engine.(*sessionAllocator).", "engine.(*allocation).", "engine.(*cache", "engine.(*observedCaches).",
	"engine.(*describedCaches).", "tensor.reclaimingAllocator.", "snapshot.(*Reporter).",
}

// isAllocators reports whether a function, given by its name in package runtime, is part of this package or of an
// allocator.
func isAllocators(function string) bool {
	inModule, ok := strings.CutPrefix(function, "github.com/ashlar-go/ashlar")
	if !ok {
		return false
	}
	for _, method := range allocatorsElsewhere {
		if strings.HasPrefix(strings.TrimPrefix(inModule, "/"), method) {
			return true
		}
	}
	slash := strings.LastIndexByte(inModule, '/') + 1
	name, _, _ := strings.Cut(inModule[slash:], ".")
	within := inModule[:slash] + name
	if strings.HasSuffix(within, "_test") {
		return false
	}
	return within == "/trace" || within == "/mem" || strings.HasPrefix(within, "/mem/")
}
