package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// An attempt is one run of the compiler.
type attempt struct {
	Command string `json:"command"`
	Output  string `json:"output"`
	OK      bool   `json:"ok"`
}

// torchPlaces are where PyTorch's and CUDA's headers and libraries are, as the Python worker found them.
type torchPlaces struct {
	includes []string // of PyTorch, then of CUDA
	lib      string   // the directory of libc10_cuda.so
	runtime  string   // the file of libcudart that PyTorch itself loads
	abi      string   // _GLIBCXX_USE_CXX11_ABI: "0" or "1"
}

func places(machine map[string]string) torchPlaces {
	return torchPlaces{
		includes: filepath.SplitList(machine["python: includes"]),
		lib:      machine["python: lib"],
		runtime:  machine["python: cudart"],
		abi:      machine["python: abi"],
	}
}

const withoutTorch = "-DWITHOUT_TORCH"

// build compiles the native worker into dir: as C++20, as C++17 and, if PyTorch's headers are in the way, without
// PyTorch, so that the CUDA runtime is measured all the same. It returns the program, or "" if all attempts failed.
func build(ctx context.Context, o options, t torchPlaces, dir string) (binary string, attempts []attempt) {
	variants := [][]string{{"-std=c++20"}, {"-std=c++17"}, {"-std=c++17", withoutTorch}}
	return compile(ctx, o, t, filepath.Join(dir, "native"), variants)
}

// buildLibrary compiles the same as a library, which the drop-in's worker loads into Python: without PyTorch it would
// have no use.
func buildLibrary(ctx context.Context, o options, t torchPlaces, dir string) (library string, attempts []attempt) {
	variants := [][]string{{"-std=c++20", "-shared", "-fPIC"}, {"-std=c++17", "-shared", "-fPIC"}}
	return compile(ctx, o, t, filepath.Join(dir, "native.so"), variants)
}

// compile tries the variants until one compiles.
func compile(
	ctx context.Context, o options, t torchPlaces, binary string, variants [][]string,
) (made string, attempts []attempt) {
	for _, variant := range variants {
		argv := t.command(o.cxx, variant, filepath.Join(o.dir, "native", "native.cpp"), binary)
		output, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		a := attempt{Command: strings.Join(argv, " "), Output: string(output), OK: err == nil}
		if err != nil {
			a.Output += err.Error()
		}
		attempts = append(attempts, a)
		if a.OK {
			return binary, attempts
		}
	}
	return "", attempts
}

func (t torchPlaces) command(cxx string, variant []string, source, binary string) []string {
	argv := append([]string{cxx, "-O2", "-pthread", "-D_GLIBCXX_USE_CXX11_ABI=" + t.abi}, variant...)
	for _, dir := range t.includes {
		argv = append(argv, "-isystem", dir)
	}
	argv = append(argv, source, "-o", binary)
	if !slices.Contains(variant, withoutTorch) {
		// What the libraries themselves lack, they find by their own paths when the program starts.
		argv = append(argv, "-L"+t.lib, "-Wl,-rpath,"+t.lib, "-lc10_cuda", "-lc10",
			"-Wl,--unresolved-symbols=ignore-in-shared-libs")
	}
	return append(argv, t.runtime, "-Wl,-rpath,"+filepath.Dir(t.runtime), "-ldl")
}
