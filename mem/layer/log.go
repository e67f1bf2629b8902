package layer

import (
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
)

// LogHeader is the first line of a log. Its first six columns are those of RMM's logs:
//
//	Thread   always 0: goroutines have no numbers
//	Time     15:04:05.000000, or the number of the row if NewLogger was given no clock
//	Action   a LogAction
//	Pointer  0x7f0000; 0x0 for a request that failed; for a move the old address
//	Size     bytes: the requested size for a request, the block's size otherwise
//	Stream   number of the request's stream; 0 for other actions
//	Detail   for a free the streams that still use the block, separated by spaces; for a move the new address
const LogHeader = "Thread,Time,Action,Pointer,Size,Stream,Detail"

// A LogAction is the action of a row of a log.
type LogAction string

// These are the actions of a log. RMM has the first three.
const (
	LogAlloc   LogAction = "allocate"
	LogFailure LogAction = "allocate failure"
	LogFree    LogAction = "free"
	LogMove    LogAction = "move"
)

// A Logger logs the calls of an allocator. See NewLogger.
type Logger struct {
	Pass
	clock func() time.Time

	mu         sync.Mutex // held while w writes
	w          io.Writer
	rows       int64
	row        []byte
	err        error
	suppressed map[driver.Pointer]struct{} // blocks of requests with AllocOptions.Logged, except those being moved
}

// NewLogger returns an allocator that writes a row of CSV to w for each block of a that is allocated, freed or moved,
// and for each request that fails; LogHeader documents the columns. ReadLog parses a log and ReplayLog repeats it on
// any allocator. Readers of RMM's logs can read the first six columns. clock returns the times; nil numbers the rows.
//
// Each row is one Write under the log's lock; for a move the allocator below holds its locks too. So w must not block
// for long or allocate through the Logger: give it a buffer, and flush the buffer. A free is logged before its address
// can be allocated again. If w fails, the log ends, the allocator continues, and Err returns the error.
func NewLogger(a mem.Allocator, w io.Writer, clock func() time.Time) *Logger {
	l := &Logger{Pass: Pass{a}, clock: clock, w: w}
	_, l.err = w.Write([]byte(LogHeader + "\n"))
	return l
}

// Alloc implements mem.Allocator.
func (l *Logger) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	return l.AllocWith(s, size, mem.AllocOptions{})
}

// AllocWith implements mem.OptionsAllocator. With Logged no row is written for the request or for later calls with its
// block. A request that fails is logged in any case, unless it is Tentative.
func (l *Logger) AllocWith(s driver.Stream, size int64, o mem.AllocOptions) (mem.Block, error) {
	b, err := mem.AllocWith(l.Below, s, size, o)
	switch {
	case err == nil && o.Logged && b.Ptr != 0:
		l.suppress(b.Ptr)
	case err != nil && o.Tentative:
	case err != nil:
		l.write(LogFailure, 0, size, s.ID(), nil, 0)
	case b.Ptr != 0:
		l.write(LogAlloc, b.Ptr, size, s.ID(), nil, 0)
	}
	return b, err
}

// suppress excludes the block at p from the log.
func (l *Logger) suppress(p driver.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suppressed == nil {
		l.suppressed = map[driver.Pointer]struct{}{}
	}
	l.suppressed[p] = struct{}{}
}

// takeSuppressed ends the exclusion of the block at p, and reports whether it was excluded. The caller holds mu.
func (l *Logger) takeSuppressed(p driver.Pointer) bool {
	if len(l.suppressed) == 0 {
		return false
	}
	_, silent := l.suppressed[p]
	delete(l.suppressed, p)
	return silent
}

// Free implements mem.Allocator. The row is written first.
func (l *Logger) Free(b mem.Block, used ...driver.Stream) {
	check.Used("layer: Logger: Free", used)
	if b.Ptr != 0 {
		l.write(LogFree, b.Ptr, b.Size, 0, used, 0)
	}
	l.Below.Free(b, used...)
}

func (l *Logger) write(
	action LogAction, ptr driver.Pointer, size int64, s driver.StreamID, used []driver.Stream, to driver.Pointer,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if action == LogFree && l.takeSuppressed(ptr) || l.err != nil {
		return
	}
	l.rows++
	row := append(l.row[:0], "0,"...)
	if l.clock != nil {
		row = l.clock().AppendFormat(row, "15:04:05.000000")
	} else {
		row = strconv.AppendInt(row, l.rows, 10)
	}
	row = append(append(append(row, ','), action...), ",0x"...)
	row = strconv.AppendUint(row, uint64(ptr), 16)
	row = strconv.AppendInt(append(row, ','), size, 10)
	row = append(strconv.AppendUint(append(row, ','), uint64(s), 10), ',')
	for i, u := range used {
		if i > 0 {
			row = append(row, ' ')
		}
		row = strconv.AppendUint(row, uint64(u.ID()), 10)
	}
	if action == LogMove {
		row = strconv.AppendUint(append(row, "0x"...), uint64(to), 16)
	}
	l.row = append(row, '\n')
	_, l.err = l.w.Write(l.row)
}

// Err returns the error that ended the log, or nil.
func (l *Logger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Movable implements mem.Mover: moves are logged.
func (l *Logger) Movable(b mem.Block, h mem.Holder) bool {
	return b.Ptr != 0 && mem.Movable(l.Below, b, &loggedHolder{log: l, holder: h, block: b})
}

// A loggedHolder stands between a block's holder and the allocator below, which moves the block, and logs the move.
type loggedHolder struct {
	log        *Logger
	holder     mem.Holder
	block      mem.Block
	suppressed bool // during a move: the block is excluded from the log. Its old address may be another block's by then
}

// BeginMove implements mem.Holder.
func (k *loggedHolder) BeginMove() ([]driver.Stream, bool) {
	used, ok := k.holder.BeginMove()
	if ok {
		k.log.mu.Lock()
		k.suppressed = k.log.takeSuppressed(k.block.Ptr)
		k.log.mu.Unlock()
	}
	return used, ok
}

// EndMove implements mem.Holder. It writes the row before it calls the holder, and so before the row of any Free.
func (k *loggedHolder) EndMove(b mem.Block, s driver.Stream) {
	switch {
	case k.suppressed:
		k.log.suppress(b.Ptr)
	case b.Ptr != k.block.Ptr:
		k.log.write(LogMove, k.block.Ptr, b.Size, 0, nil, b.Ptr)
	}
	k.block = b
	k.holder.EndMove(b, s)
}
