package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/npy"
	"github.com/ashlar-go/ashlar/tensor/safetensors"
)

// A tensorFile is tensors in a file of any format, or in several.
type tensorFile struct {
	path     string
	format   string
	tensors  []tensorLine
	metadata map[string]string
	load     func(p *tensor.Place, name string) (*tensor.Tensor, error)
	loadAll  func(ctx context.Context, p *tensor.Place, progress func(done, total int64)) error
	close    func() error
}

// openTensors opens a path. Tensors get memory of their own, so that a file that is truncated is an error, and no
// fault.
func openTensors(path string) (*tensorFile, error) {
	format, err := formatOf(path)
	if err != nil {
		return nil, err
	}
	switch format {
	case "npy":
		return openArray(path, npy.Options{Copy: true})
	case "npz":
		return openArchive(path)
	}
	return openCheckpoint(path, safetensors.Options{Copy: true})
}

// formatOf determines the format of a file by its name, or else by its first bytes.
func formatOf(path string) (string, error) {
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".npy", ".npz":
		return ending[1:], nil
	case ".safetensors", ".json":
		return "safetensors", nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "safetensors", nil // opens directories and pipes, and says why there is none
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var start [9]byte
	n, _ := io.ReadFull(f, start[:])
	switch {
	case n == 0:
		return "", fmt.Errorf("%s: the file is empty", displayPath(path))
	case bytes.HasPrefix(start[:], []byte("\x93NUMPY")):
		return "npy", nil
	case bytes.HasPrefix(start[:], []byte("PK\x03\x04")):
		return "npz", nil
	case start[8] == '{': // after the length of the header
		return "safetensors", nil
	}
	return "", fmt.Errorf("%s: the file begins with %q: want safetensors, numpy's .npy or .npz, or the index of a "+
		"checkpoint (.json)", displayPath(path), start[:n])
}

func openCheckpoint(path string, o safetensors.Options) (*tensorFile, error) {
	c, err := safetensors.OpenCheckpoint(path, o)
	if err != nil {
		return nil, err
	}
	f := &tensorFile{
		path: path, format: "safetensors", tensors: []tensorLine{}, metadata: c.Metadata(), load: c.Load,
		close: c.Close,
	}
	_, several := c.(*safetensors.Sharded)
	for _, name := range c.Names() {
		n, _ := c.Info(name)
		line := tensorLine{Name: name, DType: n.Type, Shape: n.Shape, Size: n.Size}
		if several {
			line.File = filepath.Base(n.Path)
		}
		f.tensors = append(f.tensors, line)
	}
	f.loadAll = func(ctx context.Context, p *tensor.Place, progress func(done, total int64)) error {
		_, err := c.LoadAll(ctx, p, progress)
		return err
	}
	return f, nil
}

func openArray(path string, o npy.Options) (*tensorFile, error) {
	a, err := npy.Open(path, o)
	if err != nil {
		return nil, err
	}
	n := a.Info()
	f := &tensorFile{path: path, format: "npy", close: a.Close}
	f.tensors = []tensorLine{{DType: n.Descr, Shape: n.Shape, Size: n.Size}}
	f.load = func(p *tensor.Place, name string) (*tensor.Tensor, error) {
		if name != "" {
			return nil, fmt.Errorf("%s: the array of a .npy file has no name: --print \"\"", displayPath(path))
		}
		return a.Load(p)
	}
	f.loadAll = f.eachOf
	return f, nil
}

func openArchive(path string) (*tensorFile, error) {
	a, err := npy.OpenZip(path)
	if err != nil {
		return nil, err
	}
	f := &tensorFile{path: path, format: "npz", tensors: []tensorLine{}, load: a.Load, close: a.Close}
	f.loadAll = f.eachOf
	for _, name := range a.Names() {
		n, err := a.Info(name)
		if err != nil {
			_ = a.Close()
			return nil, err
		}
		f.tensors = append(f.tensors, tensorLine{Name: name, DType: n.Descr, Shape: n.Shape, Size: n.Size})
	}
	return f, nil
}

// eachOf loads one tensor after another.
func (f *tensorFile) eachOf(_ context.Context, p *tensor.Place, progress func(done, total int64)) error {
	var done, total int64
	for _, t := range f.tensors {
		total += t.Size
	}
	for _, t := range f.tensors {
		if _, err := f.load(p, t.Name); err != nil {
			return err
		}
		done += t.Size
		progress(done, total)
	}
	return nil
}

// fileFirst rewrites an error of package safetensors or npy as errors of traces are written: "FILE: reason", without the
// package's name and the system call.
func fileFirst(err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "safetensors: "), "npy: ")
	var failed *os.PathError
	if errors.As(err, &failed) {
		text = strings.Replace(text, failed.Error(), failed.Path+": "+failed.Err.Error(), 1)
	}
	return errors.New(text)
}
