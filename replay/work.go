package replay

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/allocconf"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/replay/internal/capacity"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// H200Memory is the memory of an NVIDIA H200 in bytes, as cudaMemGetInfo reports it.
const H200Memory = capacity.H200

// A Work is the work of one device's allocator, ready to be run on others. It does not change, so several goroutines
// may run it.
type Work struct {
	Device   int // ordinal; 0 of a script
	Program  *trace.Program
	Recorded caching.Config // recorded settings; PyTorch's defaults for a script
	Notes    []string       // remarks for the user about the recording, one sentence each
	Script   bool           // it was made from a script, not a recording
	Capacity int64          // memory of the device in a script, in bytes; 0 if it has none

	RecordedReserved int64     // the reserved peak of the recording, in bytes
	NumFailures      int       // requests without room in the recording
	Failures         []Failure // the first MaxOOMs of them
	// RecordedLimit is the maximum of reserved bytes in the recorded process: the limit in the file or its settings
	// (LimitKnown), or a lower bound of it that follows from the failures of the recording. It is 0 if nothing is
	// known.
	RecordedLimit int64
	LimitKnown    bool

	snapshot *snapshot.Snapshot // nil for a script
	part     bool               // it was made by Part
}

// Works returns the work of each device with a history in s, by ordinal. The error matches verify.ErrNoHistory if there
// is none.
func Works(s *snapshot.Snapshot) ([]*Work, error) {
	return worksOf(s, func(device int, cfg *caching.Config) (*trace.Program, error) {
		return s.Program(device, trace.ProgramOptions{
			Attempts:            true,
			NoGarbageCollection: cfg.GarbageCollectionThreshold == 0,
		})
	})
}

// Histories is Works without the requests: the Program of each has a Prelude and Anomalies only. It tells about the
// recordings of snapshot.ReadCompact in a small part of the time and memory.
func Histories(s *snapshot.Snapshot) ([]*Work, error) {
	return worksOf(s, func(device int, _ *caching.Config) (*trace.Program, error) {
		l, err := s.Lifetimes(device)
		if err != nil {
			return nil, err
		}
		return &trace.Program{Prelude: l.Prelude, Anomalies: l.Anomalies}, nil
	})
}

// worksOf returns the works with the programs that a function returns.
func worksOf(
	s *snapshot.Snapshot, program func(device int, cfg *caching.Config) (*trace.Program, error),
) ([]*Work, error) {
	cfg, notes, err := usableConfig(s)
	if err != nil {
		return nil, err
	}
	var works []*Work
	for device, t := range s.Traces {
		if t == nil || t.Len() == 0 {
			continue
		}
		p, err := program(device, &cfg)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", device, err)
		}
		w := workOf(s, device, historyOf(t), p, cfg)
		w.Notes = append(w.Notes, notes...)
		works = append(works, w)
	}
	if len(works) == 0 {
		return nil, verify.ErrNoHistory
	}
	return works, nil
}

func workOf(s *snapshot.Snapshot, device int, h *history, p *trace.Program, cfg caching.Config) *Work {
	t, w := s.Traces[device], &Work{Device: device, Program: p, Recorded: cfg, snapshot: s}
	w.history(s, h)
	w.findLimit(s)
	if n := p.Prelude.Blocks; n > 0 {
		what := fmt.Sprintf("%d blocks, %s in all, were there before it, and are", n, bytesize.Format(p.Prelude.Bytes))
		if n == 1 {
			what = fmt.Sprintf("1 block of %s was there before it, and is", bytesize.Format(p.Prelude.Bytes))
		}
		w.Notes = append(w.Notes, "The recording starts late: "+what+" allocated first here.")
	}
	if n := len(t.Gaps); n > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("Recording was off %s: what was allocated then is freed there, and "+
			"what shows up later is allocated there.", times(n)))
	}
	switch n := p.Anomalies.Count; {
	case n == 1:
		w.Notes = append(w.Notes, fmt.Sprintf("1 entry contradicts those before it: %v.", p.Anomalies.First[0]))
	case n > 1:
		w.Notes = append(w.Notes, fmt.Sprintf("%d entries contradict those before them; the first: %v.",
			n, p.Anomalies.First[0]))
	}
	return w
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// usableConfig is verify.RecordedConfig without unknown settings, which become notes: a replay does not need them.
func usableConfig(s *snapshot.Snapshot) (caching.Config, []string, error) {
	cfg, notes, err := verify.RecordedConfig(s)
	if err == nil {
		return cfg, notes, nil
	}
	known := *s
	known.Settings.Conf = ""
	var ignored []string
	for _, setting := range allocconf.Split(s.Settings.Conf) {
		if _, _, err := caching.ParseConfig(setting); err != nil {
			ignored = append(ignored, fmt.Sprintf("The recorded setting %q is not understood, and is ignored.",
				setting))
			continue
		}
		if known.Settings.Conf != "" {
			known.Settings.Conf += ","
		}
		known.Settings.Conf += setting
	}
	cfg, notes, err = verify.RecordedConfig(&known)
	if err == nil {
		return cfg, append(ignored, notes...), nil
	}
	return caching.Default(), []string{fmt.Sprintf("The recorded settings mean nothing here (%v): PyTorch's defaults "+
		"stand for them.", err)}, nil
}

// ScriptWork returns the work of a script (see trace.Script.Program). The memory size of a simulated device in the
// script is used (device sim total=1GiB); other devices are a *trace.ScriptError. The allocator in the script is
// ignored, with a note, since work is compared on several.
func ScriptWork(s *trace.Script) (*Work, error) {
	p, err := s.Program()
	if err != nil {
		return nil, err
	}
	w := &Work{Program: p, Recorded: caching.Default(), Script: true}
	for i := range s.Commands {
		c := &s.Commands[i]
		fail := func(format string, args ...any) (*Work, error) {
			return nil, &trace.ScriptError{Line: i + 1, Column: 1, What: fmt.Sprintf(format, args...)}
		}
		switch c.Verb {
		case trace.VerbAllocator:
			w.Notes = append(w.Notes, fmt.Sprintf("Line %d of the script names an allocator, which does not count: "+
				"the rows have their own.", i+1))
		case trace.VerbDevice:
			switch {
			case w.Capacity > 0:
				return fail("device: a comparison has one device, and the script named one before")
			case c.Name != "sim":
				return fail("device %s: a comparison chooses where it runs itself; here device sim total=SIZE can "+
					"say how much memory there is", c.Name)
			}
			for _, arg := range c.Args {
				total, ok := strings.CutPrefix(arg, "total=")
				if !ok {
					return fail("device sim: a comparison knows total=SIZE alone, not %s", arg)
				}
				if w.Capacity, err = bytesize.Parse(total); err != nil {
					return fail("device sim: %v", err)
				}
				if w.Capacity < 1 || w.Capacity > sim.MaxTotal {
					return fail("device sim: total %q: want 1 byte to %s", total, bytesize.Exact(sim.MaxTotal))
				}
			}
		}
	}
	return w, nil
}

// Part returns the ops [from, to) of w.Program as work of its own: see trace.Program.Part. The recorded limit stays
// that of the whole recording. The row AsRecorded of Compare has the figures of a run on the simulated device.
func (w *Work) Part(from, to int) *Work {
	part := *w
	part.Program = w.Program.Part(from, to)
	part.part = true
	part.RecordedReserved, part.NumFailures, part.Failures = 0, 0, nil
	return &part
}

// capacity returns the memory of a device for w, in bytes: asked, or that of the script if asked is 0, or else an
// H200's.
func (w *Work) capacity(asked int64) (int64, error) {
	asked = cmp.Or(asked, w.Capacity)
	return capacity.Of(asked)
}
