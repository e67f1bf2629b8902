package npy

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// The arrays that testdata/make.py and TestWriteForPython write into their files; the name of a file's only array is
// empty.
type expected struct {
	Files   map[string]map[string]array `json:"files"`
	Refused []string                    `json:"refused"`
}

type array struct {
	Type  string `json:"dtype"`
	Shape []int  `json:"shape"`
	Hex   string `json:"hex"` // row by row, little-endian
	Again bool   `json:"again"`
}

func (a *array) compare(t *testing.T, what string, x *tensor.Tensor) {
	t.Helper()
	if got := hex.EncodeToString(tensortest.Content(t, x)); x.DType().String() != a.Type || !slices.Equal(x.Shape(), a.Shape) || got != a.Hex {
		t.Errorf("%s: %v %s, want %+v", what, x.Brief(), got, a)
	}
}

func ofPython(t *testing.T) (want expected) {
	t.Helper()
	text, err := os.ReadFile("testdata/python/expected.json")
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(text, &want))
	if len(want.Files) < 50 || len(want.Refused) < 10 {
		t.Fatalf("%d files are expected, and %d that are refused", len(want.Files), len(want.Refused))
	}
	return want
}

// Files from numpy read as the same values in every way, and are written back byte for byte.
func TestFilesOfPython(t *testing.T) {
	for where, p := range tensortest.HostAndSim(t) {
		for file, arrays := range ofPython(t).Files {
			path := filepath.Join("testdata/python", file)
			if filepath.Ext(file) == ".npz" {
				compareArchive(t, p, path, arrays)
				continue
			}
			want := arrays[""]
			for _, copied := range []bool{false, true} {
				x, err := ReadFile(p, path, Options{Copy: copied})
				testkit.Must(t, err)
				want.compare(t, where+" "+file, x)
				if want.Again {
					original, err := os.ReadFile(path)
					testkit.Must(t, err)
					var again bytes.Buffer
					testkit.Must(t, Write(&again, x))
					if !bytes.Equal(again.Bytes(), original) {
						t.Errorf("%s %s: written again it is %q, was %q", where, file, again.Bytes(), original)
					}
				}
				x.Release()
			}
			f, err := os.Open(path)
			testkit.Must(t, err)
			x, err := Read(p, f)
			testkit.Must(t, err)
			want.compare(t, where+" read "+file, x)
			x.Release()
			testkit.Must(t, f.Close())
		}
	}
}

func compareArchive(t *testing.T, p *tensor.Place, path string, arrays map[string]array) {
	t.Helper()
	a, err := OpenZip(path)
	testkit.Must(t, err)
	names := a.Names()
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(arrays)); !slices.Equal(names, want) {
		t.Errorf("%s: names %q, want %q", path, names, want)
	}
	for name, want := range arrays {
		n, err := a.Info(name)
		testkit.Must(t, err)
		if n.DType.String() != want.Type || !slices.Equal(n.Shape, want.Shape) || n.Size != int64(len(want.Hex)/2) {
			t.Errorf("%s: %q: %+v", path, name, n)
		}
		x, err := a.Load(p, name)
		testkit.Must(t, err)
		want.compare(t, path+" "+name, x)
		x.Release()
	}
	if _, err := a.Load(p, "no"); !errors.Is(err, ErrNoArray) || !strings.Contains(err.Error(), `"no"`) {
		t.Errorf("%v", err)
	}
	testkit.Must(t, a.Close())
}

func TestTypesOfPythonThatAreRefused(t *testing.T) {
	for _, file := range ofPython(t).Refused {
		_, err := Open(filepath.Join("testdata/python", file), Options{})
		what := map[string]string{
			"object.npy": "Python objects", "structure.npy": "structures", "subarray.npy": "structures", "text.npy": "texts", "bytes.npy": "texts",
			"time.npy": "times", "duration.npy": "times", "void.npy": "bfloat16", "longdouble.npy": "long doubles", "clongdouble.npy": "long doubles",
		}[file]
		if !errors.Is(err, errors.ErrUnsupported) || what == "" || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

var out = flag.String("out", "", "write files for testdata/check.py to this directory")

// Every type, orders, shapes and archives, for numpy to read: with -out they are kept.
func TestWriteForPython(t *testing.T) {
	dir := *out
	if dir == "" {
		dir = t.TempDir()
	}
	testkit.Must(t, os.MkdirAll(dir, 0o777))
	p := tensortest.Host(t)
	s := p.Scope()
	defer s.Close()
	want := expected{Files: map[string]map[string]array{}}
	all := map[string]*tensor.Tensor{}
	describe := func(x *tensor.Tensor) array {
		return array{x.DType().String(), x.Shape(), hex.EncodeToString(tensortest.Content(t, x)), true}
	}
	write := func(name string, x *tensor.Tensor) {
		all[name] = x
		path := filepath.Join(dir, name+".npy")
		testkit.Must(t, WriteFile(path, x))
		want.Files[name+".npy"] = map[string]array{"": describe(x)}
		again, err := ReadFile(s.Place, path, Options{})
		testkit.Must(t, err)
		w := describe(x)
		w.compare(t, name, again)
	}
	for _, d := range dtype.All() {
		if _, ok := d.NumPy(); !ok {
			continue
		}
		raw := make([]byte, 6*d.Size())
		for i := range raw {
			raw[i] = byte(i % 2)
		}
		bytes, err := tensor.FromSlice(s.Place, raw)
		testkit.Must(t, err)
		x, err := tensor.FromStorage(s.Place, bytes.Storage(), d, 0, []int{2, 3}, nil)
		testkit.Must(t, err)
		write(d.String(), x)
		write(d.String()+"-fortran", x.T())
	}
	for name, shape := range map[string][]int{"scalar": {}, "none": {0}, "of none": {2, 0}, "ones": {1, 1}, "long": {1234567}} {
		x, err := tensor.Full(s.Place, dtype.Int8, 3, shape...)
		testkit.Must(t, err)
		if name != "long" {
			write(name, x)
		}
		all["ü/"+name] = x
	}
	// Neither order.
	x, err := all["float32"].Narrow(1, 1, 2)
	testkit.Must(t, err)
	write("part", x)
	for name, o := range map[string]ZipOptions{"stored.npz": {}, "deflated.npz": {Deflate: true}} {
		testkit.Must(t, WriteZipFile(filepath.Join(dir, name), all, o))
		want.Files[name] = map[string]array{}
		for n, x := range all {
			want.Files[name][n] = describe(x)
		}
		compareArchive(t, p, filepath.Join(dir, name), want.Files[name])
	}
	text, err := json.MarshalIndent(want, "", " ")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "expected.json"), text, 0o600))
}
