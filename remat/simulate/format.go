package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
	"github.com/klauspost/compress/zstd"
)

// maxLog is the largest log, in bytes after decompression, and maxLine its longest line.
const (
	maxLog  = 1 << 30
	maxLine = 16 << 20
)

// Read reads a log: in the format of DTR's simulator, or in the project's own. It may be compressed with gzip or zstd.
//
// DTR's format is JSON lines whose values are strings, with the instructions CONSTANT, MEMORY, ALIAS, CALL, MUTATE,
// COPY, COPY_FROM, RELEASE and ANNOTATE (https://github.com/uwsampl/dtr-prototype, simrd). The own format has numbers
// in place of names: values count up from 0, a constant is one, and a call makes one for each output.
//
//	{"remat":1}
//	{"constant":4096}
//	{"call":"matmul","in":[0,0],"out":[{"size":4096}],"ns":1500,"scratch":512}
//	{"call":"view","in":[1],"out":[{"alias":0}],"ns":10}
//	{"release":1}
//	{"retain":2}
//
// In both formats constants stay until the end, and values that have references at the end must be in memory then.
func Read(r io.Reader) (*Log, error) {
	plain, err := decompress(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("remat: %w", err)
	}
	defer plain.Close()
	in := bufio.NewReader(&limitedReader{plain, maxLog})
	p, err := readProgram(in)
	if err != nil {
		return nil, fmt.Errorf("remat: %w", err)
	}
	return newLog(p)
}

// A limitedReader fails after n bytes.
type limitedReader struct {
	r io.Reader
	n int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.n <= 0 {
		return 0, fmt.Errorf("the log is longer than %d bytes", maxLog)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.n)])
	l.n -= int64(n)
	return n, err
}

func decompress(in *bufio.Reader) (io.ReadCloser, error) {
	head, err := in.Peek(4)
	switch {
	case errors.Is(err, io.EOF) && len(head) == 0:
		return nil, errors.New("the log is empty")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// readProgram reads a log of either format: the first line tells which.
func readProgram(in *bufio.Reader) (*schedule.Program, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	s := &scanner{lines: lines}
	first, err := s.next()
	if errors.Is(err, errEnd) {
		return nil, errors.New("the log is empty")
	}
	if err == nil {
		var head struct{ Remat int }
		if err = json.Unmarshal(first, &head); err == nil && head.Remat == 0 {
			s.again = true
			return readDTR(s)
		}
		if err == nil && head.Remat != 1 {
			err = fmt.Errorf("version %d of the format: want 1", head.Remat)
		}
		var invalid *json.SyntaxError
		if errors.As(err, &invalid) {
			err = fmt.Errorf("%w: a log has a line of JSON for each operation", err)
		}
	}
	if err != nil {
		return nil, s.wrap(err)
	}
	return readOwn(s)
}

// errEnd is the end of a log.
var errEnd = errors.New("the log ends within an instruction")

// A scanner returns the lines of a log that are not empty.
type scanner struct {
	lines *bufio.Scanner
	at    int
	again bool // the last line comes once more
}

func (s *scanner) next() ([]byte, error) {
	if s.again {
		s.again = false
		return s.lines.Bytes(), nil
	}
	for s.lines.Scan() {
		s.at++
		if len(s.lines.Bytes()) > 0 {
			return s.lines.Bytes(), nil
		}
	}
	if err := s.lines.Err(); err != nil {
		return nil, err
	}
	return nil, errEnd
}

func (s *scanner) wrap(err error) error { return fmt.Errorf("line %d: %w", s.at, err) }
