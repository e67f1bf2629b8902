package safetensors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/mapped"
	"github.com/ashlar-go/ashlar/tensor"
)

const (
	fileEnding  = ".safetensors"
	indexEnding = ".safetensors.index.json"
)

// isSharded reports whether OpenSharded opens path: a directory or an index.
func isSharded(path string) bool {
	if strings.HasSuffix(path, ".json") {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// A Sharded is a checkpoint in several files that an index names, or in the only file of a directory. Names are in the
// order of the files' names, and within a file in the order of the data.
type Sharded struct {
	path  string
	files []*File
	index map[string]*File // by the name of a tensor
}

// OpenSharded opens all files of a checkpoint. path is its index (a JSON file), or a directory with one index
// (*.safetensors.index.json) or one safetensors file. It checks that each file of the index has a plain name and is in
// the index's directory, that each tensor is in its file, that the files have no other tensors, and that
// metadata.total_size, if present, is the sum of the tensors' sizes. The errors are those of Open.
func OpenSharded(path string, o Options) (*Sharded, error) {
	at := path
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	} else if info.IsDir() {
		if at, err = findIn(path); err != nil {
			return nil, err
		}
	}
	s := &Sharded{path: path, index: map[string]*File{}}
	if strings.HasSuffix(at, fileEnding) {
		f, err := Open(at, o)
		if err != nil {
			return nil, err
		}
		s.add(f)
		return s, nil
	}
	x, err := readIndex(at)
	if err != nil {
		return nil, err
	}
	if err := s.open(at, x, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// findIn returns the index or the only file of a directory.
func findIn(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("safetensors: %w", err)
	}
	var indexes, files []string
	for _, e := range list {
		switch name := e.Name(); {
		case strings.HasSuffix(name, indexEnding):
			indexes = append(indexes, name)
		case strings.HasSuffix(name, fileEnding):
			files = append(files, name)
		}
	}
	switch {
	case len(indexes) == 1:
		if whole := strings.TrimSuffix(indexes[0], ".index.json"); slices.Contains(files, whole) {
			return "", &FormatError{Path: dir, Detail: fmt.Sprintf("it has both %s and %s, which may differ: name "+
				"one of them", indexes[0], whole)}
		}
		return filepath.Join(dir, indexes[0]), nil
	case len(indexes) == 0 && len(files) == 1:
		return filepath.Join(dir, files[0]), nil
	case len(indexes) == 0 && len(files) == 0:
		return "", fmt.Errorf("safetensors: %s: no file *%s, nor an index *%s: %w", dir, fileEnding, indexEnding,
			fs.ErrNotExist)
	}
	return "", &FormatError{Path: dir, Detail: fmt.Sprintf("it has %d indexes and %d files: name one of them",
		len(indexes), len(files))}
}

// A shardIndex is the contents of an index.
type shardIndex struct {
	shards map[string]string // the file of each tensor
	total  int64             // sum of the tensors' sizes; -1 if absent
}

// readIndex reads an index and makes the checks that do not need the files.
func readIndex(path string) (*shardIndex, error) {
	wrong := func(format string, args ...any) error {
		return &FormatError{Path: path, Detail: "the index: " + fmt.Sprintf(format, args...)}
	}
	memory, err := mapped.Open(path, maxHeader, func(start []byte) error {
		if text := bytes.TrimLeft(start, " \t\r\n"); len(text) > 0 && text[0] != '{' {
			return wrong("want '{', and it begins with %q", text[0])
		}
		return nil
	})
	if err != nil {
		return nil, prefixed(err)
	}
	defer memory.Release()
	if n := len(memory.Bytes()); n > maxHeader {
		return nil, wrong("%d bytes, at most %d are allowed", n, maxHeader)
	}
	text := make([]byte, len(memory.Bytes()))
	if _, err := memory.ReadAt(text, 0); err != nil {
		return nil, prefixed(&os.PathError{Op: "read", Path: path, Err: err})
	}
	if !utf8.Valid(text) {
		return nil, wrong("it is not UTF-8")
	}
	x := &shardIndex{total: -1}
	s := &scanner{text: text}
	err = s.object(func(key string) error {
		switch key {
		case "metadata":
			return x.readTotal(s)
		case "weight_map":
			return x.readShards(s)
		}
		return s.skip(0)
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, wrong("%v", err)
	}
	if x.shards == nil {
		return nil, wrong("there is no weight_map")
	}
	return x, nil
}

func (x *shardIndex) readTotal(s *scanner) error {
	return s.object(func(key string) error {
		if key != "total_size" {
			return s.skip(0)
		}
		text, err := s.number()
		if err != nil {
			return err
		}
		// Some programs write total_size as a floating-point number.
		total, err := strconv.ParseFloat(text, 64)
		if err != nil || !isNumber(text) || total < 0 || total > 1<<62 || total != float64(int64(total)) {
			return s.wrong("total_size is %s, which is not a number of bytes", shortened(text))
		}
		if x.total, err = strconv.ParseInt(text, 10, 64); err != nil {
			x.total = int64(total)
		}
		return nil
	})
}

func (x *shardIndex) readShards(s *scanner) error {
	x.shards = map[string]string{}
	known := map[string]string{} // so that each name is stored once
	return s.object(func(name string) error {
		shard, err := s.str()
		if err != nil {
			return err
		}
		if known[shard] == "" {
			if !isPlain(shard) {
				return s.wrong("tensor %s is in the file %s, which is not a plain name of a file beside the index",
					quoted(name), quoted(shard))
			}
			known[shard] = shard
		}
		x.shards[name] = known[shard]
		return nil
	})
}

// isPlain reports whether name is a file name without a directory on every system: not a path, drive, stream or device.
func isPlain(name string) bool {
	return name != "" && name != "." && !strings.ContainsAny(name, "/\\:\x00") && filepath.IsLocal(name)
}

// open opens the files of an index, and checks them against it.
func (s *Sharded) open(path string, x *shardIndex, o Options) error {
	wrong := func(name, format string, args ...any) error {
		return &FormatError{Path: path, Tensor: name, Detail: fmt.Sprintf(format, args...)}
	}
	total := int64(0)
	for _, shard := range slices.Sorted(maps.Keys(shardsOf(x.shards))) {
		f, err := Open(filepath.Join(filepath.Dir(path), shard), o)
		if err != nil {
			return fmt.Errorf("%w (a file of the index %s)", err, path)
		}
		for i := range f.header.entries {
			e := &f.header.entries[i]
			if x.shards[e.Name] != shard {
				said := "the index does not have it"
				if other, ok := x.shards[e.Name]; ok {
					said = "the index says that it is in " + quoted(other)
				}
				return errors.Join(wrong(e.Name, "it is in the file %s, and %s", quoted(shard), said), f.Close())
			}
			total += e.Size
		}
		s.add(f)
	}
	for _, name := range slices.Sorted(maps.Keys(x.shards)) {
		if s.index[name] == nil {
			return wrong(name, "the index says that it is in %s, but it is not", quoted(x.shards[name]))
		}
	}
	if x.total >= 0 && x.total != total {
		return wrong("", "the index says that total_size is %d, but the tensors have %d bytes", x.total, total)
	}
	return nil
}

// shardsOf returns the set of files.
func shardsOf(shards map[string]string) map[string]struct{} {
	set := map[string]struct{}{}
	for _, shard := range shards {
		set[shard] = struct{}{}
	}
	return set
}

func (s *Sharded) add(f *File) {
	s.files = append(s.files, f)
	for i := range f.header.entries {
		s.index[f.header.entries[i].Name] = f
	}
}

// Files returns the paths of the files, in order.
func (s *Sharded) Files() []string {
	paths := make([]string, len(s.files))
	for i, f := range s.files {
		paths[i] = f.path
	}
	return paths
}

// Names implements Checkpoint.
func (s *Sharded) Names() []string {
	var names []string
	for _, f := range s.files {
		names = append(names, f.Names()...)
	}
	return names
}

// Info implements Checkpoint.
func (s *Sharded) Info(name string) (Info, bool) {
	f := s.index[name]
	if f == nil {
		return Info{}, false
	}
	return f.Info(name)
}

// Metadata implements Checkpoint. If several files have a key, the first file's value is used.
func (s *Sharded) Metadata() map[string]string {
	all := map[string]string{}
	for _, f := range slices.Backward(s.files) {
		maps.Copy(all, f.header.metadata)
	}
	return all
}

// Load implements Checkpoint.
func (s *Sharded) Load(p *tensor.Place, name string) (*tensor.Tensor, error) {
	f, err := s.fileOf(name)
	if err != nil {
		return nil, err
	}
	return f.Load(p, name)
}

// LoadSlice implements Checkpoint.
func (s *Sharded) LoadSlice(p *tensor.Place, name string, axis, start, length int) (*tensor.Tensor, error) {
	f, err := s.fileOf(name)
	if err != nil {
		return nil, err
	}
	return f.LoadSlice(p, name, axis, start, length)
}

func (s *Sharded) fileOf(name string) (*File, error) {
	if f := s.index[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("safetensors: %s: %w: %s", s.path, ErrNoTensor, quoted(name))
}

// LoadAll implements Checkpoint.
func (s *Sharded) LoadAll(
	ctx context.Context, p *tensor.Place, progress func(done, total int64),
) (map[string]*tensor.Tensor, error) {
	return loadAll(ctx, p, progress, s.files...)
}

// Close implements Checkpoint.
func (s *Sharded) Close() error {
	var failures []error
	for _, f := range s.files {
		failures = append(failures, f.Close())
	}
	return errors.Join(failures...)
}
