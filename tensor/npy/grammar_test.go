package npy

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// An element is a type of the format with its size in bytes.
type element struct {
	descr string
	size  int
}

// sentence makes the file of an array from the input, and its elements as a little-endian machine has them. Spaces,
// quotes, the order of the keys and the version vary. If wrong, the file must be refused.
func sentence(in *testkit.Input) (content, elements []byte, wrong bool) {
	e := testkit.Choose(in, element{"<f4", 4}, element{"|b1", 1}, element{">i2", 2}, element{"<c8", 8}, element{">f8", 8}, element{"|u1", 1})
	n := 1
	shape := "("
	for range in.N(4) {
		length := testkit.Choose(in, 2, 1, 3, 0)
		shape, n = shape+fmt.Sprintf("%d,", length), n*length
	}
	shape += ")"
	descr := "'" + e.descr + "'"
	fault := in.N(16)
	switch fault {
	case 10:
		shape = fmt.Sprintf("(%d,)", in.Odd()|1<<20)
	case 11:
		shape = testkit.Choose(in, "(-1,)", "(2.0,)", "(2 2)", "4", "(", "None")
	case 12:
		descr = testkit.Choose(in, "'f33'", "'O'", "''", "'<U4'", "[('x','<f4')]", "__import__('os')")
	}
	space := func() string { return testkit.Choose(in, "", " ", "  ") }
	members := []string{"'descr':" + space() + descr, `"fortran_order"` + space() + ": False", "'shape':" + space() + shape}
	switch fault {
	case 13:
		members = members[1:]
	case 14:
		members = append(members, members[in.N(3)])
	}
	first := in.N(len(members))
	members[0], members[first] = members[first], members[0]
	elements = in.Bytes(n * e.size)
	if e.descr == "|b1" {
		for i := range elements {
			elements[i] &= 1
		}
	}
	stored := bytes.Clone(elements)
	if e.descr[0] == '>' {
		for i := 0; i < len(stored); i += e.size {
			slices.Reverse(stored[i : i+e.size])
		}
	}
	if fault == 15 {
		if len(stored) == 0 {
			return file("{"+strings.Join(members, ",")+"}", 0)[:20], elements, true
		}
		stored = stored[:len(stored)-1]
	}
	return append(file("{"+strings.Join(members, ","+space())+"}\n", 0), stored...), elements, fault >= 10
}

// An array is read as what its file says, however that is written, and refused if it is wrong. In an archive each array
// stands for itself: those that are right are read, whatever is beside them.
func FuzzArchive(f *testing.F) {
	f.Add([]byte{1, 2, 0, 1, 0, 0, 0, 1, 1, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 2, 1, 0, 0, 1, 1, 1, 0, 0, 9, 9})
	f.Add([]byte{1, 1, 2, 0, 10, 3, 1, 0, 0, 0, 0, 0, 1, 0, 0, 15, 0, 0, 0, 1, 2})
	f.Add([]byte("000Z01")) // declares a shape of 4 MiB
	f.Add([]byte{0, 0, 0, 12, 3, 0, 1, 3, 0, 14, 2})
	p := tensortest.Host(f)
	path := filepath.Join(f.TempDir(), "x.npz")
	f.Fuzz(func(t *testing.T, input []byte) {
		in := &testkit.Input{Rest: input}
		method := testkit.Choose(in, zip.Store, zip.Deflate)
		type array struct {
			elements []byte
			wrong    bool
		}
		var arrays []array
		var content bytes.Buffer
		z := zip.NewWriter(&content)
		for in.More() && len(arrays) < 4 {
			file, elements, wrong := sentence(in)
			var x *tensor.Tensor
			var err error
			testkit.AllocatesAtMost(t, len(file), 100, 1<<20, func() { x, err = Read(p, bytes.NewReader(file)) })
			if refused := err != nil && (errors.Is(err, ErrFormat) || errors.Is(err, errors.ErrUnsupported)); refused != wrong {
				t.Fatalf("%q: %v, wrong: %v", file, err, wrong)
			}
			if err == nil {
				if got := tensortest.Content(t, x); !bytes.Equal(got, elements) {
					t.Fatalf("%q is read as %v, want %v", file, got, elements)
				}
				x.Release()
			}
			w, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("a%d.npy", len(arrays)), Method: method})
			testkit.Must(t, err)
			_, err = w.Write(file)
			testkit.Must(t, err)
			arrays = append(arrays, array{elements, wrong})
		}
		testkit.Must(t, z.Close())
		testkit.Must(t, os.WriteFile(path, content.Bytes(), 0o600))
		var a *Archive
		testkit.AllocatesAtMost(t, content.Len(), 100, 1<<20, func() {
			var err error
			a, err = OpenZip(path)
			testkit.Must(t, err)
		})
		defer a.Close()
		for i, want := range arrays {
			var x *tensor.Tensor
			var err error
			testkit.AllocatesAtMost(t, content.Len(), 100, 1<<20, func() { x, err = a.Load(p, fmt.Sprintf("a%d", i)) })
			if (err != nil) != want.wrong {
				t.Fatalf("array %d: %v, wrong: %v", i, err, want.wrong)
			}
			if err == nil {
				if got := tensortest.Content(t, x); !bytes.Equal(got, want.elements) {
					t.Fatalf("array %d is read as %v, want %v", i, got, want.elements)
				}
				x.Release()
			}
		}
	})
}
