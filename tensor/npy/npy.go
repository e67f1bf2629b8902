// Package npy reads and writes numpy's files: arrays (.npy) and zip archives of them (.npz).
//
// The format is numpy's NEP 1, versions 1.0, 2.0 and 3.0: a magic word, a header that is a Python dictionary as text, and
// the elements. The header is parsed as data by a reader of just that dictionary (header.go): nothing is evaluated. All
// types that numpy and package dtype have in common are read, in either byte order and either order of axes; Python objects,
// structures, texts and times are refused by name. What is written is what numpy itself writes, byte for byte.
//
// An array in Fortran's order becomes a tensor whose strides are in that order: no element moves. A big-endian one is
// swapped on its way.
//
// Lengths are checked against the file before memory is taken for them; of a stream, whose length nobody knows, the first
// piece is read before. Archives are held to the sizes that they declare and to their checksums.
//
// (github.com/sbinet/npyio v0.6.0 reads these files into Go slices; it lacks float16 and complex64 among others, and the
// format is small.)
package npy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

// ErrFormat is matched by every error that says that a file is not what it should be. A *FormatError says more.
var ErrFormat = errors.New("not a valid npy file")

// A FormatError is what is wrong with a file. It matches ErrFormat.
type FormatError struct {
	Path   string // as it was given; empty of a stream
	Name   string // of the array in an archive
	Detail string
}

func (e *FormatError) Error() string { return where(e.Path, e.Name) + e.Detail }

// Unwrap returns ErrFormat.
func (e *FormatError) Unwrap() error { return ErrFormat }

// where opens a message.
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

// located adds to an error which file, and which array of it, it is about. A FormatError gets it as fields.
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

// Info says what an array is.
type Info struct {
	DType     dtype.DType
	Descr     string // numpy's: "<f4"
	Shape     []int
	Fortran   bool  // the first axis runs fastest
	BigEndian bool  // its bytes are swapped when it is loaded
	Size      int64 // bytes of the elements
}

// strides returns those of the elements in the file; nil for row by row.
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

// measure sets Size, or says what is wrong with the shape.
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

// Options say how a file is loaded. The zero value is the usual.
type Options struct {
	// Copy has a tensor on the host take memory of its own. Else it looks into the file's private mapping where its bytes
	// are aligned and in the machine's order: loading is instant, and the file must stay as it is for as long as the tensor
	// lives. What is loaded twice is the same memory twice then.
	Copy bool
}

// A File is an open .npy file. Safe for concurrent use, but for Close.
type File struct {
	path    string
	options Options
	info    Info
	memory  *mapped.File
	data    []byte // the elements
}

// maxPipe is how much is read of what is no file, a pipe.
const maxPipe = 1 << 30

// Open maps a file with one array and checks its header against its length. The error matches ErrFormat, or
// errors.ErrUnsupported for a type that tensors have not, or is the system's. Close it after use.
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
	if f.info, err = readHeader(r); err == nil {
		if rest := int64(r.Len()); rest < f.info.Size {
			err = wrong("%s%v takes %d bytes, and the file has %d behind its header", f.info.Descr, f.info.Shape, f.info.Size, rest)
		} else if rest > f.info.Size {
			err = wrong("%d bytes are behind the array: files of several arrays are for Read", rest-f.info.Size)
		}
	}
	if err != nil {
		return nil, errors.Join(located(err, path, ""), memory.Release())
	}
	f.data = memory.Bytes()[len(memory.Bytes())-r.Len():]
	return f, nil
}

// Info says what the array is. The caller may keep and change the shape.
func (f *File) Info() Info {
	n := f.info
	n.Shape = slices.Clone(n.Shape)
	return n
}

// Load returns the array at p: on the host perhaps a look into the file (see Options), else a copy that is queued to p's
// stream. The caller (or p's scope) owns it. After Close it panics.
func (f *File) Load(p *tensor.Place) (*tensor.Tensor, error) {
	if f.memory == nil {
		panic("npy: Load from a file that was closed")
	}
	n := &f.info
	var t *tensor.Tensor
	var err error
	if !f.options.Copy && !n.BigEndian && transfer.CanShare(p, n.DType, f.data) {
		t, err = transfer.Share(p, f.memory, f.data, n.DType, n.Shape, n.strides())
	} else {
		t, err = n.load(p, func(at int64, piece []byte) ([]byte, error) {
			b := f.data[at : at+int64(len(piece))]
			if err := mapped.Populate(b); err != nil || !n.BigEndian {
				return b, err
			}
			copy(piece, b) // the mapping is not swapped: it may be loaded again
			return piece, nil
		})
	}
	if err != nil {
		return nil, located(err, f.path, "")
	}
	return t, nil
}

// Close ends loading. Tensors that look into the file stay good. Closing twice is not an error.
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

// Read reads an array from r, up to its last byte and no further, to p. The caller (or p's scope) owns it. The errors are
// those of Open, and r's.
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
	return n.load(p, func(at int64, piece []byte) ([]byte, error) {
		got, err := io.ReadFull(r, piece)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = wrong("%s%v takes %d bytes, and there are %d", n.Descr, n.Shape, n.Size, at+int64(got))
		}
		return piece, err
	})
}

// load makes a tensor of what fetch returns: the bytes from one on, as many as the slice that it may use has.
func (n *Info) load(p *tensor.Place, fetch func(at int64, piece []byte) ([]byte, error)) (*tensor.Tensor, error) {
	room := make([]byte, min(n.Size, transfer.Piece))
	var t *tensor.Tensor
	for at := int64(0); at < n.Size || t == nil; at += transfer.Piece {
		piece, err := fetch(at, room[:min(transfer.Piece, n.Size-at)])
		if err == nil && n.BigEndian {
			swap(piece, n.DType)
		}
		if err == nil && t == nil { // not before something was there
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

// swap turns the bytes of every number around; a complex one is two.
func swap(b []byte, d dtype.DType) {
	size := d.Size()
	if d.IsComplex() {
		size /= 2
	}
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}

// Write writes t as numpy does: version 1.0, little-endian, in Fortran's order if that is how it lies and row by row
// otherwise. It waits for the work that writes t, and copies it from its device in pieces. numpy has no bfloat16 and no
// 8-bit floats: they are refused.
func Write(w io.Writer, t *tensor.Tensor) error {
	if err := write(w, t); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// WriteFile is Write to a file. It is there whole or not at all, and on the disk when WriteFile returns; a file of that
// name is replaced.
func WriteFile(path string, t *tensor.Tensor) error {
	if err := transfer.WriteFile(path, func(w io.Writer) error { return write(w, t) }); err != nil {
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
		return fmt.Errorf("write %s: numpy has no %v: Cast it to float32, or write a safetensors file: %w", t.Brief(), t.DType(), errors.ErrUnsupported)
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
