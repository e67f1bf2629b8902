package replay

import (
	"fmt"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// Work is what one device's allocator was asked to do, ready to be given to others. It is not changed by use, so
// several goroutines may run it.
type Work struct {
	Device   int // ordinal; 0 of a script
	Program  *trace.Program
	Recorded caching.Config // what the work was recorded under; PyTorch's defaults for a script
	Notes    []string       // what a person should know about the recording, one sentence each

	snapshot *snapshot.Snapshot // nil for a script
}

// Works returns the work of each device that has a history in s, in the order of their ordinals. The error matches
// ErrNoHistory if there is none.
func Works(s *snapshot.Snapshot) ([]*Work, error) {
	cfg, notes, err := RecordedConfig(s)
	if err != nil {
		return nil, err
	}
	var works []*Work
	for device, t := range s.Traces {
		if t == nil || len(t.Events) == 0 {
			continue
		}
		w, err := workOf(s, device, t, cfg)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", device, err)
		}
		w.Notes = append(w.Notes, notes...)
		works = append(works, w)
	}
	if len(works) == 0 {
		return nil, ErrNoHistory
	}
	return works, nil
}

func workOf(s *snapshot.Snapshot, device int, t *trace.Trace, cfg caching.Config) (*Work, error) {
	var live []trace.LiveBlock
	var ranges []trace.PoolRange
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != device {
			continue
		}
		ranges = append(ranges, trace.PoolRange{Ptr: seg.Ptr, Size: seg.TotalSize, Pool: seg.Pool})
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			if b.State == mem.Inactive {
				continue
			}
			size := b.RequestedSize
			if size == 0 {
				size = b.Size // files from before it was recorded
			}
			live = append(live, trace.LiveBlock{Ptr: b.Ptr, Size: size, Stream: seg.Stream, Pool: seg.Pool})
		}
	}
	p, err := trace.ToProgram(t, trace.ProgramOptions{
		Live:                live,
		PoolOf:              t.PoolsByAddress(ranges),
		Attempts:            true,
		NoGarbageCollection: cfg.GarbageCollectionThreshold == 0,
	})
	if err != nil {
		return nil, err
	}
	w := &Work{Device: device, Program: p, Recorded: cfg, snapshot: s}
	if n := p.Prelude.Blocks; n > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("The recording starts late: %d blocks of %d bytes were there before it, and "+
			"are allocated first here.", n, p.Prelude.Bytes))
	}
	if n := p.Anomalies.Count; n > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%d entries contradict those before them; the first: %v.",
			n, p.Anomalies.First[0]))
	}
	return w, nil
}

// ScriptWork returns the work of a script that is a program (see trace.Script.Program). Its device and allocator
// commands do not count.
func ScriptWork(s *trace.Script) (*Work, error) {
	p, err := s.Program()
	if err != nil {
		return nil, err
	}
	return &Work{Program: p, Recorded: caching.Default()}, nil
}
