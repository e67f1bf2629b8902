package safetensors

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// failing fails after some bytes.
type failing struct{ left int }

var errFull = errors.New("no space left")

func (w *failing) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteOfManyPiecesAndViews(t *testing.T) {
	for where, p := range tensortest.HostAndSim(t) {
		s := p.Scope()
		data := bytesOf(2*transfer.Piece + 100)
		big, err := tensor.FromSlice(s.Place, data)
		testkit.Must(t, err)
		square, err := tensor.FromSlice(s.Place, []int16{1, 2, 3, 4, 5, 6}, 2, 3)
		testkit.Must(t, err)
		part, err := big.Narrow(0, 100, len(data)-100)
		testkit.Must(t, err)
		var b bytes.Buffer
		testkit.Must(t, Write(&b, map[string]*tensor.Tensor{"big": part, "t": square.T()}, nil))
		h, err := parse("x", b.Bytes())
		testkit.Must(t, err)
		if h.entries[0].Name != "t" || !slices.Equal(h.entries[0].Shape, []int{3, 2}) || h.data%8 != 0 {
			t.Errorf("%s: %+v, data from %d on", where, h.entries, h.data)
		}
		if got := b.Bytes()[h.data:]; !bytes.Equal(got[:12], []byte{1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0}) || !bytes.Equal(got[12:], data[100:]) {
			t.Errorf("%s: other bytes", where)
		}
		for _, room := range []int{0, 50, 20 + int(h.data), transfer.Piece + 1000} {
			if err := Write(&failing{room}, map[string]*tensor.Tensor{"big": part}, nil); !errors.Is(err, errFull) {
				t.Errorf("%s, with room for %d bytes: %v", where, room, err)
			}
		}
		s.Close()
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	p := tensortest.Host(t)
	s := p.Scope()
	defer s.Close()
	x, err := tensor.Zeros(s.Place, dtype.Float32, 2)
	testkit.Must(t, err)
	z, err := tensor.Zeros(s.Place, dtype.Complex128, 2)
	testkit.Must(t, err)
	path := put(t, t.TempDir(), "old.safetensors", []byte("old"))
	for want, c := range map[string]struct {
		name     string
		t        *tensor.Tensor
		metadata map[string]string
	}{
		"complex128":           {"z", z, nil},
		"not UTF-8":            {"\xff", x, nil},
		`"__metadata__"`:       {"__metadata__", x, nil},
		"undefined":            {"x", nil, nil},
		"metadata \"a\": \"\\": {"x", x, map[string]string{"a": "\xff"}},
	} {
		if err := WriteFile(path, map[string]*tensor.Tensor{c.name: c.t}, c.metadata); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
		if err := WriteSharded(t.TempDir(), map[string]*tensor.Tensor{c.name: c.t}, c.metadata, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sharded: %v, want %q in it", err, want)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the old file is %q, %v", got, err)
	}
	if err := WriteFile(filepath.Join(path, "x"), nil, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("below a file: %v", err)
	}
}

// A file is replaced whole, with nothing left beside it.
func TestWriteFileReplaces(t *testing.T) {
	p := tensortest.Host(t)
	x, err := tensor.Full(p, dtype.Float32, 1, 2)
	testkit.Must(t, err)
	defer x.Release()
	dir := t.TempDir()
	path := put(t, dir, "a.safetensors", []byte("old"))
	put(t, dir, "a.safetensors.0.part", []byte("of a writer that was killed"))
	old, err := os.Open(path)
	testkit.Must(t, err)
	defer old.Close()
	testkit.Must(t, WriteFile(path, map[string]*tensor.Tensor{"x": x}, nil))
	f, err := Open(path, Options{})
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	b := make([]byte, 10)
	if n, _ := old.Read(b); string(b[:n]) != "old" {
		t.Errorf("who had the old file open reads %q", b[:n])
	}
	list, err := os.ReadDir(dir)
	testkit.Must(t, err)
	if len(list) != 2 {
		t.Errorf("%v", list)
	}
}

func TestWriteSharded(t *testing.T) {
	p := tensortest.Host(t)
	s := p.Scope()
	defer s.Close()
	tensors := map[string]*tensor.Tensor{}
	for name, n := range map[string]int{"a": 10, "b": 10, "c": 25, "d": 1, "e": 19, "f": 0} {
		x, err := tensor.Full(s.Place, dtype.Uint8, n, n)
		testkit.Must(t, err)
		tensors[name] = x
	}
	dir := filepath.Join(t.TempDir(), "new", "dir")
	testkit.Must(t, WriteSharded(dir, tensors, nil, 20))
	c, err := OpenSharded(dir, Options{})
	testkit.Must(t, err)
	files := map[string]string{}
	for _, name := range c.Names() {
		info, _ := c.Info(name)
		files[name] = filepath.Base(info.Path)
	}
	first, second, third := "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"
	for name, want := range map[string]string{"a": first, "b": first, "c": second, "d": third, "e": third, "f": third} {
		if files[name] != want {
			t.Errorf("%s is in %s, want %s", name, files[name], want)
		}
	}
	testkit.Must(t, c.Close())
	if err := WriteSharded(dir, tensors, nil, 1000); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Errorf("one file beside an index: %v", err)
	}
	dir = t.TempDir()
	testkit.Must(t, WriteSharded(dir, tensors, nil, 65))
	if err := WriteSharded(dir, tensors, nil, 64); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Errorf("an index beside one file: %v", err)
	}
	f, err := Open(filepath.Join(dir, "model.safetensors"), Options{})
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
}
