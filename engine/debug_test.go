package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/tensor"
)

// The configured logger receives more messages at each higher level of WithDebug. It receives none outside WithDebug,
// and none of other sessions.
func TestDefect20_DebugLevelsLog(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	e, _ := simulated(t, 2, Config{Log: logger})
	other := session(t, e)
	var s *Session
	failed := errors.New("failed")
	var kept *tensor.Tensor
	work := func() error {
		x := floats(t, s.Place(), 100)
		floats(t, other.Place(), 100).Release()
		for range 2 {
			if _, err := s.CopyTo(t.Context(), x, 1); err != nil {
				t.Error(err)
			}
		}
		testkit.Must(t, s.OnDevice(1, func() error { return nil }))
		testkit.Must(t, s.ReserveCache(1<<20))
		testkit.Must(t, s.UseCache(func() error {
			if _, err := s.Place().Alloc(2 << 20); !errors.Is(err, mem.ErrNoMemory) {
				t.Errorf("more than the cache: %v", err)
			}
			return nil
		}))
		testkit.Must(t, s.FreeCache())
		b, err := mem.AllocWith(e.Allocator(0), s.Place().Stream(), 64, mem.AllocOptions{Logged: true})
		testkit.Must(t, err)
		e.Allocator(0).Free(b)
		elsewhere(x.Release)
		kept = s.Keep(floats(t, s.Place(), 1))
		return failed
	}
	wants := []struct {
		level int
		lines []string
	}{
		{0, nil},
		{DebugMemory, []string{`msg="used memory" session="session N" device=0 used=4 peak=464`, `msg="used memory" session="session N" device=1 used=0 peak=400`}},
		{DebugDevices, []string{
			`msg=OnDevice session="session N" from=0 to=1`,
			`msg=ReserveCache session="session N" device=0 bytes=1048576`,
			`msg=UseCache session="session N" device=0 bytes=1048576`,
			`msg=FreeCache session="session N" device=0 bytes=1048576`,
		}},
		{DebugCopies, []string{
			`msg=CopyTo session="session N" tensor=float32[100] from=sim device=1`,
			`msg="CopyTo found the copy" session="session N" tensor=float32[100] device=1`,
		}},
		{DebugBlocks, []string{
			`msg=alloc session="session N" device=0 bytes=400 block=512 address=0x… stream=S used=400`,
			`msg=alloc session="session N" device=1 bytes=400 block=512 address=0x… stream=S used=400`,
			`msg="alloc refused" session="session N" device=0 bytes=2097152 stream=S error="mem: out of memory.`,
			`msg=free session="session N" device=0 bytes=400 block=512 address=0x… used=0`,
			`msg=free session="session N" device=1 bytes=400 block=512 address=0x… used=0`,
			`msg=alloc session="session N" device=0 bytes=4 block=512 address=0x… stream=S used=4`,
		}},
	}
	address, number := regexp.MustCompile(`0x[0-9a-f]+`), regexp.MustCompile(`"session \d+" `)
	stream := regexp.MustCompile(`stream=\d+ `)
	for i, w := range wants {
		out.Reset()
		s = session(t, e)
		if err := s.WithDebug(w.level, work); err != failed {
			t.Errorf("level %d: %v", w.level, err)
		}
		kept.Release()
		if s.Debug() != 0 {
			t.Errorf("level %d after WithDebug", s.Debug())
		}
		text := number.ReplaceAllString(address.ReplaceAllString(out.String(), "0x…"), `"session N" `)
		text = stream.ReplaceAllString(text, "stream=S ")
		n := 0
		for _, lower := range wants[:i+1] {
			for _, line := range lower.lines {
				n++
				if !strings.Contains(text, "level=INFO "+line) {
					t.Errorf("level %d: no %q in\n%s", w.level, line, text)
				}
			}
		}
		if w.level == DebugBlocks {
			n++ // what is refused is asked for twice: dropped tensors are looked for
		}
		if got := strings.Count(text, "\n"); got != n {
			t.Errorf("level %d: %d lines, want %d:\n%s", w.level, got, n, text)
		}
	}
}
