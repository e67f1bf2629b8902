package holders

import (
	"slices"
	"strings"
)

// packageDirs are the directories of installed packages: of Python, and of Go modules.
var packageDirs = []string{"site-packages", "dist-packages", "pkg/mod"}

// kindOf returns the kind of a frame, given by its function and its file with slashes.
func kindOf(name, file string) frameKind {
	switch {
	case strings.HasSuffix(file, ".go"):
		return kindOfGo(name, file)
	case strings.HasSuffix(file, ".py"), strings.HasPrefix(file, "<"):
		return kindOfPython(file)
	case name == "" || name == "??":
		return frameUnnamed
	}
	return kindOfNative(name)
}

// torchDirs are directories and files of PyTorch's Python package. They tell it from a directory of the user that has
// the name torch.
var torchDirs = []string{
	"nn", "optim", "autograd", "utils", "cuda", "distributed", "amp", "fx", "functional.py", "_tensor.py", "_ops.py",
	"_dynamo", "_inductor", "_functorch", "_higher_order_ops", "_compile.py", "_jit_internal.py", "library.py",
	"_library", "_refs", "_prims", "_prims_common", "_decomp", "_subclasses", "ao", "jit", "profiler", "overrides.py",
	"sparse", "linalg", "export", "storage.py", "serialization.py", "random.py", "_utils.py", "multiprocessing",
}

func kindOfPython(file string) frameKind {
	if installed, rest := inPackages(file); installed {
		switch first, _, _ := strings.Cut(rest, "/"); first {
		case "torch", "functorch", "torchgen", "ashlar":
			return frameTorch
		}
		return frameLibrary
	}
	switch {
	case file == "<stdin>", strings.HasPrefix(file, "<ipython-input-"), notebook(file):
		return frameUser
	case strings.HasPrefix(file, "<"): // <frozen runpy>, <string>, <eval_with_key>.7
		return frameTorch
	case standardLibrary(file) > 0, strings.Contains(file, "/torchinductor_"), torchCheckout(file):
		return frameTorch
	case strings.Contains("/"+file, "/python/ashlar/"): // a checkout of Ashlar
		return frameTorch
	}
	return frameUser
}

// torchCheckout reports whether a file is of PyTorch's Python package outside of a directory of packages.
func torchCheckout(file string) bool {
	_, rest, ok := cutLast(file, "torch")
	first, _, _ := strings.Cut(rest, "/")
	return ok && slices.Contains(torchDirs, first)
}

// inPackages reports whether a file is in a directory of packages, and returns the path within.
func inPackages(file string) (in bool, rest string) {
	for _, dir := range packageDirs {
		if _, rest, ok := cutLast(file, dir); ok {
			return true, rest
		}
	}
	return false, file
}

// standardLibrary returns the length of the directory of Python's standard library that a file is in, such as
// /usr/lib/python3.12/ and C:/Python312/Lib/, or 0.
func standardLibrary(file string) int {
	if before, after, ok := cutLast(file, "Lib"); ok && len(before) > 1 && before[1] == ':' {
		return len(file) - len(after)
	}
	const python = "lib/python3."
	i := strings.Index("/"+file, "/"+python)
	if i < 0 {
		return 0
	}
	version := strings.TrimLeft(file[i+len(python):], "0123456789")
	if len(version) == len(file)-i-len(python) || !strings.HasPrefix(strings.TrimPrefix(version, "t"), "/") {
		return 0
	}
	return len(file) - len(version) + strings.Index(version, "/") + 1
}

// ashlarPackages is the path of Ashlar's packages.
const ashlarPackages = "github.com/ashlar-go/ashlar/"

func kindOfGo(name, file string) frameKind {
	if rest, ok := strings.CutPrefix(name, ashlarPackages); ok {
		if strings.HasPrefix(rest, "examples/") || strings.Contains(rest, "_test.") {
			return frameUser
		}
		return frameTorch
	}
	switch {
	case strings.HasPrefix(name, "runtime."), strings.Contains(file, "/go/src/"), strings.Contains(file, "/libexec/src/"):
		return frameTorch
	}
	if installed, _ := inPackages(file); installed {
		return frameLibrary
	}
	return frameUser
}

// The beginnings of names of functions of PyTorch, C++, Python and the system.
var nativePrefixes = []string{
	"torch::", "c10::", "at::", "caffe2::", "std::", "void ", "c10d::", "THP", "_Py", "Py", "py", "cu", "__", "_start",
	"start_thread", "clone", "execute_native_thread_routine", "method_", "cfunction_", "slot_", "object_", "type_call",
	"vectorcall", "run_", "_run", "main",
}

func kindOfNative(name string) frameKind {
	if strings.Contains(name, "Backward") && strings.Contains(name, "::apply") {
		return frameNative
	}
	for _, prefix := range nativePrefixes {
		if strings.HasPrefix(name, prefix) {
			return frameSystem
		}
	}
	return frameNative
}
