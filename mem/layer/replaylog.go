package layer

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A LogRow is one row of a log. LogHeader documents the columns.
type LogRow struct {
	Line   int // in the log, from 1
	Time   string
	Action LogAction
	Ptr    driver.Pointer
	Size   int64
	Stream driver.StreamID
	Used   []driver.StreamID // of a free
	To     driver.Pointer    // of a move
}

// ReadLog parses a log of a Logger, or of RMM's logging adaptor, row by row. An invalid row ends it with an error that
// gives the line. It holds at most one line, of up to 64 KiB, and the handles of 1024 streams.
//
// RMM writes the handles of streams: 0x0, 0x1 and 0x2 for the streams that CUDA names, and an address for any other
// stream. ReadLog numbers the latter from 3 on, in the order of their first row.
func ReadLog(r io.Reader) iter.Seq2[LogRow, error] {
	return func(yield func(LogRow, error) bool) {
		lines, handles := bufio.NewScanner(r), map[uint64]driver.StreamID{}
		for n := 1; lines.Scan(); n++ {
			text := strings.TrimSuffix(lines.Text(), "\r")
			if text == "" || n == 1 && strings.HasPrefix(LogHeader, text) {
				continue
			}
			row, err := parseLogRow(text, handles)
			if row.Line = n; err != nil {
				yield(LogRow{}, fmt.Errorf("layer: log, line %d: %w", n, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(LogRow{}, fmt.Errorf("layer: read the log: %w", err))
		}
	}
}

func parseLogRow(text string, handles map[uint64]driver.StreamID) (row LogRow, err error) {
	f := strings.Split(text, ",")
	if len(f) != 6 && len(f) != 7 {
		return row, fmt.Errorf("%d columns: want 6, as RMM writes, or 7", len(f))
	}
	row.Time, row.Action = f[1], LogAction(f[2])
	if row.Ptr, err = parseLogPointer(f[3]); err != nil {
		return row, err
	}
	if row.Size, err = strconv.ParseInt(f[4], 10, 64); err != nil || row.Size < 0 {
		return row, fmt.Errorf("size %q: want a number of bytes", f[4])
	}
	if row.Stream, err = parseLogStream(f[5], handles); err != nil {
		return row, err
	}
	detail := ""
	if len(f) == 7 {
		detail = f[6]
	}
	switch row.Action {
	case LogAlloc, LogFailure:
		if detail != "" {
			return row, fmt.Errorf("detail %q: want none", detail)
		}
	case LogFree:
		for _, u := range strings.Fields(detail) {
			used, err := strconv.ParseUint(u, 10, 32)
			if err != nil {
				return row, fmt.Errorf("stream %q in the detail: want a number", u)
			}
			row.Used = append(row.Used, driver.StreamID(used))
		}
	case LogMove:
		row.To, err = parseLogPointer(detail)
	default:
		err = fmt.Errorf("unknown action %q; known are %s, %s, %s, %s", f[2], LogAlloc, LogFailure, LogFree, LogMove)
	}
	return row, err
}

// logHandles is the maximum number of streams named by handles in a log, because logs are untrusted.
const logHandles = 1024

func parseLogStream(text string, handles map[uint64]driver.StreamID) (driver.StreamID, error) {
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("stream %q: want a number", text)
	}
	if n <= math.MaxUint32 {
		return driver.StreamID(n), nil
	}
	s, ok := handles[n]
	if !ok {
		if len(handles) == logHandles {
			return 0, fmt.Errorf("stream %q: the log already names %d streams by handles", text, logHandles)
		}
		s = driver.StreamID(3 + len(handles))
		handles[n] = s
	}
	return s, nil
}

func parseLogPointer(text string) (driver.Pointer, error) {
	if text == "(nil)" { // as RMM writes it where the C library does
		return 0, nil
	}
	hex, ok := strings.CutPrefix(text, "0x")
	p, err := strconv.ParseUint(hex, 16, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("address %q: want hexadecimal digits after 0x", text)
	}
	return driver.Pointer(p), nil
}

// ReplayLog repeats a log's allocations and frees on a, in order, on the streams that stream returns for the logged
// IDs. Requests that failed when logged, and moves, are skipped. It stops at the first row that is invalid, frees no
// live block, or whose request a refuses, with an error that gives the line. Blocks that are still live at the end are
// freed. Requests for no bytes, which RMM logs, are skipped.
func ReplayLog(log io.Reader, a mem.Allocator, stream func(driver.StreamID) (driver.Stream, error)) error {
	// By logged address, the oldest first: during a move a block may arrive at an address that another has not left
	// yet.
	live := map[driver.Pointer][]mem.Block{}
	defer func() {
		for _, blocks := range live {
			for _, b := range blocks {
				a.Free(b)
			}
		}
	}()
	leave := func(p driver.Pointer) (mem.Block, error) {
		blocks := live[p]
		if len(blocks) == 0 {
			return mem.Block{}, fmt.Errorf("no block is live at %#x", uint64(p))
		}
		if live[p] = blocks[1:]; len(blocks) == 1 {
			delete(live, p)
		}
		return blocks[0], nil
	}
	replay := func(row LogRow) error {
		switch row.Action {
		case LogAlloc:
			if row.Ptr == 0 && row.Size == 0 { // RMM logs empty requests, and their frees
				return nil
			}
			if len(live[row.Ptr]) > 0 {
				return fmt.Errorf("there is already a live block at %#x", uint64(row.Ptr))
			}
			s, err := stream(row.Stream)
			if err != nil {
				return err
			}
			b, err := a.Alloc(s, row.Size)
			if err == nil {
				live[row.Ptr] = append(live[row.Ptr], b)
			}
			return err
		case LogMove:
			b, err := leave(row.Ptr)
			if err == nil {
				live[row.To] = append(live[row.To], b)
			}
			return err
		case LogFree:
			if row.Ptr == 0 && row.Size == 0 {
				return nil
			}
			used := make([]driver.Stream, len(row.Used))
			for i, id := range row.Used {
				s, err := stream(id)
				if err != nil {
					return err
				}
				used[i] = s
			}
			b, err := leave(row.Ptr)
			if err == nil {
				a.Free(b, used...)
			}
			return err
		}
		return nil
	}
	for row, err := range ReadLog(log) {
		if err != nil {
			return err
		}
		if err := replay(row); err != nil {
			return fmt.Errorf("layer: log, line %d: %w", row.Line, err)
		}
	}
	return nil
}
