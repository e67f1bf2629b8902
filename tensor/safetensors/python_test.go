package safetensors

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// The tensors that testdata/make.py and TestWriteForPython write into their files.
type expected struct {
	Safetensors string              `json:"safetensors"`
	Files       map[string]contents `json:"files"`
}

type contents struct {
	Metadata map[string]string  `json:"metadata"`
	Tensors  map[string]entryOf `json:"tensors"`
}

type entryOf struct {
	Type  string `json:"dtype"`
	Shape []int  `json:"shape"`
	Hex   string `json:"hex"`
}

// Files from the Python library read as the same values, and are written back byte for byte.
func TestFilesOfPython(t *testing.T) {
	text, err := os.ReadFile("testdata/python/expected.json")
	testkit.Must(t, err)
	var want expected
	testkit.Must(t, json.Unmarshal(text, &want))
	if len(want.Files) < 20 {
		t.Fatalf("%d files are expected", len(want.Files))
	}
	for where, p := range tensortest.HostAndSim(t) {
		for _, name := range slices.Sorted(maps.Keys(want.Files)) {
			t.Run(where+"/"+name, func(t *testing.T) { compare(t, p, name, want.Files[name]) })
		}
	}
}

func compare(t *testing.T, p *tensor.Place, name string, want contents) {
	s := p.Scope()
	defer s.Close()
	c, err := OpenCheckpoint(filepath.Join("testdata/python", name), Options{})
	testkit.Must(t, err)
	defer c.Close()
	f, isFile := c.(*File)
	if isFile && !maps.Equal(c.Metadata(), want.Metadata) {
		t.Errorf("metadata %v, want %v", c.Metadata(), want.Metadata)
	}
	names := c.Names()
	slices.Sort(names)
	if all := slices.Sorted(maps.Keys(want.Tensors)); !slices.Equal(names, all) {
		t.Fatalf("names %q, want %q", names, all)
	}
	tensors := map[string]*tensor.Tensor{}
	for name, w := range want.Tensors {
		info, ok := c.Info(name)
		b, err := hex.DecodeString(w.Hex)
		testkit.Must(t, err)
		if !ok || info.Type != w.Type || !slices.Equal(info.Shape, w.Shape) || info.Size != int64(len(b)) {
			t.Errorf("%q: %+v, want %s %v of %d bytes", name, info, w.Type, w.Shape, len(b))
		}
		x, err := c.Load(s.Place, name)
		if !info.DType.Valid() {
			if err == nil {
				t.Errorf("%q of type %s was loaded", name, w.Type)
			}
			continue
		}
		testkit.Must(t, err)
		tensors[name] = x
		if got := tensortest.Content(t, x); !bytes.Equal(got, b) || !slices.Equal(x.Shape(), w.Shape) {
			t.Errorf("%q: %v %x, want %x", name, x.Brief(), got, b)
		}
	}
	if !isFile || len(want.Metadata) > 1 || len(tensors) < len(want.Tensors) {
		return // the order of several metadata is chance
	}
	var again bytes.Buffer
	testkit.Must(t, Write(&again, tensors, c.Metadata()))
	original, err := os.ReadFile(f.path)
	testkit.Must(t, err)
	if !bytes.Equal(again.Bytes(), original) {
		n := min(len(original), 500)
		t.Errorf("written again it is\n%q\nand was\n%q", again.Bytes()[:min(again.Len(), n)], original[:n])
	}
}

var out = flag.String("out", "", "write files for testdata/check.py to this directory")

// Every type, shapes, metadata, names, and a sharded checkpoint, for Python's library to read: with -out they are kept.
func TestWriteForPython(t *testing.T) {
	dir := *out
	if dir == "" {
		dir = t.TempDir()
	}
	testkit.Must(t, os.MkdirAll(dir, 0o777))
	p := tensortest.Host(t)
	s := p.Scope()
	defer s.Close()
	made := map[string]*tensor.Tensor{}
	for _, d := range dtype.All() {
		if _, ok := d.SafeTensors(); !ok {
			continue
		}
		x, err := tensor.Empty(s.Place, d, 3, 5)
		testkit.Must(t, err)
		for i := range 3 {
			for j := range 5 {
				row, err := x.Narrow(0, i, 1)
				testkit.Must(t, err)
				one, err := row.Narrow(1, j, 1)
				testkit.Must(t, err)
				testkit.Must(t, one.Fill(nil, float64(i*5+j)/2))
			}
		}
		made["of "+d.String()] = x
	}
	shapes := map[string]*tensor.Tensor{}
	for name, shape := range map[string][]int{"scalar": {}, "none": {0}, "of no": {2, 0, 3}, "ünï \"c\"\\\t😀": {1, 2, 1}} {
		x, err := tensor.Full(s.Place, dtype.BFloat16, 1.5, shape...)
		testkit.Must(t, err)
		shapes[name] = x
	}
	big, err := tensor.Full(s.Place, dtype.Float32, 0.25, 20, 10)
	testkit.Must(t, err)
	shapes["a view"] = big.T()

	want := map[string]contents{}
	write := func(name string, tensors map[string]*tensor.Tensor, metadata map[string]string) {
		w := contents{Metadata: metadata, Tensors: map[string]entryOf{}}
		if metadata == nil {
			w.Metadata = map[string]string{}
		}
		for n, x := range tensors {
			kind, _ := x.DType().SafeTensors()
			w.Tensors[n] = entryOf{kind, x.Shape(), hex.EncodeToString(tensortest.Content(t, x))}
		}
		want[name] = w
		path := filepath.Join(dir, name)
		if filepath.Ext(name) != "" {
			testkit.Must(t, WriteFile(path, tensors, metadata))
		} else {
			testkit.Must(t, WriteSharded(path, tensors, metadata, 200))
		}
		again(t, p, path, w)
	}
	write("types.safetensors", made, map[string]string{"format": "pt", "b": "", "ü": "\"\\\n\u0001"})
	write("shapes.safetensors", shapes, nil)
	write("nothing.safetensors", nil, nil)
	write("sharded", made, map[string]string{"format": "pt"})
	for name, x := range made {
		write(fmt.Sprintf("one-%s.safetensors", name[3:]), map[string]*tensor.Tensor{"x": x}, nil)
	}
	text, err := json.MarshalIndent(expected{Files: want}, "", " ")
	testkit.Must(t, err)
	put(t, dir, "expected.json", text)
}

// again reads the written file.
func again(t *testing.T, p *tensor.Place, path string, want contents) {
	t.Helper()
	c, err := OpenCheckpoint(path, Options{})
	testkit.Must(t, err)
	defer c.Close()
	if len(c.Names()) != len(want.Tensors) || !maps.Equal(c.Metadata(), want.Metadata) {
		t.Errorf("%s: %q with %v", path, c.Names(), c.Metadata())
	}
	for name, w := range want.Tensors {
		x, err := c.Load(p, name)
		testkit.Must(t, err)
		if kind, _ := x.DType().SafeTensors(); kind != w.Type || !slices.Equal(x.Shape(), w.Shape) || hex.EncodeToString(tensortest.Content(t, x)) != w.Hex {
			t.Errorf("%s: %q is %v", path, name, x.Brief())
		}
		x.Release()
	}
}
