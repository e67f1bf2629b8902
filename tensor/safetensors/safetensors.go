// Package safetensors reads and writes safetensors files, in which models are distributed:
// https://github.com/huggingface/safetensors.
//
// [OpenCheckpoint] opens a file, an index of several files, or a directory with either. [Checkpoint] loads single
// tensors, slices of them, or all. [WriteFile] and [WriteSharded] write files.
//
// A file consists of the length of a header (8 bytes, little-endian), the header, and data. The header is a JSON object
// with the type, the shape and the byte range of each tensor, whose elements are row-major and little-endian. Under
// "__metadata__" it may have a map of strings. A large model has several files, called shards, and an index
// (model.safetensors.index.json) that names the shard of each tensor.
//
// # Validation
//
// Files are untrusted. Open checks the whole header against the length of the file before anything else. It is as
// strict as the reference implementation, which requires that the tensors cover the file without overlap and without
// gap. It also refuses duplicate keys, unknown fields, and a header that does not begin with a brace. Memory use is
// proportional to the header, which is limited to 100 MB. Shards are read only from the directory of their index.
//
// A file must not change while it is open. If it is truncated, a copy of the missing part is an error. Tensors on the
// host that use the file in place (without Options.Copy) cannot report one: access to the missing part is a memory
// fault.
//
// # Types
//
// Every dtype except complex128 can be stored. A file with other types of the format (F4, F8_E8M0) opens, and its other
// tensors can be loaded.
package safetensors

// A File is a mapped file (internal/mapped) with its header (header.go, scan.go). A Sharded is several Files with an
// index (sharded.go). Loading (load.go) divides regions of the file into pieces, which several goroutines read into
// memory ahead of the one that copies them to the device (pipeline.go). Writing is in write.go and writesharded.go.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
)

// ErrNoTensor is matched by the error for a name that is not in a checkpoint.
var ErrNoTensor = errors.New("no such tensor")

// ErrClosed is matched by the error of a load from a closed checkpoint.
var ErrClosed = errors.New("the checkpoint was closed")

// A Checkpoint is a set of tensors in files: a *File or a *Sharded. It is safe for concurrent use.
type Checkpoint interface {
	// Names returns the names of the tensors, in the order of their data in the files. The caller may change the slice.
	Names() []string

	// Info describes a tensor. It returns false if there is no tensor with that name.
	Info(name string) (Info, bool)

	// Metadata returns the strings of the header. The caller may change the map.
	Metadata() map[string]string

	// Load returns a tensor at p. On the host it uses the file's private mapping in place, if Options allow it and the
	// data is aligned: writes to the tensor do not change the file, and the memory is freed after Close and the release
	// of the last such tensor. Otherwise it is a copy on p's device, queued to p's stream. The caller or p's scope owns
	// the tensor. The error matches ErrNoTensor, or errors.ErrUnsupported for a type without a dtype, or is an error of
	// the device.
	Load(p *tensor.Place, name string) (*tensor.Tensor, error)

	// LoadSlice is Load of the indices from start up to but not including start+length along an axis. It reads no other
	// part of the file, except for the system's read-ahead. A negative axis counts from the last.
	LoadSlice(p *tensor.Place, name string, axis, start, length int) (*tensor.Tensor, error)

	// LoadAll loads all tensors, in the order of Names. It calls progress, if not nil, with the bytes loaded and the
	// total, first with 0 and then after each piece of a few MiB. The caller or p's scope owns the tensors. It checks
	// ctx between the pieces. If ctx ends, or at another error, all loaded tensors are released. If a tensor has a type
	// without a dtype, LoadAll fails before it loads anything.
	LoadAll(ctx context.Context, p *tensor.Place, progress func(done, total int64)) (map[string]*tensor.Tensor, error)

	// Close ends loading. Tensors that use the files in place stay valid. A second Close is a no-op.
	Close() error
}

// Options control loading. The zero value suits most uses.
type Options struct {
	// Copy gives tensors on the host their own memory, read at once. Otherwise they use the file in place, and pages
	// are read on first use: loading is instant, and the file must not change while they live. A tensor that is loaded
	// twice then shares its memory, so a write to one is visible in the other.
	Copy bool
}

// OpenCheckpoint opens a file, the index of a sharded checkpoint, or a directory with either.
func OpenCheckpoint(path string, o Options) (Checkpoint, error) {
	if isSharded(path) {
		return OpenSharded(path, o)
	}
	return Open(path, o)
}

// A File is an open safetensors file.
type File struct {
	path    string
	options Options
	header  *header
	index   map[string]int // positions in header.entries, by name

	mu     sync.Mutex
	memory *mapped.File // nil once closed
}

// maxPipe is the limit in bytes on reading a pipe.
const maxPipe = 1 << 30

// Open maps a file, reads its header and checks all of it. The error matches ErrFormat for invalid contents, or is an
// error of the system. Close the file after use.
func Open(path string, o Options) (*File, error) {
	memory, err := mapped.Open(path, maxPipe, func(start []byte) error { return checkStart(path, start) })
	if err != nil {
		return nil, prefixed(err)
	}
	var h *header
	if fault := mapped.Try(func() { h, err = parse(path, memory.Bytes()) }); fault != nil {
		err = prefixed(&os.PathError{Op: "read", Path: path, Err: fault})
	}
	if err != nil {
		return nil, errors.Join(err, memory.Release())
	}
	f := &File{path: path, options: o, header: h, index: make(map[string]int, len(h.entries)), memory: memory}
	for i := range h.entries {
		f.index[h.entries[i].Name] = i
	}
	return f, nil
}

// Names implements Checkpoint.
func (f *File) Names() []string {
	names := make([]string, len(f.header.entries))
	for i := range names {
		names[i] = f.header.entries[i].Name
	}
	return names
}

// Info implements Checkpoint.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	info := f.header.entries[i].Info
	info.Shape = slices.Clone(info.Shape)
	return info, true
}

// Metadata implements Checkpoint.
func (f *File) Metadata() map[string]string {
	all := make(map[string]string, len(f.header.metadata))
	for k, v := range f.header.metadata {
		all[k] = v
	}
	return all
}

// Close implements Checkpoint.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		return nil
	}
	memory := f.memory
	f.memory = nil
	return memory.Release()
}

// hold returns the memory after making the caller one of its owners.
func (f *File) hold() (*mapped.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		return nil, fmt.Errorf("safetensors: %s: %w", f.path, ErrClosed)
	}
	return f.memory.Retain(), nil
}

// entry returns the entry of that name, if its type can be loaded.
func (f *File) entry(name string) (*entry, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, fmt.Errorf("safetensors: %s: %w: %s", f.path, ErrNoTensor, quoted(name))
	}
	return f.loadable(i)
}

// loadable returns entry i, or an error if its type has no dtype.
func (f *File) loadable(i int) (*entry, error) {
	e := &f.header.entries[i]
	if !e.DType.Valid() {
		return nil, fmt.Errorf("safetensors: %s: tensor %s has type %s, which tensors do not support: %w",
			f.path, quoted(e.Name), e.Type, errors.ErrUnsupported)
	}
	return e, nil
}
