package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// Levels of WithDebug from which on Config.Log is told of a kind of thing. The numbers are those at which BMEngine
// prints it.
const (
	DebugMemory  = 1 // the memory used, and the most that was, at the end of WithDebug and after Collect
	DebugDevices = 2 // changes of the current device; caches that are reserved, used and given back
	DebugCopies  = 3 // what CopyTo copies, or finds copied
	DebugBlocks  = 6 // every block that is handed out, refused, or freed, with its size and address
)

// Debug returns the level that WithDebug set, 0 outside of it.
func (s *Session) Debug() int {
	if s.guard.lock("Debug") == nil {
		defer s.guard.unlock()
	}
	return s.debug
}

// WithDebug calls f with a debug level, and sets the one before again however f ends. From DebugMemory, DebugDevices,
// DebugCopies and DebugBlocks on, Config.Log is told what this session does while f runs, at slog.LevelInfo and with
// the session's name. Without Config.Log the level is the program's own, for what it writes itself. A goroutine that
// frees a block of the session's logs it. Those of a request with mem.AllocOptions.Logged are left out.
func (s *Session) WithDebug(level int, f func() error) error {
	if err := s.enter("WithDebug"); err != nil {
		return err
	}
	defer s.guard.leave()
	before, events := s.debug, s.events.mark()
	defer func() {
		s.logMemory("used memory")
		s.setDebug(before)
		s.events.dropFrom(events)
	}()
	s.setDebug(level)
	return f()
}

func (s *Session) setDebug(level int) {
	s.debug = level
	for _, t := range s.seats {
		if t != nil {
			s.watch(t)
		}
	}
}

// watch has a seat's blocks logged, if the level says so.
func (s *Session) watch(t *seat) {
	var l *blockLog
	if logger := s.engine.config.Log; logger != nil && s.debug >= DebugBlocks {
		l = &blockLog{logger: logger, session: s.name, device: t.device.index}
	}
	t.usage.log.Store(l)
}

// log tells Config.Log of something, if the level is high enough.
func (s *Session) log(level int, message string, attrs ...slog.Attr) {
	if logger := s.engine.config.Log; logger != nil && s.debug >= level {
		attrs = append([]slog.Attr{slog.String("session", s.name)}, attrs...)
		logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
	}
}

// logMemory tells what the session uses on each device.
func (s *Session) logMemory(message string) {
	for _, t := range s.seats {
		if t != nil {
			s.log(DebugMemory, message, slog.Int("device", t.device.index), slog.Int64("used", t.usage.used.Load()),
				slog.Int64("peak", t.usage.peak.Load()))
		}
	}
}

// A blockLog tells of the blocks of a session on one device. It is called without locks.
type blockLog struct {
	logger  *slog.Logger
	session string
	device  int
}

func (l *blockLog) allocated(u *usage, s driver.Stream, size int64, b mem.Block, err error) {
	asked, stream := slog.Int64("bytes", size), slog.Uint64("stream", uint64(s.ID()))
	if err != nil {
		l.write("alloc refused", u, asked, stream, slog.Any("error", err))
		return
	}
	l.write("alloc", u, asked, slog.Int64("block", b.Size), address(b), stream)
}

func (l *blockLog) freed(u *usage, size int64, b mem.Block) {
	l.write("free", u, slog.Int64("bytes", size), slog.Int64("block", b.Size), address(b))
}

func (l *blockLog) write(message string, u *usage, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("session", l.session), slog.Int("device", l.device)}, attrs...)
	attrs = append(attrs, slog.Int64("used", u.used.Load()))
	l.logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
}

func address(b mem.Block) slog.Attr { return slog.String("address", fmt.Sprintf("%#x", uint64(b.Ptr))) }
