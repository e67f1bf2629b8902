package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBuildTellsWhatItRan: without a compiler there are three attempts, each with its whole command and what came of it.
func TestBuildTellsWhatItRan(t *testing.T) {
	includes := strings.Join([]string{"/torch/include", "/cuda/include"}, string(filepath.ListSeparator))
	where := places(map[string]string{
		"python: includes": includes, "python: lib": "/torch/lib", "python: cudart": "/cuda/lib/libcudart.so.13", "python: abi": "1",
	})
	binary, attempts := build(t.Context(), options{dir: "bench", cxx: "no-such-compiler"}, where, t.TempDir())
	if binary != "" || len(attempts) != 3 {
		t.Fatalf("%q after %d attempts, want none after 3", binary, len(attempts))
	}
	for i, a := range attempts {
		if a.OK || !strings.Contains(a.Output, "no-such-compiler") {
			t.Errorf("attempt %d: %+v", i, a)
		}
		for _, word := range []string{
			"no-such-compiler", "-D_GLIBCXX_USE_CXX11_ABI=1", "-isystem /torch/include -isystem /cuda/include",
			filepath.Join("bench", "native", "native.cpp"), "/cuda/lib/libcudart.so.13",
		} {
			if !strings.Contains(a.Command, word) {
				t.Errorf("attempt %d: %s: lacks %s", i, a.Command, word)
			}
		}
		if withTorch := i < 2; strings.Contains(a.Command, "-lc10_cuda") != withTorch || strings.Contains(a.Command, "-DWITHOUT_TORCH") == withTorch {
			t.Errorf("attempt %d: %s", i, a.Command)
		}
	}
}

// TestBuildLibraryNeedsPyTorch: the library for the drop-in's worker is shared code, and is not tried without PyTorch.
func TestBuildLibraryNeedsPyTorch(t *testing.T) {
	library, attempts := buildLibrary(t.Context(), options{dir: "bench", cxx: "no-such-compiler"}, torchPlaces{}, t.TempDir())
	if library != "" || len(attempts) != 2 {
		t.Fatalf("%q after %d attempts, want none after 2", library, len(attempts))
	}
	for i, a := range attempts {
		for _, word := range []string{"-shared -fPIC", "-lc10_cuda", "native.so"} {
			if !strings.Contains(a.Command, word) {
				t.Errorf("attempt %d: %s: lacks %s", i, a.Command, word)
			}
		}
	}
}
