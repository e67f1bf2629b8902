package pack

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxRow is the maximum number of bytes in a row of a table.
const maxRow = 1 << 20

// ReadCSV reads buffers in the format of MiniMalloc (google/minimalloc): a header that names the columns id, lower,
// upper, size and, in a solution, offset, in any order, then one row for each buffer. Other columns, a byte order mark,
// and spaces before a field are ignored. offsets is nil if there is no column offset. Numbers are decimal int64; sizes
// must be positive and lifetimes not empty. Offsets are not checked; Validate does that. A row has at most 1 MiB.
// Errors name the line and the column, counted in bytes from 1.
func ReadCSV(r io.Reader) (buffers []Buffer, offsets []int64, err error) {
	limited := &rowLimit{r: r, left: maxRow}
	text := bufio.NewReader(limited)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = text.Discard(len(mark)) // spreadsheets write a byte order mark
	}
	t := table{rows: csv.NewReader(text)} // which takes the number of fields from the header
	t.rows.ReuseRecord = true
	t.rows.TrimLeadingSpace = true
	if err := t.header(); err != nil {
		return nil, nil, err
	}
	if t.solved {
		offsets = []int64{}
	}
	for {
		limited.left = maxRow
		b, offset, err := t.next()
		if errors.Is(err, io.EOF) {
			return buffers, offsets, nil
		}
		if err != nil {
			return nil, nil, err
		}
		buffers = append(buffers, b)
		if t.solved {
			offsets = append(offsets, offset)
		}
	}
}

// A rowLimit fails a row of more than left bytes, because csv.Reader keeps a whole row in memory.
type rowLimit struct {
	r    io.Reader
	left int
}

func (l *rowLimit) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("a row of more than %d bytes: want rows of id,lower,upper,size", maxRow)
	}
	n, err := l.r.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

// The required columns of a table. A solution also has the column offset.
var columns = []string{"id", "lower", "upper", "size"}

// A table is a CSV file that is being read.
type table struct {
	rows   *csv.Reader
	index  map[string]int // of the columns, by name
	solved bool           // there is a column offset
}

// header reads the first row.
func (t *table) header() error {
	header, err := t.rows.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("pack: line 1, column 1: no header: want id,lower,upper,size")
	}
	if err != nil {
		return t.malformed(err, header)
	}
	t.index = map[string]int{}
	for i, name := range header {
		if _, twice := t.index[name]; twice {
			return t.wrong(i, fmt.Errorf("two columns are named %.100q", name))
		}
		t.index[name] = i
	}
	for _, name := range columns {
		if _, ok := t.index[name]; !ok {
			return t.wrong(0, fmt.Errorf("no column %q in the header", name))
		}
	}
	_, t.solved = t.index["offset"]
	return nil
}

// next reads a row. The error is io.EOF after the last.
func (t *table) next() (b Buffer, offset int64, err error) {
	row, err := t.rows.Read()
	if errors.Is(err, io.EOF) {
		return b, 0, io.EOF
	}
	if err != nil {
		return b, 0, t.malformed(err, row)
	}
	b.ID = row[t.index["id"]]
	number := func(name string) (n int64) {
		if err == nil {
			n, err = t.number(row, name)
		}
		return n
	}
	b.Lower, b.Upper, b.Size = number("lower"), number("upper"), number("size")
	if t.solved {
		offset = number("offset")
	}
	if err != nil {
		return b, 0, err
	}
	if err := b.check(); err != nil {
		name := "size"
		if b.Lower >= b.Upper {
			name = "upper"
		}
		return b, 0, t.wrong(t.index[name], fmt.Errorf("buffer %.100q: %w", b.ID, err))
	}
	return b, offset, nil
}

// number reads the field of a column.
func (t *table) number(row []string, name string) (int64, error) {
	text := row[t.index[name]]
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, t.wrong(t.index[name], fmt.Errorf("buffer %.100q: %s: %.100q: want a whole number of 64 bits: %w",
			row[t.index["id"]], name, text, errors.Unwrap(err)))
	}
	return n, nil
}

// malformed converts an error of the CSV reader, which may have returned a row, too.
func (t *table) malformed(err error, row []string) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		at := min(len(row)-1, t.rows.FieldsPerRecord) // the first excess field, or the last field
		return t.wrong(at, fmt.Errorf("%w: there are %d, but the header has %d", csv.ErrFieldCount, len(row),
			t.rows.FieldsPerRecord))
	case errors.As(err, &parse):
		return fmt.Errorf("pack: line %d, column %d: %w", parse.Line, parse.Column, parse.Err)
	}
	return fmt.Errorf("pack: %w", err)
}

// wrong adds the position of a field of the last row to an error.
func (t *table) wrong(field int, err error) error {
	line, column := t.rows.FieldPos(field)
	return fmt.Errorf("pack: line %d, column %d: %w", line, column, err)
}

// WriteCSV writes buffers in the format of ReadCSV, with the columns in the order id,lower,upper,size and, unless
// offsets is nil, offset. It panics if offsets is not nil and does not have one offset for each buffer. Errors are
// those of w.
func WriteCSV(w io.Writer, buffers []Buffer, offsets []int64) error {
	if offsets != nil && len(offsets) != len(buffers) {
		panic(fmt.Sprintf("pack: WriteCSV of %d offsets for %d buffers", len(offsets), len(buffers)))
	}
	rows := csv.NewWriter(w)
	row := []string{"id", "lower", "upper", "size"}
	if offsets != nil {
		row = append(row, "offset")
	}
	_ = rows.Write(row) // the writer keeps its first error for the end
	for i, b := range buffers {
		row = append(row[:0], b.ID, strconv.FormatInt(b.Lower, 10), strconv.FormatInt(b.Upper, 10),
			strconv.FormatInt(b.Size, 10))
		if offsets != nil {
			row = append(row, strconv.FormatInt(offsets[i], 10))
		}
		_ = rows.Write(row)
	}
	rows.Flush()
	if err := rows.Error(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}
