package paged

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem/internal/reuse"
)

// waits records how far streams have progressed, in numbers of frees, which reuse.Streams counts. A free makes no
// driver call. Before pages are remapped, each stream gets a mark, unless no memory that it used was freed since its
// last one. So by the time that a page is the least recently used, there usually is a mark soon after its free.
type waits struct {
	dev      driver.Device
	streams  *reuse.Streams
	waiter   driver.Stream    // waits for marks of other streams; nil until needed
	copier   driver.Stream    // copies contents for Pause and Resume; nil until needed
	progress []streamProgress // by stream number
}

// A streamProgress is the known progress of one stream.
type streamProgress struct {
	stream driver.Stream
	done   uint64      // the work queued before this many frees is done
	marks  []timedMark // in order, not known to be reached
}

// A timedMark is a mark and the number of frees before it.
type timedMark struct {
	frees uint64
	mark  driver.Mark
}

const maxMarks = 64 // per stream; beyond that, every other mark is dropped

func (w *waits) of(s driver.Stream) *streamProgress {
	id := int(s.ID())
	for id >= len(w.progress) {
		w.progress = append(w.progress, streamProgress{})
	}
	if w.progress[id].stream != s {
		w.progress[id] = streamProgress{stream: s}
	}
	return &w.progress[id]
}

// mark takes a mark of each stream that does not capture. A mark that fails is retried by done when it is needed.
func (w *waits) mark() {
	for s := range w.streams.Registered() {
		p, last := w.of(s), w.streams.LastFree(s)
		if n := len(p.marks); p.done >= last || n > 0 && p.marks[n-1].frees >= last {
			continue
		}
		if w.streams.NotCapturing(s) != nil {
			continue
		}
		if m, err := s.Mark(); err == nil {
			p.add(timedMark{w.streams.Frees(), m})
		}
	}
}

func (p *streamProgress) add(s timedMark) {
	if len(p.marks) == maxMarks {
		for i := range maxMarks / 2 {
			p.marks[i] = p.marks[2*i+1]
		}
		p.marks = p.marks[:maxMarks/2]
	}
	p.marks = append(p.marks, s)
}

// done reports whether the work that streams had queued before a free is done. If it is not and wait is set, it waits
// for that work only.
func (w *waits) done(of reuse.Set, freed uint64, wait bool) (done, stalled bool, err error) {
	for s := range w.streams.All(of) {
		p := w.of(s)
		freed := min(freed, w.streams.LastFree(s)) // what s queued for memory came before the last free of what it used
		if p.done >= freed {
			continue
		}
		i, _ := slices.BinarySearchFunc(p.marks, freed, func(m timedMark, frees uint64) int {
			if m.frees < frees {
				return -1
			}
			return 1
		})
		if i == len(p.marks) {
			err := w.streams.NotCapturing(s)
			var m driver.Mark
			if err == nil {
				m, err = s.Mark()
			}
			if errors.Is(err, driver.ErrClosed) && w.alive() {
				p.done = w.streams.Frees()
				continue
			}
			if err != nil {
				return false, stalled, err
			}
			p.add(timedMark{w.streams.Frees(), m})
			i = len(p.marks) - 1
		}
		at := p.marks[i]
		reached, err := s.Reached(at.mark)
		if errors.Is(err, driver.ErrClosed) && w.alive() {
			reached, err = true, nil
		}
		if err != nil {
			return false, stalled, err
		}
		if !reached {
			if !wait {
				return false, stalled, nil
			}
			if err := w.waitFor(s, at.mark); err != nil {
				return false, stalled, err
			}
			stalled = true
		}
		p.done = at.frees
		p.marks = slices.Delete(p.marks, 0, i+1)
	}
	return true, stalled, nil
}

// sets visits every set of streams that the allocator holds.
func (a *Allocator) sets(yield func(reuse.Set) bool) {
	for n := range a.spans.n {
		for i := range a.spans.chunks[n] {
			if !yield(a.spans.chunks[n][i].deps.Users) {
				return
			}
		}
	}
	for i := range a.mappings {
		if m := &a.mappings[i]; !yield(m.deps.Users) || !yield(m.pageDeps.Users) {
			return
		}
	}
	for i := range a.pages {
		if !yield(a.pages[i].deps.Users) {
			return
		}
	}
}

// alive reports whether the device is open. If so, ErrClosed means that only the stream is closed.
func (w *waits) alive() bool {
	_, _, err := w.dev.Available()
	return err == nil
}

// waitFor blocks until a mark is reached.
func (w *waits) waitFor(s driver.Stream, m driver.Mark) (err error) {
	if w.waiter == nil {
		if w.waiter, err = w.dev.NewStream(driver.StreamOptions{}); err != nil {
			w.waiter = nil
			return err
		}
	}
	if err = w.waiter.WaitFor(s, m); err == nil {
		return w.waiter.Sync(context.Background())
	}
	if errors.Is(err, driver.ErrClosed) && w.alive() {
		return nil
	}
	return err
}

// openCopier opens the copier, unless it is open.
func (w *waits) openCopier() (err error) {
	if w.copier == nil {
		w.copier, err = w.dev.NewStream(driver.StreamOptions{})
	}
	if err != nil {
		w.copier = nil
	}
	return err
}

func (w *waits) close() error {
	for _, s := range []*driver.Stream{&w.waiter, &w.copier} {
		if *s == nil {
			continue
		}
		if err := (*s).Close(); err != nil {
			return err
		}
		*s = nil
	}
	return nil
}
