package engine

import (
	"context"
	"errors"
	"io"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/timeline"
)

// Events waits until the devices have done all work recorded so far, or ctx ends, and returns a recording for each
// device. If ctx ends first, the recordings have the events that were done. Config.MaxEvents limits the number of
// events that a device keeps.
func (e *Engine) Events(ctx context.Context) ([]*timeline.Recording, error) {
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	var all []*timeline.Recording
	var errs []error
	for _, d := range e.devices {
		r, err := d.recorder.Read(ctx)
		if r != nil {
			all = append(all, r)
		}
		errs = append(errs, err)
	}
	return all, e.unlessClosed(errors.Join(errs...))
}

// unlessClosed returns err, or ErrClosed if the call failed because Close had begun.
func (e *Engine) unlessClosed(err error) error {
	if errors.Is(err, driver.ErrClosed) && e.checkOpen() != nil {
		return ErrClosed
	}
	return err
}

// ResetEvents drops the events recorded so far, and aligns the clocks of the devices, so that their times can be shown
// together: see timeline.Align. Open does so if Config.EventLevel is set. The devices should be idle.
func (e *Engine) ResetEvents(ctx context.Context) error {
	if err := e.checkOpen(); err != nil {
		return err
	}
	return e.unlessClosed(e.alignEvents(ctx))
}

func (e *Engine) alignEvents(ctx context.Context) error {
	var clocks []*timeline.Recorder
	for _, d := range e.devices {
		d.recorder.Reset()
		if d.device.Timing() != nil {
			clocks = append(clocks, d.recorder)
		}
	}
	if len(clocks) < 2 {
		return nil
	}
	_, err := timeline.Align(ctx, clocks...)
	return err
}

// WriteTree writes the events of all sessions as a tree for each device: see timeline.WriteTree. It waits like Events.
func (e *Engine) WriteTree(ctx context.Context, w io.Writer) error {
	return write(ctx, e.Events, writeTrees(w))
}

// WriteTimeline writes the events of all sessions as bars over time, for each device: see timeline.WriteTimeline.
func (e *Engine) WriteTimeline(ctx context.Context, w io.Writer) error {
	return write(ctx, e.Events, writeTimelines(w))
}

// WriteChromeTrace writes the events of all sessions and devices as one file for chrome://tracing and Perfetto.
func (e *Engine) WriteChromeTrace(ctx context.Context, w io.Writer) error {
	return write(ctx, e.Events, writeChromeTrace(w))
}

// Events is Engine.Events for this session's events alone; in a task of EachDevice, for those of all tasks of its
// device.
func (s *Session) Events(ctx context.Context) ([]*timeline.Recording, error) {
	if err := s.enter("Events"); err != nil {
		return nil, err
	}
	defer s.guard.leave()
	var all []*timeline.Recording
	var errs []error
	for _, t := range s.recorded() {
		r, err := t.device.recorder.Read(ctx)
		if r != nil {
			all = append(all, only(r, s.name))
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// recorded returns the session's devices that have events.
func (s *Session) recorded() (with []*sessionDevice) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for _, t := range s.devices {
		if t != nil && t.lane != nil {
			with = append(with, t)
		}
	}
	return with
}

// WriteTree is Engine.WriteTree with this session's events alone.
func (s *Session) WriteTree(ctx context.Context, w io.Writer) error {
	return write(ctx, s.Events, writeTrees(w))
}

// WriteTimeline is Engine.WriteTimeline with this session's events alone.
func (s *Session) WriteTimeline(ctx context.Context, w io.Writer) error {
	return write(ctx, s.Events, writeTimelines(w))
}

// WriteChromeTrace is Engine.WriteChromeTrace with this session's events alone.
func (s *Session) WriteChromeTrace(ctx context.Context, w io.Writer) error {
	return write(ctx, s.Events, writeChromeTrace(w))
}

// write writes the recordings that events returns, also if an error says that some are missing.
func write(
	ctx context.Context, events func(context.Context) ([]*timeline.Recording, error),
	all func([]*timeline.Recording) error,
) error {
	recordings, err := events(ctx)
	if err != nil && recordings == nil {
		return err
	}
	return errors.Join(err, all(recordings))
}

func writeTrees(w io.Writer) func([]*timeline.Recording) error {
	return func(all []*timeline.Recording) error {
		for _, r := range all {
			if err := timeline.WriteTree(w, r, timeline.TreeOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

func writeTimelines(w io.Writer) func([]*timeline.Recording) error {
	return func(all []*timeline.Recording) error {
		for _, r := range all {
			if err := timeline.WriteTimeline(w, r, timeline.TimelineOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

func writeChromeTrace(w io.Writer) func([]*timeline.Recording) error {
	return func(all []*timeline.Recording) error { return timeline.WriteChromeTrace(w, all...) }
}

// only returns what one lane recorded. Spans lie within spans of their own lane.
func only(r *timeline.Recording, lane string) *timeline.Recording {
	out := *r
	out.Spans, out.Samples = nil, nil
	at := make([]int, len(r.Spans))
	for i, e := range r.Spans {
		if e.Lane != lane {
			continue
		}
		if e.Parent >= 0 {
			e.Parent = at[e.Parent]
		}
		at[i] = len(out.Spans)
		out.Spans = append(out.Spans, e)
	}
	for _, s := range r.Samples {
		if s.Lane == lane {
			out.Samples = append(out.Samples, s)
		}
	}
	return &out
}
