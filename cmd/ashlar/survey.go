package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A survey sums up the entries of a device one by one, in memory that does not depend on their number.
type survey struct {
	most int64 // bytes: larger blocks are left out; 0: no block is

	entries    int
	counts     [mem.NumActions]int
	start, end int64
	sums       trace.Totals // from nothing at the start
	leftOut    int64        // requested bytes of the active blocks that are left out
	memory     memoryOverTime
	biggest    biggest
	largest    int64 // bytes of a block

	oversized      int    // entries that were left out
	firstOversized string // in words

	numbers trace.Numbers // replace those of the entries
	work    *replay.Work  // of the history; nil if it cannot be replayed
}

// add adds the next entries.
func (n *survey) add(events []trace.Event) {
	if n.entries == 0 && len(events) > 0 {
		n.start, n.end = events[0].TimeUS, events[0].TimeUS
	}
	for i := range events {
		e := &events[i]
		if e.Action < mem.NumActions {
			n.counts[e.Action]++
		}
		n.start, n.end = min(n.start, e.TimeUS), max(n.end, e.TimeUS)
		if e.Action == mem.ActionAlloc || e.Action == mem.ActionFreeCompleted {
			n.largest = max(n.largest, e.Size)
		}
		if n.implausible(e) {
			n.leaveOut(e)
		} else {
			n.sums.Add(e.Action, e.Size)
			n.biggest.add(e)
		}
		n.memory.add(e.TimeUS, sums{n.sums.Requested.Current, n.sums.Reserved.Current})
		n.entries++
	}
}

// implausible reports whether an entry is for a block larger than the reserved peak.
func (n *survey) implausible(e *trace.Event) bool {
	return n.most > 0 && e.Size > n.most && (e.Action == mem.ActionAlloc || e.Action == mem.ActionFreeCompleted)
}

// leaveOut counts an entry that is implausible.
func (n *survey) leaveOut(e *trace.Event) {
	if n.oversized++; n.oversized == 1 {
		n.firstOversized = fmt.Sprintf("entry %s: %v of %s bytes", count(n.entries), e.Action, count(e.Size))
	}
	if e.Action == mem.ActionAlloc {
		n.leftOut += e.Size
	} else {
		n.leftOut -= e.Size
	}
}

// readSurveyed reads a trace as a stream, with surveys in place of events, if that is possible. Other traces are read
// again, and whole, and so is standard input, which cannot be read again.
func readSurveyed(path string, stdin io.Reader, p *progress) (*input, error) {
	if !canReadAgain(path) {
		return readCompact(path, stdin, p)
	}
	in, n, err := surveyFile(path, p, 0)
	if err == nil && n != nil && n.work != nil && n.largest > n.work.RecordedReserved && n.work.RecordedReserved > 0 {
		in, _, err = surveyFile(path, p, n.work.RecordedReserved)
	}
	if errors.Is(err, snapshot.ErrNotScanned) {
		return readCompact(path, stdin, p)
	}
	return in, err
}

// canReadAgain reports whether a path is a file with a snapshot. Pipes and standard input can be read only once.
func canReadAgain(path string) bool {
	info, err := os.Stat(path)
	return err == nil && path != "-" && info.Mode().IsRegular() && !strings.HasSuffix(path, ".script")
}

// surveyFile reads a file as a stream. The survey is that of its device with a history, or nil if there is none; it
// leaves out blocks of more than most bytes, unless that is 0.
func surveyFile(path string, p *progress, most int64) (*input, *survey, error) {
	n, watcher := &survey{most: most}, &replay.Watcher{}
	var s *snapshot.Scanned
	in, err := readWith(path, nil, p, func(r io.Reader) (_ *snapshot.Snapshot, err error) {
		s, err = snapshot.Scan(r, snapshot.Limits{}, func(events []trace.Event) {
			watcher.Watch(events)
			n.add(events)
		})
		if err != nil {
			return nil, err
		}
		return s.Snapshot, nil
	})
	if err != nil {
		return in, nil, err
	}
	if in.surveys = map[int]*survey{}; s.Events == 0 {
		return in, nil, nil
	}
	work, err := watcher.Work(s)
	if errors.Is(err, replay.ErrNotWatched) {
		return in, nil, snapshot.ErrNotScanned
	}
	n.work, n.numbers = work, s.Numbers // what cannot be replayed is summed up all the same
	in.surveys[s.Device] = n
	return in, n, nil
}

// surveysOf surveys the histories of a snapshot that has their events.
func surveysOf(s *snapshot.Snapshot) map[int]*survey {
	works := map[int]*replay.Work{}
	if all, err := replay.Histories(s); err == nil { // what cannot be replayed is summed up all the same
		for _, w := range all {
			works[w.Device] = w
		}
	}
	surveys := map[int]*survey{}
	for device, t := range s.Traces {
		if t == nil || t.Len() == 0 {
			continue
		}
		n := &survey{work: works[device]}
		if n.work != nil {
			n.most = n.work.RecordedReserved
		}
		r := t.Reader()
		for i := range t.Len() {
			n.add([]trace.Event{*r.At(i)})
		}
		surveys[device] = n
	}
	return surveys
}
