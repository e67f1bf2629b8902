// Package mapped is files as memory: the bytes of a file without reading it first, for loaders of tensors.
//
// A File is a private mapping: it shows what the file holds, pages come from the disk (or from the system's cache) when
// they are first looked at, and writing to it changes this process's copy of a page and never the file. Where the
// system or the file has no mappings (a pipe, another operating system), the bytes are read into ordinary memory
// instead: the same interface, and the memory of the whole file.
//
// A File counts its owners: the one that opened it, and every tensor that looks into it. The memory goes with the last.
//
// What it does not do: follow a file that grows, or keep another program from truncating one. A page beyond the new end
// faults when it is looked at, and kills the process as any such fault does. ReadAt and Try report it as an error.
package mapped

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// A File is the bytes of a file. Safe for concurrent use.
type File struct {
	bytes  []byte
	mapped bool
	file   *os.File // of a mapping
	owners atomic.Int64
}

// maxStart is how many bytes a file is judged by.
const maxStart = 16

// Open returns the bytes of a file, owned once by the caller: Release it. Unless judge is nil it is first given the
// file's first 16 bytes, or all of a shorter file, and Open returns its error before anything else is read or mapped.
// Of what is no regular file at most limit bytes are read, and more is an error. The other errors are *os.PathError.
func Open(path string, limit int64, judge func(start []byte) error) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m := &File{}
	m.owners.Store(1)
	defer func() {
		if m.file == nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("is a directory")}
	}
	start := make([]byte, maxStart)
	n, err := io.ReadFull(f, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	if judge != nil {
		if err := judge(start[:n]); err != nil {
			return nil, err
		}
	}
	if info.Mode().IsRegular() {
		if info.Size() == 0 {
			return m, nil
		}
		if err := m.mapWhole(f, path, info.Size()); err == nil {
			return m, nil
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		limit = info.Size()
	}
	whole := io.MultiReader(bytes.NewReader(start[:n]), f)
	m.bytes, err = io.ReadAll(io.LimitReader(whole, limit))
	if err != nil {
		return nil, err
	}
	if n, _ := whole.Read(make([]byte, 1)); n > 0 {
		return nil, &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", limit)}
	}
	return m, nil
}

// mapWhole maps the file, if it can be: else the error matches errors.ErrUnsupported.
func (m *File) mapWhole(f *os.File, path string, size int64) (err error) {
	if size > math.MaxInt {
		return &os.PathError{Op: "map", Path: path, Err: fmt.Errorf("%d bytes are more than the addresses of this "+
			"machine", size)}
	}
	m.bytes, err = mapFile(f, int(size))
	m.mapped = err == nil
	if err != nil {
		return &os.PathError{Op: "map", Path: path, Err: err}
	}
	m.file = f
	return nil
}

// Bytes returns the bytes. They are good while the caller owns the file.
func (f *File) Bytes() []byte { return f.bytes }

// Mapped reports whether the bytes are a mapping, which takes memory only for what was looked at.
func (f *File) Mapped() bool { return f.mapped }

// ReadAt implements io.ReaderAt. It reads the file itself: where that was truncated it returns an error, unlike a look
// at Bytes, which faults.
func (f *File) ReadAt(b []byte, at int64) (int, error) {
	var r io.ReaderAt = bytes.NewReader(f.bytes)
	if f.mapped {
		r = f.file
	}
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		err = nil
	case err == io.EOF && f.mapped:
		err = fmt.Errorf("byte %d cannot be read: the file was truncated", at+int64(n))
	}
	return n, err
}

// Retain adds an owner and returns f. It panics if there is none left.
func (f *File) Retain() *File {
	if f.owners.Add(1) < 2 {
		f.owners.Add(-1)
		panic("mapped: Retain of a file that was released")
	}
	return f
}

// Release removes an owner. The last Release unmaps the memory, which must not be read afterwards. It panics if there
// is no owner.
func (f *File) Release() error {
	left := f.owners.Add(-1)
	switch {
	case left < 0:
		f.owners.Add(1)
		panic("mapped: Release of a file that was released")
	case left > 0:
		return nil
	}
	b := f.bytes
	f.bytes = nil
	if !f.mapped {
		return nil
	}
	return errors.Join(unmapFile(b), f.file.Close())
}

// errNone is the error of a mapping where there are none.
var errNone = fmt.Errorf("mapped: no mappings: %w", errors.ErrUnsupported)

// Try calls f, which looks at the bytes of Files on its own goroutine. The error says that some could not be read: the
// disk failed, or a file was truncated.
func Try(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("mapped: the page at %#x could not be read: the disk failed, or the file was truncated",
				fault.Addr())
		default:
			panic(fault)
		}
	}()
	f()
	return nil
}

// pageSize is at most the size of a page of any system.
const pageSize = 4 << 10

// Prepare has the system back b, memory of a mapping that is about to be written for the first time, without changing
// what it holds. It is advice. A first write finds a page and clears it, which costs more than the write itself:
// several goroutines may do so for different parts, ahead of the one that writes. Of less than a page nothing is
// gained, and nothing done.
func Prepare(b []byte) {
	if len(b) >= pageSize {
		prepare(b)
	}
}
