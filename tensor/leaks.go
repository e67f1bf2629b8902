package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// ErrLeaked is matched by what Place.Close says of storages that are still alive.
var ErrLeaked = errors.New("tensor: storages were not released")

// A LeakError is what was still alive at Close. It matches ErrLeaked.
type LeakError struct{ Leaks Leaks }

func (e *LeakError) Error() string { return fmt.Sprintf("%v: %v", ErrLeaked, e.Leaks) }

// Is makes errors.Is(err, ErrLeaked) true.
func (e *LeakError) Is(target error) bool { return target == ErrLeaked }

// A LeakSite is the storages that one place in the program made and did not release.
type LeakSite struct {
	Count   int             // storages, alive and dropped
	Bytes   int64           // of all of them
	Dropped int             // how many nobody could reach: their memory was taken back, or will be when memory is short
	Frames  []runtime.Frame // the calls that made them, innermost first; nil unless Config.Sites
}

// Leaks are the storages of a place that are alive, and those that were dropped without a release. At the end of a
// program's work it is what it leaked.
type Leaks struct {
	Count   int // storages alive
	Bytes   int64
	Dropped int // storages that were dropped, their memory taken back since
	Sites   []LeakSite
	SitesBy string // what records the sites, if they are not known: see Config
}

// Leaks returns the storages that are alive and those whose memory was taken back because nobody could reach them any more,
// by what made them, most bytes first. Storages that other goroutines make or release meanwhile may be in it or not.
func (p *Place) Leaks() Leaks {
	l := &p.home.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Leaks{Count: l.n, SitesBy: l.sitesBy}
	bySite := map[site]*LeakSite{}
	for at, d := range l.dropped {
		out.Dropped += d.Dropped
		again := *d
		bySite[at] = &again
	}
	for r := l.first; r != nil; r = r.next {
		out.Bytes += r.size
		t := tally(bySite, r)
		if r.handle.Value() == nil {
			t.Dropped++
		}
	}
	for at, t := range bySite {
		t.Frames = at.frames()
		out.Sites = append(out.Sites, *t)
	}
	slices.SortFunc(out.Sites, func(a, b LeakSite) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.where(""), b.where("")))
	})
	return out
}

// tally counts a storage for the place that made it.
func tally(bySite map[site]*LeakSite, r *record) *LeakSite {
	var at site
	if r.made != nil {
		at = *r.made
	}
	t := bySite[at]
	if t == nil {
		t = &LeakSite{}
		bySite[at] = t
	}
	t.Count++
	t.Bytes += r.size
	return t
}

// where is the calls as text, a line for each function and one for its place. by is what would have recorded them.
func (s LeakSite) where(by string) string {
	if len(s.Frames) == 0 {
		return fmt.Sprintf(" made at a place that was not recorded: %s records it", by)
	}
	var b strings.Builder
	b.WriteString(" made by")
	for _, f := range s.Frames {
		fmt.Fprintf(&b, "\n      %s\n          %s:%d", f.Function, f.File, f.Line)
	}
	return b.String()
}

// String is a line for all and then, for each place in the program, what it made.
func (l Leaks) String() string {
	if len(l.Sites) == 0 {
		return "nothing is alive"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d alive with %d bytes, %d dropped and taken back", l.Count, l.Bytes, l.Dropped)
	for _, s := range l.Sites {
		fmt.Fprintf(&b, "\n  %d of %d bytes,", s.Count, s.Bytes)
		if s.Dropped > 0 {
			fmt.Fprintf(&b, " %d of them dropped without Release,", s.Dropped)
		}
		b.WriteString(s.where(l.SitesBy))
	}
	return b.String()
}
