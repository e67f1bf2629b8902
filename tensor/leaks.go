package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// ErrLeaked is matched by the error of Place.Close if storages are live.
var ErrLeaked = errors.New("tensor: storages were not released")

// A LeakError lists the storages that were live at Close. It matches ErrLeaked.
type LeakError struct{ Leaks Leaks }

func (e *LeakError) Error() string { return fmt.Sprintf("%v: %v", ErrLeaked, e.Leaks) }

// Is makes errors.Is(err, ErrLeaked) true.
func (e *LeakError) Is(target error) bool { return target == ErrLeaked }

// A LeakSite counts the storages that one call site made and did not release.
type LeakSite struct {
	Count   int             // storages, live and dropped
	Bytes   int64           // their total size
	Dropped int             // unreachable storages, reclaimed now or when an allocation finds no room
	Frames  []runtime.Frame // the calls that made them, innermost first; nil unless Config.Sites
}

// Leaks are the live storages of a place, and those that were dropped without a release. At the end of a program they
// are its leaks.
type Leaks struct {
	Count   int // live storages
	Bytes   int64
	Dropped int // storages that were dropped and whose memory was reclaimed
	Sites   []LeakSite
	SitesBy string // the setting that records the sites: see Config
}

// Leaks returns the live storages and those whose memory was reclaimed, by the site that made them, most bytes first.
// Storages that other goroutines make or release during the call may be missing.
func (p *Place) Leaks() Leaks {
	l := p.state.live
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Leaks{Count: l.count, SitesBy: l.sitesBy}
	bySite := map[site]*LeakSite{}
	for at, d := range l.dropped {
		out.Dropped += d.Dropped
		again := *d
		bySite[at] = &again
	}
	for r := l.first; r != nil; r = r.next {
		out.Bytes += r.size
		t := countSite(bySite, r)
		if r.handle.Value() == nil {
			t.Dropped++
		}
	}
	for at, t := range bySite {
		t.Frames = at.Frames()
		out.Sites = append(out.Sites, *t)
	}
	slices.SortFunc(out.Sites, func(a, b LeakSite) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.text(""), b.text("")))
	})
	return out
}

// countSite adds a storage to the count of the site that made it.
func countSite(bySite map[site]*LeakSite, r *storageState) *LeakSite {
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

// text returns the calls, one line for each function and one for its position. by names the setting that records them.
func (s LeakSite) text(by string) string {
	if len(s.Frames) == 0 {
		return fmt.Sprintf(" made at an unknown place: %s records it", by)
	}
	var b strings.Builder
	b.WriteString(" made by")
	for _, f := range s.Frames {
		fmt.Fprintf(&b, "\n      %s\n          %s:%d", f.Function, f.File, f.Line)
	}
	return b.String()
}

// String returns one line for the totals, and then the storages of each site.
func (l Leaks) String() string {
	if len(l.Sites) == 0 {
		return "no live storages"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d live with %d bytes, %d dropped and reclaimed", l.Count, l.Bytes, l.Dropped)
	for _, s := range l.Sites {
		fmt.Fprintf(&b, "\n  %d of %d bytes,", s.Count, s.Bytes)
		if s.Dropped > 0 {
			fmt.Fprintf(&b, " %d of them dropped without Release,", s.Dropped)
		}
		b.WriteString(s.text(l.SitesBy))
	}
	return b.String()
}
