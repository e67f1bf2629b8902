package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// The minimum levels of WithDebug at which a kind of record goes to Config.Log. The numbers are BMEngine's.
const (
	DebugMemory  = 1 // used and peak memory, at the end of WithDebug and after Collect
	DebugDevices = 2 // changes of the current device; caches reserved, used and freed
	DebugCopies  = 3 // copies that CopyTo makes or finds
	DebugBlocks  = 6 // each block allocated, refused or freed, with its size and address
)

// Debug returns the level that WithDebug set; 0 outside of it.
func (s *Session) Debug() int {
	if s.guard.lock("Debug") == nil {
		defer s.guard.unlock()
	}
	return s.debug
}

// WithDebug calls f with a debug level, and restores the previous level when f ends. While f runs, the session logs to
// Config.Log, at slog.LevelInfo and with its name, according to the level: see DebugMemory, DebugDevices, DebugCopies
// and DebugBlocks. Without Config.Log nothing is logged, and Debug returns the level for the program's own use. A
// goroutine that frees a block of the session logs the free. Requests with mem.AllocOptions.Logged are not logged.
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
	for _, t := range s.devices {
		if t != nil {
			s.setBlockLog(t)
		}
	}
}

// setBlockLog logs the blocks of a session's device from now on, if the level is high enough.
func (s *Session) setBlockLog(t *sessionDevice) {
	var l *blockLog
	if logger := s.engine.config.Log; logger != nil && s.debug >= DebugBlocks {
		l = &blockLog{logger: logger, session: s.name, device: t.device.index}
	}
	t.usage.log.Store(l)
}

// log writes a record to Config.Log, if the level is high enough.
func (s *Session) log(level int, message string, attrs ...slog.Attr) {
	if logger := s.engine.config.Log; logger != nil && s.debug >= level {
		attrs = append([]slog.Attr{slog.String("session", s.name)}, attrs...)
		logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
	}
}

// logMemory logs the session's used and peak memory on each device.
func (s *Session) logMemory(message string) {
	for _, t := range s.devices {
		if t != nil {
			s.log(DebugMemory, message, slog.Int("device", t.device.index), slog.Int64("used", t.usage.used.Load()),
				slog.Int64("peak", t.usage.peak.Load()))
		}
	}
}

// A blockLog logs the blocks of a session on one device. It is called without locks.
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
