// Package atomicfile writes files that are complete or absent, for libraries and commands.
//
// A file is written under a temporary name beside it, brought to the disk, and renamed; then the folder is brought to
// the disk, so that the name lasts too. Until then an earlier file of the name stays as it was. A failure removes the
// temporary file. So does a panic of the function that fills it. A program that is killed leaves the temporary file;
// later writers use another name and leave it alone.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Options of Write. The zero value replaces a file of the same name.
type Options struct {
	// New makes it an error, which matches fs.ErrExist, that the file exists when it is complete.
	New bool

	// Created, if not nil, is called with the temporary file, and its result when the file is complete or removed: for
	// programs that remove it when a signal ends them.
	Created func(*os.File) (release func())
}

const bufferSize = 1 << 20

// Write writes the output of fill to a file. If path is a symbolic link it writes the file that the link leads to. A
// file that is replaced passes on its permissions.
func Write(path string, o Options, fill func(io.Writer) error) (err error) {
	path = Follow(path)
	f, err := create(path)
	if err != nil {
		return err
	}
	release := func() {}
	if o.Created != nil {
		release = o.Created(f)
	}
	complete := false
	defer func() {
		release()
		if !complete {
			_ = f.Close()
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if before, err := os.Stat(path); err == nil {
		if err := f.Chmod(before.Mode().Perm()); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(f, bufferSize)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil && o.New {
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
	}
	err = Complete(f, path)
	complete = err == nil
	return err
}

// Check returns the error with which Write of path would begin. It creates a temporary file and removes it.
func Check(path string) error {
	f, err := create(Follow(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// sync is replaced by tests.
var sync = (*os.File).Sync

// Complete brings a file that is written to the disk, closes it, renames it to path, which is in the same folder, and
// brings the folder to the disk, if the system can. If it fails the caller removes the file.
func Complete(f *os.File, path string) error {
	if err := errors.Join(sync(f), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = sync(dir) // some systems sync no folders
		_ = dir.Close()
	}
	return nil
}

// maxName is the longest part of a name that temporary names repeat: systems allow 255 bytes.
const maxName = 200

// create opens a new file beside path, with the permissions of any new file, unlike os.CreateTemp. Files of other
// writers, running or killed, keep their names, however many there are.
func create(path string) (*os.File, error) {
	dir, name := filepath.Split(path)
	for i := 0; ; i++ {
		f, err := os.OpenFile(fmt.Sprintf("%s%.*s.%d.part", dir, maxName, name, i), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Follow returns the path that a path leads to over symbolic links; nothing need be there.
func Follow(path string) string {
	for range 255 { // more links than any system follows
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to // not cleaned: a name before ".." may be a link
		}
		path = to
	}
	return path
}
