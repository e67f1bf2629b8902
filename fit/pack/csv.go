package pack

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ReadCSV reads buffers as the files of MiniMalloc (google/minimalloc) have them: a header that names the columns id,
// lower, upper, size and, in a solution, offset, in any order, then one row for each buffer. Columns of other names are
// passed over, and so are a byte order mark and spaces before a field. offsets is nil if there is no column offset. Numbers
// are decimal int64; sizes are positive and lifetimes not empty, and an offset is taken as it is, for Validate to judge.
// Errors name the line.
func ReadCSV(r io.Reader) (buffers []Buffer, offsets []int64, err error) {
	text := bufio.NewReader(r)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = text.Discard(len(mark)) // spreadsheets begin files so
	}
	rows := csv.NewReader(text) // takes the number of fields from the header, and says which line differs
	rows.ReuseRecord = true
	rows.TrimLeadingSpace = true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil, errors.New("pack: line 1: no header: want id,lower,upper,size")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pack: %w", err)
	}
	line, _ := rows.FieldPos(0)
	column := map[string]int{}
	for i, name := range header {
		if _, twice := column[name]; twice {
			return nil, nil, fmt.Errorf("pack: line %d: two columns are named %q", line, name)
		}
		column[name] = i
	}
	for _, name := range []string{"id", "lower", "upper", "size"} {
		if _, ok := column[name]; !ok {
			return nil, nil, fmt.Errorf("pack: line %d: no column %q in the header", line, name)
		}
	}
	offset, solved := column["offset"]
	if solved {
		offsets = []int64{}
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return buffers, offsets, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("pack: %w", err)
		}
		line, _ := rows.FieldPos(0)
		var wrong error
		number := func(i int) int64 {
			n, err := strconv.ParseInt(row[i], 10, 64)
			if err != nil && wrong == nil {
				wrong = err
			}
			return n
		}
		b := Buffer{ID: row[column["id"]], Lower: number(column["lower"]), Upper: number(column["upper"]), Size: number(column["size"])}
		if solved {
			offsets = append(offsets, number(offset))
		}
		if wrong == nil {
			wrong = b.check()
		}
		if wrong != nil {
			return nil, nil, fmt.Errorf("pack: line %d: buffer %q: %w", line, b.ID, wrong)
		}
		buffers = append(buffers, b)
	}
}

// WriteCSV writes what ReadCSV reads, the columns in the order id,lower,upper,size and, unless offsets is nil, offset. It
// panics if there are offsets but not one for each buffer. Errors are those of w.
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
		row = append(row[:0], b.ID, strconv.FormatInt(b.Lower, 10), strconv.FormatInt(b.Upper, 10), strconv.FormatInt(b.Size, 10))
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
