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

// label returns the label of a block that the last of some stacks allocated, each innermost first.
func label(t *testing.T, fold holders.Folding, stacks ...[]trace.Frame) string {
	t.Helper()
	var set trace.StackSet
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}}
	for i, frames := range stacks {
		tr.Events = append(tr.Events, trace.Event{
			Action: mem.ActionAlloc, Ptr: driver.Pointer(0x1000 * (i + 1)), Size: 1, Stack: set.Add(frames),
		})
	}
	tr.Stacks = set.Table()
	h := history(t, &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Stacks: tr.Stacks})
	h.Frames.Fold(fold)
	last := h.Block(h.NumBlocks() - 1)
	return h.Label(holders.ByLine, &last)
}

func frame(file string, line int64, name string) trace.Frame {
	return trace.Frame{Filename: file, Line: line, Name: name}
}

func TestFolding(t *testing.T) {
	user := frame("/home/u/train.py", 5, "main")
	for _, c := range []struct {
		name   string
		frames []trace.Frame
		fold   holders.Folding
		want   string
	}{
		{"PyTorch is folded", []trace.Frame{
			frame("/opt/conda/lib/python3.12/site-packages/torch/nn/functional.py", 7, "f"), user,
		}, holders.FoldLibraries, "train.py:5 main"},
		{
			"a checkout of PyTorch",
			[]trace.Frame{frame("/home/u/pytorch/torch/nn/modules/linear.py", 7, "f"), user},
			holders.FoldLibraries, "train.py:5 main",
		},
		{
			"a user's directory named torch",
			[]trace.Frame{frame("/home/u/torch/model.py", 7, "f"), user},
			holders.FoldLibraries, "torch/model.py:7 f",
		},
		{
			"the standard library",
			[]trace.Frame{frame("/usr/lib/python3.12/contextlib.py", 81, "inner"), user},
			holders.FoldLibraries, "train.py:5 main",
		},
		{"the standard library on Windows", []trace.Frame{
			frame(`C:\Python312\Lib\contextlib.py`, 81, "inner"), frame(`C:\Users\u\train.py`, 5, "main"),
		}, holders.FoldLibraries, "train.py:5 main"},
		{"a user's directory like the standard library's", []trace.Frame{
			frame("/home/u/lib/python3_tools/model.py", 7, "f"), user,
		}, holders.FoldLibraries, "lib/python3_tools/model.py:7 f"},
		{"frozen modules and generated code", []trace.Frame{
			frame("<frozen runpy>", 88, "_run_code"), frame("<eval_with_key>.3", 1, "forward"),
			frame("/tmp/torchinductor_u/ab/cab.py", 9, "call"), user,
		}, holders.FoldLibraries, "train.py:5 main"},
		{"native frames", []trace.Frame{
			frame("??", 0, "at::empty_cuda"), frame("/src/attention.cpp", 12, "my::forward"), user,
		}, holders.FoldLibraries, "train.py:5 main"},
		{
			"Ashlar in Python",
			[]trace.Frame{frame("/v/lib/python3.12/site-packages/ashlar/cuda.py", 9, "alloc"), user},
			holders.FoldTorch, "train.py:5 main",
		},
		{"a framework calls the model", []trace.Frame{
			frame("/v/lib/python3.12/site-packages/torch/nn/functional.py", 7, "linear"),
			frame("/v/lib/python3.12/site-packages/transformers/modeling.py", 8, "forward"), user,
		}, holders.FoldTorch, "transformers/modeling.py:8 forward"},
		{"the same, folded", []trace.Frame{
			frame("/v/lib/python3.12/site-packages/torch/nn/functional.py", 7, "linear"),
			frame("/v/lib/python3.12/site-packages/transformers/modeling.py", 8, "forward"), user,
		}, holders.FoldLibraries, "train.py:5 main"},
		{"no frame of the user: the library", []trace.Frame{
			frame("/v/lib/python3.12/site-packages/torch/nn/functional.py", 7, "linear"),
			frame("/v/lib/python3.12/site-packages/vllm/model.py", 8, "run"), frame("/v/bin/vllm", 8, "<module>"),
		}, holders.FoldLibraries, "vllm/model.py:8 run"},
		{
			"only PyTorch",
			[]trace.Frame{frame("/v/lib/python3.12/site-packages/torch/distributed/c.py", 7, "f")},
			holders.FoldLibraries, "torch/distributed/c.py:7 f",
		},
		{"only native frames: the operation of the backward pass", []trace.Frame{
			frame("??", 0, "c10::cuda::malloc"), frame("??", 0, "torch::autograd::generated::MmBackward0::apply"),
			frame("??", 0, "torch::autograd::Engine::thread_main"), frame("??", 0, "start_thread"),
		}, holders.FoldLibraries, "torch::autograd::generated::MmBackward0::apply"},
		{
			"a notebook",
			[]trace.Frame{frame("/tmp/ipykernel_77/123.py", 2, "<module>")},
			holders.FoldLibraries,
			"notebook/123.py:2 <module>",
		},
		{"a program in Go", []trace.Frame{
			frame("/r/mem/caching/alloc.go", 9, "github.com/ashlar-go/ashlar/mem/caching.(*Allocator).Alloc"),
			frame("/u/pkg/mod/example.com/lib@v1.0.0/l.go", 9, "example.com/lib.Do"),
			frame("/u/app/net/layer.go", 4, "example.com/app/net.(*Layer).Run"),
			frame("/usr/local/go/src/runtime/proc.go", 283, "runtime.main"),
		}, holders.FoldLibraries, "layer.go:4 net.(*Layer).Run"},
		{
			"nothing folded",
			[]trace.Frame{frame("/v/site-packages/torch/a.py", 7, "f"), user},
			holders.FoldNone,
			"torch/a.py:7 f",
		},
		{"no stack", nil, holders.FoldLibraries, "(no stack)"},
	} {
		// The first stack makes /home/u, or C:\Users\u, the directory of the user's files.
		got := label(t, c.fold, []trace.Frame{user}, c.frames)
		if c.frames != nil && c.frames[0].Filename[0] == 'C' || c.name == "a program in Go" {
			got = label(t, c.fold, c.frames)
		}
		testkit.Equal(t, c.name, got, c.want)
	}
}

// Files are relative to the directory that contains all of the user's, so that files of one name differ.
func TestFilesInSeveralDirectories(t *testing.T) {
	got := label(t, holders.FoldLibraries,
		[]trace.Frame{frame("/home/u/run/main.py", 1, "main")},
		[]trace.Frame{frame("/home/u/run/vision/unet.py", 1, "f")},
		[]trace.Frame{frame("/home/u/run/text/unet.py", 80, "forward"), frame("/home/u/run/main.py", 1, "main")})
	testkit.Equal(t, "label", got, "text/unet.py:80 forward")
}

// Python knows no line for code that it compiled without one; PyTorch then writes -1.
func TestALineThatPythonDoesNotKnow(t *testing.T) {
	for _, line := range []int64{-1, 0} {
		got := label(t, holders.FoldLibraries, []trace.Frame{frame("/home/u/train.py", line, "forward")})
		testkit.Equal(t, "label", got, "train.py forward")
	}
}

// Stacks share their frames, so a file of a megabyte can have labels of gigabytes. Names and stacks in labels are cut.
func TestLabelsOfEndlessStacks(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	stacks := &trace.Stacks{Frames: []trace.Frame{frame("/u/"+long+".py", 1, long)}}
	tr := &trace.Trace{Streams: []uint64{0}, Metadata: []string{""}, Stacks: stacks, Events: []trace.Event{
		{Action: mem.ActionAlloc, Ptr: 1, Size: 1, Stack: stacks.Add(make([]uint32, 10_000))},
	}}
	v := at(t, history(t, &snapshot.Snapshot{Traces: []*trace.Trace{tr}, Stacks: stacks}), "end")
	for key, most := range map[holders.Key]int{
		holders.ByLine: 1000, holders.ByFunction: 1000, holders.ByModule: 500, holders.ByStack: 64_000,
	} {
		if label := v.By(key)[0].Label; len(label) > most || !strings.Contains(label, "...") {
			t.Errorf("by %s: a label of %d bytes", key, len(label))
		}
	}
}
