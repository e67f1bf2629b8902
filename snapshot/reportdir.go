package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A reportDir is a directory of numbered reports. A report is written under another name and renamed when it is
// complete. Several processes may write to one directory: the process that creates the unfinished file owns the number.
type reportDir string

// maxTries is the number of taken numbers that are skipped before giving up.
const maxTries = 1000

func (d reportDir) path(number int) string {
	return filepath.Join(string(d), fmt.Sprintf("oom-%06d.pickle", number))
}

func (d reportDir) unfinished(number int) string {
	return filepath.Join(string(d), fmt.Sprintf(".oom-%06d.part", number))
}

// reportNumber returns the number in the name of a report, finished or not.
func reportNumber(name string) (int, bool) {
	text, finished := strings.CutSuffix(name, ".pickle")
	if !finished {
		var hidden bool
		text, hidden = strings.CutPrefix(strings.TrimSuffix(name, ".part"), ".")
		if !hidden || !strings.HasSuffix(name, ".part") {
			return 0, false
		}
	}
	text, report := strings.CutPrefix(text, "oom-")
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), report && err == nil
}

// room returns the number of the next report and how many bytes it may have, or an error that matches ErrReportsFull.
func (d reportDir) room(most int, mostBytes int64) (number int, bytes int64, err error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return 0, 0, fmt.Errorf("snapshot: look for reports: %w", err)
	}
	count := 0
	for _, entry := range entries {
		n, ok := reportNumber(entry.Name())
		if !ok {
			continue
		}
		count++
		number = max(number, n)
		if info, err := entry.Info(); err == nil { // otherwise it was deleted
			bytes += info.Size()
		}
	}
	if count >= most || bytes >= mostBytes {
		return 0, 0, fmt.Errorf("%w: %s has %d of %d, %s of %s", ErrReportsFull, string(d), count, most,
			bytesize.Format(bytes), bytesize.Format(mostBytes))
	}
	return number + 1, mostBytes - bytes, nil
}

// write writes a report of at most room bytes, under the first free number from number on, and returns its path.
func (d reportDir) write(number int, room int64, content func(io.Writer) error) (string, error) {
	f, path, err := d.create(number)
	if err != nil {
		return "", fmt.Errorf("snapshot: begin a report: %w", err)
	}
	w := bufio.NewWriterSize(&confined{f, room}, 1<<16)
	if err = content(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = atomicfile.Complete(f, path)
	}
	if err != nil {
		_ = f.Close()
		return "", fmt.Errorf("snapshot: write a report: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return path, nil
}

// create creates the unfinished file of the first free number from number on.
func (d reportDir) create(number int) (f *os.File, path string, err error) {
	for range maxTries {
		f, err = os.OpenFile(d.unfinished(number), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			// No other process can finish this number now, but one may have before.
			path = d.path(number)
			if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return f, path, nil
			}
			if drop := errors.Join(f.Close(), os.Remove(f.Name())); err != nil || drop != nil {
				return nil, "", errors.Join(err, drop)
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
		number++
	}
	return nil, "", fmt.Errorf("%d numbers are taken: %w", maxTries, fs.ErrExist)
}

// A confined is a writer that accepts a limited number of bytes.
type confined struct {
	w    io.Writer
	room int64
}

func (x *confined) Write(p []byte) (int, error) {
	if int64(len(p)) > x.room {
		return 0, fmt.Errorf("%w: it would pass the limit of bytes", ErrReportsFull)
	}
	x.room -= int64(len(p))
	return x.w.Write(p)
}
