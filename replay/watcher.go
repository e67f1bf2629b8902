package replay

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A Watcher derives the work of a recording, without its requests, while snapshot.Scan reads it: pass its Watch to
// Scan. Not safe for concurrent use. The zero value is ready.
type Watcher struct {
	program trace.ProgramWatcher
	history history
}

// Watch takes the next events.
func (w *Watcher) Watch(events []trace.Event) {
	w.program.Watch(events)
	for i := range events {
		w.history.add(&events[i])
	}
}

// ErrNotWatched is matched by the error of Watcher.Work for a recording that must be read whole, for Histories.
var ErrNotWatched = errors.New("replay: the recording must be read whole to be understood")

// Work returns the work that Histories returns for the recording that was scanned, which must have events. The error is
// that of Histories, or ErrNotWatched. It must be called once.
func (w *Watcher) Work(s *snapshot.Scanned) (*Work, error) {
	cfg, notes, err := usableConfig(s.Snapshot)
	if err != nil {
		return nil, err
	}
	p, err := w.program.Program(s.Traces[s.Device], s.Numbers, s.ProgramOptions(s.Device))
	switch {
	case err != nil:
		return nil, fmt.Errorf("device %d: %w", s.Device, err)
	case p == nil:
		return nil, ErrNotWatched
	}
	for i := range w.history.failures {
		s.Numbers.Replace(&w.history.failures[i].event)
	}
	work := workOf(s.Snapshot, s.Device, &w.history, &trace.Program{Prelude: p.Prelude, Anomalies: p.Anomalies}, cfg)
	work.Notes = append(work.Notes, notes...)
	return work, nil
}
