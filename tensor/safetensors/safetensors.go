// Package safetensors reads and writes the files that models are kept in: https://github.com/huggingface/safetensors.
//
// # The format
//
// A file is the length of a header (8 bytes, little-endian), the header, and bytes. The header is a JSON object that says
// for each tensor its type, its shape and which of the bytes are its elements, row by row and little-endian; under
// "__metadata__" it may have strings by name. A large model is several files, shards, and an index (model.safetensors.
// index.json) that says which tensor is in which.
//
// # Structure
//
// A File is a mapped file (internal/mapped) and its header (header.go, scan.go), a Sharded several of them with an index
// (sharded.go); both are a Checkpoint. Loading (load.go) makes regions of the mapping into pieces, which several goroutines
// bring into memory ahead of the one that copies them to the device (pipeline.go). Writing is write.go and writesharded.go.
//
// # What is trusted
//
// Nothing. Open checks the whole header against the length of the file before it says anything of it: see parse. It is as
// strict as the reference implementation (its validate, which wants the tensors to cover the file without overlap and
// without gap) and refuses besides keys that come twice, fields that nobody knows, and a header that does not begin with
// its brace. Reading takes memory in proportion to the header, which is at most 100 MB. Shards are looked for in the
// directory of their index and nowhere else.
//
// A file must stay as it is while it is open: see internal/mapped for what happens if it is truncated.
//
// # Types
//
// Those of dtype that have a name in the format (all but complex128). The format has others (F4, F8_E8M0): a file with them
// opens, and its other tensors load.
package safetensors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
)

// ErrNoTensor is matched by the error of a name that a checkpoint has not.
var ErrNoTensor = errors.New("no such tensor")

// ErrClosed is matched by the error of a load from a checkpoint that was closed.
var ErrClosed = errors.New("the checkpoint was closed")

// A Checkpoint is tensors in files: a *File or a *Sharded. Safe for concurrent use.
type Checkpoint interface {
	// Names returns the names of the tensors, in the order in which their bytes lie in the files. The caller may keep and
	// change it.
	Names() []string

	// Info says what a tensor is, or false if there is none of that name.
	Info(name string) (Info, bool)

	// Metadata returns the strings of the header. The caller may keep and change it.
	Metadata() map[string]string

	// Load returns a tensor of the file at p. On the host it looks into the file's mapping where Options allow and its bytes
	// are aligned: then writing to it does not change the file, and the memory goes with the last such tensor and Close.
	// Elsewhere it is a copy on p's device, queued to its stream. The caller (or p's scope) owns it. The error matches
	// ErrNoTensor, errors.ErrUnsupported for a type that tensors have not, or is the device's.
	Load(p *tensor.Place, name string) (*tensor.Tensor, error)

	// LoadSlice is Load of the indices from start to before start+length of an axis alone. No other part of the file is
	// read, but for what the system reads ahead. A negative axis counts from the last.
	LoadSlice(p *tensor.Place, name string, axis, start, length int) (*tensor.Tensor, error)

	// LoadAll loads every tensor, in the order of Names, and calls progress, if not nil, with the bytes that are loaded and
	// that there are: at the start, and after each piece of a few MiB. The caller (or p's scope) owns them all. Between
	// pieces it looks whether ctx has ended; at that or another error nothing is left loaded. If there is a type that
	// tensors have not, nothing is loaded at all.
	LoadAll(ctx context.Context, p *tensor.Place, progress func(done, total int64)) (map[string]*tensor.Tensor, error)

	// Close ends loading. Tensors that look into the files stay good. Closing twice is not an error.
	Close() error
}

// Options say how a checkpoint is loaded. The zero value is the usual.
type Options struct {
	// Copy has tensors on the host take memory of their own, read at once. Else they look into the file, whose pages are
	// read when they are used: loading is instant, and the file must stay as it is for as long as they live. What is loaded
	// twice is the same memory twice then: a write to one is seen in the other.
	Copy bool
}

// OpenCheckpoint opens whatever path names: a file, the index of a sharded checkpoint, or a directory with either.
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
	index   map[string]int // of header.entries, by name

	mu     sync.Mutex
	memory *mapped.File // nil once closed
}

// maxPipe is how much is read of what is no file, a pipe.
const maxPipe = 1 << 30

// Open maps a file, reads its header and checks all of it. The error matches ErrFormat if it is not what it should be, or
// is the system's. Close it after use.
func Open(path string, o Options) (*File, error) {
	memory, err := mapped.Open(path, maxPipe, func(start []byte) error { return checkStart(path, start) })
	if err != nil {
		return nil, prefixed(err)
	}
	h, err := parse(path, memory.Bytes())
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

// hold returns the memory, which the caller then owns too.
func (f *File) hold() (*mapped.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		return nil, fmt.Errorf("safetensors: %s: %w", f.path, ErrClosed)
	}
	return f.memory.Retain(), nil
}

// entry returns what the file has by that name, which can be loaded.
func (f *File) entry(name string) (*entry, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, fmt.Errorf("safetensors: %s: %w: %s", f.path, ErrNoTensor, quoted(name))
	}
	return f.loadable(i)
}

// loadable returns an entry whose type tensors have.
func (f *File) loadable(i int) (*entry, error) {
	e := &f.header.entries[i]
	if !e.DType.Valid() {
		return nil, fmt.Errorf("safetensors: %s: tensor %s is of type %s, which tensors have not: %w", f.path, quoted(e.Name), e.Type, errors.ErrUnsupported)
	}
	return e, nil
}
