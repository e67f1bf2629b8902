package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// file is a version 1.0 file of that header and n bytes.
func file(text string, n int) []byte {
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(append(b, text...), make([]byte, n)...)
}

const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n"

func TestHostileHeadersAreRefused(t *testing.T) {
	p := tensortest.Host(t)
	path := filepath.Join(t.TempDir(), "x.npy")
	refused := func(b []byte, want error, words ...string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, b, 0o600))
		_, inFile := Open(path, Options{})
		_, inStream := Read(p, bytes.NewReader(b))
		for _, err := range []error{inFile, inStream} {
			if !errors.Is(err, want) {
				t.Errorf("%.200q: %v, want %v", b, err, want)
				continue
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%.200q: %v, want %q in it", b, err, word)
				}
			}
		}
	}
	whole := file(good, 16)
	x, err := Read(p, bytes.NewReader(whole))
	testkit.Must(t, err)
	x.Release()
	for n := range whole {
		refused(whole[:n], ErrFormat)
	}
	for i := range 7 { // the magic word, the version
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		refused(b, ErrFormat)
	}
	for i := range good {
		for _, c := range []string{"\x00", "\xff", "#", "\\", "@"} {
			refused(file(good[:i]+c+good[i+1:], 16), ErrFormat)
		}
	}
	for _, text := range []string{
		"", "{", "}", "{}", "()", "[]", "None", "1", "{}{}", good + "x", good + good, "{," + good[1:], strings.Replace(good, ", }", ",, }", 1), strings.Replace(good, ",", ";", 1),
		"{'descr': '<f4', 'fortran_order': False}", "{'descr': '<f4', 'shape': (2, 2)}", "{'fortran_order': False, 'shape': (2, 2)}",
		"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), 'x': 1}",
		"{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (2, 2)}", "dict(descr='<f4', fortran_order=False, shape=(2, 2))",
		"{'de' 'scr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", "{b'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}",
	} {
		refused(file(text, 16), ErrFormat)
	}
	put := func(descr, fortran, shape string) []byte {
		return file(fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s}", descr, fortran, shape), 16)
	}
	for _, descr := range []string{"'f33'", "''", "'<'", "'<f4", "f4", "'<f4\n'", "'\\x3cf4'", "1", "None", "'|f4'", "'<<f4'", "'float32 '", "u'<f4'", "'<f4' '<f4'"} {
		refused(put(descr, "False", "(2, 2)"), ErrFormat)
	}
	for _, fortran := range []string{"0", "1", "'False'", "None", "false", "FALSE", "()", "", "not True", "Falsey"} {
		refused(put("'<f4'", fortran, "(2, 2)"), ErrFormat)
	}
	for _, shape := range []string{
		"4", "(4)", "[4]", "[2, 2]", "(2 2)", "(2,,2)", "(,)", "(2, 2", "2, 2)", "(-2, -2)", "(2.0, 2)", "(2e0, 2)", "(0x2, 2)", "(02, 2)", "('2', 2)", "((2, 2))", "(2*1, 2)", "(2, 2) * 1",
		"(None,)", "(True, 2)", "(2_0,)", "(2, 2, -1)", "(9223372036854775808,)", "(18446744073709551620,)", "(1" + strings.Repeat("0", 5000) + ",)", "(2l, 2)", "(2LL, 2)",
		"(4611686018427387904, 4, 4)", "(4294967296, 4294967296)", "(4294967296, 4294967296, 0)", "(3, 2)", "(5,)", "(9223372036854775807,)", "(1099511627776,)", "(" + strings.Repeat("1,", 65) + ")",
		"(" + strings.Repeat("2,", 62) + ")",
	} {
		refused(put("'<f4'", "False", shape), ErrFormat)
	}
	for _, version := range []byte{2, 3} { // long headers
		b := append([]byte(magic), version, 0)
		refused(binary.LittleEndian.AppendUint32(b, 1<<32-1), ErrFormat, "4294967295")
		refused(binary.LittleEndian.AppendUint32(b, 100), ErrFormat)
		refused(b, ErrFormat)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if x, err := ReadFile(p, filepath.Join(t.TempDir(), "none"), Options{}); x != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", x, err)
	}
	// Numbers on both sides.
	refused(put("'<f4'", "False", "(3, 2)"), ErrFormat, "[3 2] takes 24 bytes", "16")
	testkit.Must(t, os.WriteFile(path, append(whole, 1, 2, 3), 0o600))
	if _, err := Open(path, Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "3 bytes follow") {
		t.Errorf("%v", err)
	}
}

// Types of NumPy that no tensor has are told from texts that are no types.
func TestTypesWithoutADtype(t *testing.T) {
	p := tensortest.Host(t)
	for what, descrs := range map[string][]string{
		"Python objects":           {"O", "O8"},
		"texts":                    {"U4", "S4", "a4"},
		"times":                    {"M8[ns]", "m8"},
		"save them as safetensors": {"V1", "V2"},
		"bytes without a type":     {"V3", "V"},
		"long doubles":             {"f16", "c32", "f12", "c24", "g", "G"},
		"":                         {"", "f3", "x", "i16", "f16x"},
	} {
		for _, descr := range descrs {
			for _, order := range []string{"", "<", ">", "|", "="} {
				text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (0,)}", order, descr)
				_, err := Read(p, bytes.NewReader(file(text, 0)))
				want, words := errors.ErrUnsupported, "are "+what
				if what == "" {
					want, words = ErrFormat, ""
				} else if what == "save them as safetensors" {
					words = what
				}
				if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), words) {
					t.Errorf("%s%s: %v, want %v with %q", order, descr, err, want, words)
				}
			}
		}
	}
}

// An array of more than one piece is read to the end.
func TestReadOfPieces(t *testing.T) {
	p := tensortest.Host(t)
	data := make([]byte, 2*transfer.Piece+100)
	for i := range data {
		data[i] = byte(i % 251)
	}
	both := bytes.NewReader(slices.Concat(header("|u1", []int{len(data)}, false), data, []byte("more")))
	x, err := Read(p, both)
	testkit.Must(t, err)
	defer x.Release()
	if !bytes.Equal(tensortest.Content(t, x), data) || both.Len() != 4 {
		t.Errorf("other bytes, or %d bytes left of 4", both.Len())
	}
}

// A stream of several arrays is read one after another.
func TestReadTakesNoMoreThanTheArray(t *testing.T) {
	p := tensortest.Sim(t)
	var b bytes.Buffer
	for i := range 3 {
		x, err := tensor.Full(p, dtype.Int32, i, i, 2)
		testkit.Must(t, err)
		testkit.Must(t, Write(&b, x))
		x.Release()
	}
	for i := range 3 {
		x, err := Read(p, &b)
		testkit.Must(t, err)
		if x.Dim(0) != i || i > 0 && tensortest.Content(t, x)[0] != byte(i) {
			t.Errorf("array %d is %v", i, x)
		}
		x.Release()
	}
	if _, err := Read(p, &b); !errors.Is(err, ErrFormat) {
		t.Errorf("at the end: %v", err)
	}
}

// On the host, a tensor refers to the file's bytes where it can, and the file does not change.
func TestLoadLooksIntoTheFile(t *testing.T) {
	p := tensortest.Host(t)
	for name, c := range map[string]struct{ copied, shared bool }{"int16.npy": {false, true}, "int32.npy": {true, false}, "int16-big.npy": {false, false}, "int16-fortran.npy": {false, true}} {
		original, err := os.ReadFile(filepath.Join("testdata/python", name))
		testkit.Must(t, err)
		path := filepath.Join(t.TempDir(), name)
		testkit.Must(t, os.WriteFile(path, original, 0o600))
		f, err := Open(path, Options{Copy: c.copied})
		testkit.Must(t, err)
		x, err := f.Load(p)
		testkit.Must(t, err)
		y, err := f.Load(p)
		testkit.Must(t, err)
		testkit.Must(t, f.Close())
		testkit.Must(t, f.Close())
		if shared := x.Storage().Pointer() == 0; shared != c.shared {
			t.Errorf("%s: shared is %t", name, shared)
		}
		if !bytes.Equal(tensortest.Content(t, x), tensortest.Content(t, y)) { // it was not swapped in place
			t.Errorf("%s: %v and then %v", name, x, y)
		}
		testkit.Must(t, x.Fill(nil, 7))
		testkit.Must(t, p.Sync(t.Context()))
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, original) {
			t.Errorf("%s: the file has changed, %v", name, err)
		}
		x.Release()
		y.Release()
	}
}

// A failure in the middle leaves nothing.
func TestReadThatFailsLeavesNothing(t *testing.T) {
	p := tensortest.Sim(t)
	n := 20 << 20
	head := header("|u1", []int{n}, false)
	broken := errors.New("broken pipe")
	r := io.MultiReader(bytes.NewReader(head), io.LimitReader(zeros{}, 12<<20), failing{broken})
	if _, err := Read(p, r); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	small := tensor.NewPlace(tensor.Config{Device: p.Device(), Allocator: layer.NewLimiter(p.Allocator(), 10<<20), Backend: p.Backend()})
	if _, err := Read(small, io.MultiReader(bytes.NewReader(head), zeros{})); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("%v", err)
	}
	if leaks := small.Leaks(); leaks.Count > 0 {
		t.Errorf("%v", leaks)
	}
	bf, err := tensor.Zeros(p, dtype.BFloat16, 2)
	testkit.Must(t, err)
	defer bf.Release()
	for _, err := range []error{Write(io.Discard, bf), WriteFile(filepath.Join(t.TempDir(), "x"), bf), WriteZip(io.Discard, map[string]*tensor.Tensor{"x": bf}, ZipOptions{})} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "safetensors") || strings.Count(err.Error(), "npy:") != 1 {
			t.Errorf("%v", err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// archive makes a zip file.
func archive(t testing.TB, put func(*zip.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	testkit.Must(t, put(z))
	testkit.Must(t, z.Close())
	path := filepath.Join(t.TempDir(), "x.npz")
	testkit.Must(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

func TestHostileArchivesAreRefused(t *testing.T) {
	p := tensortest.Host(t)
	whole := file(good, 16)
	with := func(h zip.FileHeader, content []byte, raw bool) string {
		return archive(t, func(z *zip.Writer) error {
			create := z.CreateHeader
			if raw {
				create = z.CreateRaw
			}
			w, err := create(&h)
			if err == nil {
				_, err = w.Write(content)
			}
			return err
		})
	}
	for what, c := range map[string]struct {
		path string
		want error
		text string
	}{
		"no zip":      {filepath.Join("testdata/python", "scalar.npy"), ErrFormat, "zip: not a valid zip file"},
		"no array":    {with(zip.FileHeader{Name: "x.npy"}, []byte("hello, this is no array"), false), ErrFormat, "begins with"},
		"too long":    {with(zip.FileHeader{Name: "x.npy"}, append(whole, 0), false), ErrFormat, "takes 16 bytes"},
		"too short":   {with(zip.FileHeader{Name: "x.npy", Method: zip.Deflate}, whole[:len(whole)-1], false), ErrFormat, "takes 16 bytes"},
		"checksum":    {with(zip.FileHeader{Name: "x.npy", CRC32: 1, CompressedSize64: uint64(len(whole)), UncompressedSize64: uint64(len(whole))}, whole, true), ErrFormat, "checksum"},
		"no deflate":  {with(zip.FileHeader{Name: "x.npy", Method: zip.Deflate, CompressedSize64: uint64(len(whole)), UncompressedSize64: uint64(len(whole))}, whole, true), ErrFormat, ""},
		"method":      {with(zip.FileHeader{Name: "x.npy", Method: 99, CompressedSize64: uint64(len(whole)), UncompressedSize64: uint64(len(whole))}, whole, true), errors.ErrUnsupported, "method 99"},
		"encrypted":   {with(zip.FileHeader{Name: "x.npy", Flags: 1, CompressedSize64: uint64(len(whole)), UncompressedSize64: uint64(len(whole))}, whole, true), errors.ErrUnsupported, "encrypted"},
		"stored size": {with(zip.FileHeader{Name: "x.npy", CompressedSize64: uint64(len(whole)), UncompressedSize64: 1 << 50}, whole, true), ErrFormat, "declared to expand to"},
		"bomb":        {with(zip.FileHeader{Name: "x.npy", Method: zip.Deflate, CompressedSize64: uint64(len(whole)), UncompressedSize64: 1 << 50}, whole, true), ErrFormat, "declared to expand to"},
		"objects":     {with(zip.FileHeader{Name: "x.npy"}, file("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 16), false), errors.ErrUnsupported, "Python objects"},
	} {
		a, err := OpenZip(c.path)
		if err == nil {
			_, err = a.Load(p, "x")
			testkit.Must(t, a.Close())
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	twice := archive(t, func(z *zip.Writer) error {
		_, first := z.Create("x.npy")
		_, second := z.Create("x.npy")
		return errors.Join(first, second)
	})
	if _, err := OpenZip(twice); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `"x" is duplicate`) {
		t.Errorf("%v", err)
	}
	if _, err := OpenZip(overlapping(t)); !errors.Is(err, ErrFormat) ||
		!strings.Contains(err.Error(), "overlap") {
		t.Errorf("%v", err)
	}
	others := archive(t, func(z *zip.Writer) error {
		_, err := z.Create("../../x.txt")
		return err
	})
	a, err := OpenZip(others)
	testkit.Must(t, err)
	if len(a.Names()) != 0 {
		t.Errorf("%q", a.Names())
	}
	testkit.Must(t, a.Close())
}

// overlapping makes an archive whose directory lists one array under many names: 1,000 times the bytes of the file.
func overlapping(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(archive(t, func(z *zip.Writer) error {
		w, err := z.Create("x0000.npy")
		if err == nil {
			_, err = w.Write(file(good, 16))
		}
		return err
	}))
	testkit.Must(t, err)
	at := bytes.Index(content, []byte("PK\x01\x02"))
	end := bytes.Index(content, []byte("PK\x05\x06"))
	entry, trailer := content[at:end], bytes.Clone(content[end:])
	whole := bytes.Clone(content[:at])
	const names = 1000
	for i := range names {
		copied := bytes.Clone(entry)
		copy(copied[46:], fmt.Sprintf("x%04d", i))
		whole = append(whole, copied...)
	}
	binary.LittleEndian.PutUint16(trailer[8:], names)
	binary.LittleEndian.PutUint16(trailer[10:], names)
	binary.LittleEndian.PutUint32(trailer[12:], uint32(names*len(entry)))
	path := filepath.Join(t.TempDir(), "overlapping.npz")
	testkit.Must(t, os.WriteFile(path, append(whole, trailer...), 0o600))
	return path
}

// FuzzNPY reads arbitrary bytes: an accepted array is written and reads back the same.
func FuzzNPY(f *testing.F) {
	f.Add(file(good, 16))
	for _, name := range []string{"float32-big.npy", "int16-fortran.npy", "version2.npy", "version3.npy", "python2.npy", "object.npy", "structure.npy", "none-of-some.npy", "bool.npy"} {
		b, err := os.ReadFile(filepath.Join("testdata/python", name))
		testkit.Must(f, err)
		f.Add(b)
	}
	p := tensortest.Host(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var x *tensor.Tensor
		var err error
		testkit.AllocatesAtMost(t, len(b), 100, 1<<20, func() { x, err = Read(p, bytes.NewReader(b)) })
		if err != nil {
			return
		}
		defer x.Release()
		if x.Size() > int64(len(b)) {
			t.Fatalf("%v of %d bytes", x.Brief(), len(b))
		}
		var w bytes.Buffer
		testkit.Must(t, Write(&w, x))
		y, err := Read(p, &w)
		testkit.Must(t, err)
		defer y.Release()
		if x.Brief() != y.Brief() || !bytes.Equal(tensortest.Content(t, x), tensortest.Content(t, y)) {
			t.Fatalf("%v and %v", x, y)
		}
	})
}
