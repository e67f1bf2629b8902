package cuda

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources returns a source and the headers that it includes, directly or not, in the order of their names.
func sources(t *testing.T, name string) []string {
	t.Helper()
	all := []string{name}
	for i := 0; i < len(all); i++ {
		text := read(t, filepath.Join("kernels", all[i]))
		for _, m := range regexp.MustCompile(`(?m)^#include "(.*)"$`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(all, m[1]) {
				all = append(all, m[1])
			}
		}
	}
	slices.Sort(all)
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each module names the sources that it was compiled from, and they equal the present ones.
func TestPTXIsUpToDate(t *testing.T) {
	cu, err := filepath.Glob("kernels/*.cu")
	if err != nil || len(cu) == 0 {
		t.Fatalf("%d sources, %v", len(cu), err)
	}
	made := map[string]bool{}
	for _, path := range cu {
		name := filepath.Base(path)
		hash := sha256.New()
		for _, part := range sources(t, name) {
			hash.Write([]byte(read(t, filepath.Join("kernels", part))))
		}
		base := strings.TrimSuffix(name, ".cu")
		modules := []string{base}
		if m := regexp.MustCompile(`(?m)^// types: (.*)$`).FindStringSubmatch(read(t, path)); m != nil {
			modules = nil
			for _, typ := range strings.Fields(m[1]) {
				modules = append(modules, base+"_"+typ)
			}
		}
		for _, module := range modules {
			made[module+".ptx.gz"] = true
			first, _, _ := strings.Cut(string(readPTX(module)), "\n")
			if want := fmt.Sprintf("// source: sha256 %x", hash.Sum(nil)); first != want {
				t.Errorf("%s begins with %q, want %q: run go generate ./compute/cuda", module, first, want)
			}
		}
	}
	embedded, err := fs.Glob(code, "kernels/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range embedded {
		if !made[filepath.Base(path)] {
			t.Errorf("%s is made of no source: remove it", path)
		}
	}
}

// entries are the kernels of a module, and the sizes of their parameters.
func entries(t *testing.T, ptx string) map[string][]uintptr {
	t.Helper()
	found := map[string][]uintptr{}
	for _, m := range regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)`).FindAllStringSubmatch(ptx, -1) {
		found[m[1]] = nil
		for _, param := range regexp.MustCompile(`\.b8 \w+\[(\d+)\]`).FindAllStringSubmatch(m[2], -1) {
			size, err := strconv.Atoi(param[1])
			if err != nil {
				t.Fatal(err)
			}
			found[m[1]] = append(found[m[1]], uintptr(size))
		}
		if n := strings.Count(m[2], ".param"); n != len(found[m[1]]) {
			t.Errorf("kernel %s has %d parameters, of which %d are structures", m[1], n, len(found[m[1]]))
		}
	}
	return found
}

// Every kernel that Go can launch is in its module and takes one structure of the size that Go passes. Modules have no
// other kernels.
func TestFamiliesAreInThePTX(t *testing.T) {
	modules := map[string]map[string][]uintptr{}
	asked := map[string]bool{}
	for _, f := range families {
		kernels := 0
		for i := range f.count {
			module, kernel := f.name(i)
			if kernel == "" {
				continue
			}
			kernels++
			if modules[module] == nil {
				modules[module] = entries(t, string(readPTX(module)))
			}
			sizes, ok := modules[module][kernel]
			if !ok {
				t.Errorf("%s has no kernel %s", module, kernel)
			} else if len(sizes) != 1 || sizes[0] != f.params {
				t.Errorf("kernel %s of %s takes structures of %v bytes, Go passes one of %d", kernel, module, sizes, f.params)
			}
			asked[kernel] = true
		}
		if kernels == 0 {
			t.Errorf("the family from number %d has no kernel", f.base)
		}
	}
	for module, kernels := range modules {
		for kernel := range kernels {
			if !asked[kernel] {
				t.Errorf("kernel %s of %s is unused", kernel, module)
			}
		}
	}
}

// Drivers load PTX of their own version and older; 7.8 is CUDA 11.8's.
func TestPTXRunsOnOldDrivers(t *testing.T) {
	paths, err := fs.Glob(code, "kernels/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		ptx := string(readPTX(strings.TrimSuffix(filepath.Base(path), ".ptx.gz")))
		var major, minor int
		if _, err := fmt.Sscanf(ptx[strings.Index(ptx, ".version"):], ".version %d.%d", &major, &minor); err != nil || 100*major+minor > 708 {
			t.Errorf("%s has version %d.%d, want at most 7.8 (%v)", path, major, minor, err)
		}
		if !strings.Contains(ptx, ".target sm_70\n") {
			t.Errorf("%s is not for compute capability 7.0", path)
		}
	}
}
