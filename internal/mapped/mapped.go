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
// faults when it is looked at, and kills the process as any such fault does; Populate reports it as an error instead,
// as long as the file is cut before it and not after.
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
	defer f.Close()
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
	m := &File{}
	m.owners.Store(1)
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
	return nil
}

// Bytes returns the bytes. They are good while the caller owns the file.
func (f *File) Bytes() []byte { return f.bytes }

// Mapped reports whether the bytes are a mapping, which takes memory only for what was looked at.
func (f *File) Mapped() bool { return f.mapped }

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
	return unmapFile(b)
}

// errNone is the error of a mapping where there are none.
var errNone = fmt.Errorf("mapped: no mappings: %w", errors.ErrUnsupported)

// pageSize is at most the size of a page of any system: one byte in each is looked at.
const pageSize = 4 << 10

// Populate brings b, part of the bytes of a File, into memory and waits for it. Several goroutines that call it for
// different parts keep a disk busy. The error says that the bytes could not be read: the disk failed, or the file was
// truncated.
func Populate(b []byte) (err error) {
	if len(b) == 0 || populate(b) == nil {
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault, ok := recover().(interface{ Addr() uintptr }); ok {
			err = fmt.Errorf("mapped: the page at %#x could not be read: the disk failed, or the file was truncated",
				fault.Addr())
		}
	}()
	var sum byte
	for i := 0; i < len(b); i += pageSize {
		sum ^= b[i]
	}
	sum ^= b[len(b)-1]
	looked.Store(uint32(sum)) // so that the loop is not left out
	return nil
}

var looked atomic.Uint32

// Prepare has the system back b, memory of a mapping that is about to be written for the first time, without changing
// what it holds. It is advice. A first write finds a page and clears it, which costs more than the write itself:
// several goroutines may do so for different parts, ahead of the one that writes. Of less than a page nothing is
// gained, and nothing done.
func Prepare(b []byte) {
	if len(b) >= pageSize {
		prepare(b)
	}
}
