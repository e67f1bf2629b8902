// Package npy reads and writes NumPy's files: arrays (.npy) and zip archives of arrays (.npz).
//
// [ReadFile] loads one array, [Open] maps a file so that a tensor on the host can use it in place, and [OpenZip] opens
// an archive. [WriteFile] and [WriteZipFile] write the same bytes as NumPy itself. Versions 1.0, 2.0 and 3.0 of the
// format (NEP 1) are read, in either byte order, with every type that NumPy and package dtype share. Python objects,
// structures, texts and times are refused with an error that names them. The header, a Python dictionary, is parsed and
// never evaluated.
//
// An array in Fortran order becomes a tensor with strides in that order, without moving elements. Big-endian elements
// are swapped.
//
// Sizes are checked against the file before memory is allocated. The length of a stream is unknown, so memory is
// allocated after the first piece has been read. Archives are checked against their declared sizes and their checksums.
package npy

// (github.com/sbinet/npyio v0.6.0 reads these files into Go slices, without float16 and complex64 among other types.
// The format is small, so this package has its own reader.)

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

// ErrFormat is matched by every error about invalid contents of a file. A *FormatError has the details.
var ErrFormat = errors.New("not a valid npy file")

// A FormatError describes invalid contents of a file. It matches ErrFormat.
type FormatError struct {
	Path   string // as given; empty for a stream
	Name   string // the array in an archive
	Detail string
}

func (e *FormatError) Error() string { return where(e.Path, e.Name) + e.Detail }

// Unwrap returns ErrFormat.
func (e *FormatError) Unwrap() error { return ErrFormat }

// where returns the start of a message.
func where(path, name string) string {
	text := "npy: "
	if path != "" {
		text += path + ": "
	}
	if name != "" {
		text += fmt.Sprintf("array %.100q: ", name)
	}
	return text
}

// located adds the file, and the array in it, to an error. A FormatError gets them as fields.
func located(err error, path, name string) error {
	var f *FormatError
	if errors.As(err, &f) && f.Path == "" {
		f.Path, f.Name = path, name
		return f
	}
	return fmt.Errorf("%s%w", where(path, name), err)
}

func wrong(format string, args ...any) error {
	return &FormatError{Detail: fmt.Sprintf(format, args...)}
}

// Info describes an array.
type Info struct {
	DType     dtype.DType
	Descr     string // NumPy's: "<f4"
	Shape     []int
	Fortran   bool  // column-major: the first axis varies fastest
	BigEndian bool  // bytes are swapped on loading
	Size      int64 // of the elements, in bytes
}

// strides returns the strides of the elements in the file, nil for row-major.
func (n *Info) strides() []int {
	if !n.Fortran || len(n.Shape) < 2 {
		return nil
	}
	strides := make([]int, len(n.Shape))
	k := 1
	for i, length := range n.Shape {
		strides[i] = k
		k *= max(length, 1)
	}
	return strides
}

// measure sets Size, or returns the fault of the shape.
func (n *Info) measure() error {
	size := int64(n.DType.Size())
	for _, length := range n.Shape {
		if length > 0 && size > math.MaxInt64/int64(length) {
			return wrong("the shape %v of %s takes more than %d bytes", n.Shape, n.Descr, int64(math.MaxInt64))
		}
		size *= int64(max(length, 1))
	}
	if slices.Contains(n.Shape, 0) {
		size = 0
	}
	n.Size = size
	return nil
}

// Options control loading. The zero value suits most uses.
type Options struct {
	// Copy gives a tensor on the host its own memory. Otherwise the tensor uses the file's private mapping if the bytes
	// are aligned and little-endian: loading is instant, and the file must not change while the tensor lives. An array
	// that is loaded twice then shares its memory.
	Copy bool
}

// A File is an open .npy file. It is safe for concurrent use, except for Close.
type File struct {
	path    string
	options Options
	info    Info
	memory  *mapped.File
	data    []byte // the elements
}

// maxPipe is the limit in bytes on reading a pipe.
const maxPipe = 1 << 30

// Open maps a file with one array and checks its header against its length. The error matches ErrFormat, or
// errors.ErrUnsupported for a type without a dtype, or is an error of the system. Close the file after use.
func Open(path string, o Options) (*File, error) {
	memory, err := mapped.Open(path, maxPipe, checkStart)
	var format *FormatError
	if errors.As(err, &format) {
		return nil, located(err, path, "")
	}
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	f := &File{path: path, options: o, memory: memory}
	r := bytes.NewReader(memory.Bytes())
	if fault := mapped.Try(func() { f.info, err = readHeader(r) }); fault != nil {
		err = fault
	}
	if err == nil {
		if rest := int64(r.Len()); rest < f.info.Size {
			err = wrong("%s%v takes %d bytes, and the file has %d after its header", f.info.Descr, f.info.Shape,
				f.info.Size, rest)
		} else if rest > f.info.Size {
			err = wrong("%d bytes follow the array: use Read for a file with several arrays", rest-f.info.Size)
		}
	}
	if err != nil {
		return nil, errors.Join(located(err, path, ""), memory.Release())
	}
	f.data = memory.Bytes()[len(memory.Bytes())-r.Len():]
	return f, nil
}

// Info describes the array. The caller may change the shape.
func (f *File) Info() Info {
	n := f.info
	n.Shape = slices.Clone(n.Shape)
	return n
}

// Load returns the array at p. On the host it may use the file in place (see Options); otherwise it is a copy, queued
// to p's stream. The caller or p's scope owns it. It panics after Close.
func (f *File) Load(p *tensor.Place) (*tensor.Tensor, error) {
	if f.memory == nil {
		panic("npy: Load from a closed file")
	}
	n := &f.info
	var t *tensor.Tensor
	var err error
	if !f.options.Copy && !n.BigEndian && transfer.CanShare(p, n.DType, f.data) {
		t, err = transfer.Share(p, f.memory, f.data, n.DType, n.Shape, n.strides())
	} else {
		room := make([]byte, min(n.Size, transfer.Piece))
		t, err = n.load(p, func(at, size int64) ([]byte, error) {
			piece := room[:size]
			_, err := f.memory.ReadAt(piece, int64(len(f.memory.Bytes())-len(f.data))+at)
			return piece, err
		})
	}
	if err != nil {
		return nil, located(err, f.path, "")
	}
	return t, nil
}

// Close ends loading. Tensors that use the file in place stay valid. A second Close is a no-op.
func (f *File) Close() error {
	if f.memory == nil {
		return nil
	}
	memory := f.memory
	f.memory, f.data = nil, nil
	return memory.Release()
}

// ReadFile loads the array of a file: Open, Load and Close.
func ReadFile(p *tensor.Place, path string, o Options) (*tensor.Tensor, error) {
	f, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Load(p)
}

// Read reads an array from r to p, and no byte after it. The caller or p's scope owns it. The errors are those of Open,
// and r's.
func Read(p *tensor.Place, r io.Reader) (*tensor.Tensor, error) {
	n, err := readHeader(r)
	if err != nil {
		return nil, located(err, "", "")
	}
	t, err := n.read(p, r)
	if err != nil {
		return nil, located(err, "", "")
	}
	return t, nil
}

// read reads the elements.
func (n *Info) read(p *tensor.Place, r io.Reader) (*tensor.Tensor, error) {
	var room bytes.Buffer // grows as bytes arrive, whatever the header declares
	return n.load(p, func(at, size int64) ([]byte, error) {
		room.Reset()
		got, err := io.CopyN(&room, r, size)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = wrong("%s%v takes %d bytes, and there are %d", n.Descr, n.Shape, n.Size, at+got)
		}
		return room.Bytes(), err
	})
}

// load makes a tensor from the pieces that fetch returns: size bytes from position at on, which load may change.
func (n *Info) load(p *tensor.Place, fetch func(at, size int64) ([]byte, error)) (*tensor.Tensor, error) {
	var t *tensor.Tensor
	for at := int64(0); at < n.Size || t == nil; at += transfer.Piece {
		piece, err := fetch(at, min(transfer.Piece, n.Size-at))
		if err == nil && n.BigEndian {
			swap(piece, n.DType)
		}
		if err == nil && t == nil { // allocate only after the first piece arrived
			t, err = transfer.New(p, n.DType, n.Size, n.Shape, n.strides())
		}
		if err == nil {
			err = transfer.In(t, at, piece)
		}
		if err != nil {
			if t != nil {
				t.Release()
			}
			return nil, err
		}
	}
	return t, nil
}

// swap reverses the bytes of each number. A complex number is two.
func swap(b []byte, d dtype.DType) {
	size := d.Size()
	if d.IsComplex() {
		size /= 2
	}
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}

// Write writes t as NumPy does: version 1.0, little-endian, in Fortran order if t is transposed and row-major
// otherwise. It waits for the work that writes t, and copies it from its device in pieces. It refuses bfloat16 and
// 8-bit floats, which NumPy does not have.
func Write(w io.Writer, t *tensor.Tensor) error {
	if err := write(w, t); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// WriteFile is Write to a file, which replaces one of that name. The file is complete or absent, and is on disk when
// WriteFile returns.
func WriteFile(path string, t *tensor.Tensor) error {
	if err := atomicfile.Write(path, atomicfile.Options{}, func(w io.Writer) error { return write(w, t) }); err != nil {
		return located(err, path, "")
	}
	return nil
}

func write(w io.Writer, t *tensor.Tensor) error {
	if !t.Defined() {
		return errors.New("write the undefined tensor")
	}
	descr, ok := t.DType().NumPy()
	if !ok {
		return fmt.Errorf("write %s: NumPy has no %v: Cast it to float32, or write a safetensors file: %w", t.Brief(),
			t.DType(), errors.ErrUnsupported)
	}
	rows, fortran := t, false
	if !t.IsContiguous() && t.T().IsContiguous() {
		rows, fortran = t.T(), true
	}
	_, err := w.Write(header(descr, t.Shape(), fortran))
	if err == nil {
		err = transfer.Out(w, rows)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", t.Brief(), err)
	}
	return nil
}
