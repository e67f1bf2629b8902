package sim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
)

// A cell holds the accesses to a run of bytes that later accesses must be compared with. An access is removed when one
// is added that comes after it and conflicts with every access that it conflicts with: a later access that races with
// the removed one then races with the added one too. So no race is missed, even after others were found, and a program
// without races has at most one write, and one read by each stream, in a cell.
//
// Cells are of the bytes of an object, not of addresses. They are shared and never changed in place.
type cell []*Access

// A claim is an access that a call is about to make, to pieces lo to hi of Device.reads or, if it writes, writes.
type claim struct {
	access *Access
	lo, hi int
}

// access returns the fields that all accesses of a piece of work share, if the work is the timeline's next.
func (w *work) access(d *Device, tl *timeline) Access {
	a := Access{
		Seq: d.seq, Stream: tl.id, Tick: tl.queued + 1, Call: w.call, Graph: w.graph, Node: w.node, Site: d.site(),
	}
	if w.kernel != nil {
		a.Kernel = w.kernel.Name
	}
	return a
}

// claim finds the memory of a call's accesses, puts it into d.reads and d.writes, and checks it; common has the fields
// that the accesses share. If claim fails, it has reported every invalid access. Otherwise the caller may still refuse
// the call, or continue with record.
func (d *Device) claim(common Access, reads, writes []driver.Range) error {
	d.startClaims(d.timelines[common.Stream])
	return d.refuse(common.Call, d.addClaims(nil, common, reads, writes))
}

// startClaims and addClaims are claim for a call of several pieces of work.
func (d *Device) startClaims(tl *timeline) {
	d.reads, d.writes, d.claims = d.reads[:0], d.writes[:0], d.claims[:0]
	if !d.opts.Unchecked {
		d.joinHost(tl)
	}
}

func (d *Device) addClaims(faults []error, common Access, reads, writes []driver.Range) []error {
	tl := d.timelines[common.Stream]
	for _, list := range [2]struct {
		ranges []driver.Range
		pieces *[]piece
		write  bool
	}{{reads, &d.reads, false}, {writes, &d.writes, true}} {
		for _, r := range list.ranges {
			notNegative(common.Call, r.Size)
			if r.Size == 0 {
				continue
			}
			lo := len(*list.pieces)
			pieces, kind, what := d.resolve(*list.pieces, r)
			*list.pieces = pieces
			if kind == 0 && d.opts.Unchecked {
				continue
			}
			a := new(Access)
			*a = common
			a.Write, a.Range = list.write, r
			if kind != 0 {
				faults = d.report(faults, &AccessError{Kind: kind, Access: *a, Detail: what}, true)
				continue
			}
			for _, race := range races(tl, a, pieces[lo:]) {
				faults = d.report(faults, race, !d.opts.ReportOnly)
			}
			d.claims = append(d.claims, claim{a, lo, len(pieces)})
		}
	}
	return faults
}

// report lists an error and, if it is a fault of the call, appends it to faults.
func (d *Device) report(faults []error, err error, fault bool) []error {
	d.reports = append(d.reports, err)
	if fault {
		faults = append(faults, err)
	}
	return faults
}

// refuse joins faults to one error; it returns nil if there are none.
func (d *Device) refuse(c Call, faults []error) error {
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return d.fail(c, faults[0], "")
	}
	return d.fail(c, errors.Join(faults...), fmt.Sprintf("%d accesses at fault", len(faults)))
}

// races returns a race for each earlier access that conflicts with a and does not come before it.
func races(tl *timeline, a *Access, pieces []piece) (found []*RaceError) {
	for _, p := range pieces {
		shadow, end := &p.object.shadow, p.off+p.n
		for i := shadow.from(p.off); shadow.valid(i) && shadow.at(i).start < end; i = shadow.next(i) {
			e := shadow.at(i)
			for _, b := range e.value {
				if !a.Write && !b.Write || tl.before(b) ||
					slices.ContainsFunc(found, func(r *RaceError) bool { return r.First.same(b) }) {
					continue
				}
				lo, hi := max(e.start, p.off), min(e.end(), end)
				found = append(found, &RaceError{
					First: *b, Second: *a, Range: driver.Range{
						Ptr:  driver.Pointer(p.at + lo - p.off),
						Size: int64(hi - lo),
					},
				})
			}
		}
	}
	return found
}

// record puts the accesses of the last claim into the shadow.
func (d *Device) record() {
	for _, c := range d.claims {
		pieces := d.reads[:]
		if c.access.Write {
			pieces = d.writes
		}
		tl := d.timelines[c.access.Stream]
		for _, p := range pieces[c.lo:c.hi] {
			p.object.remember(tl, c.access, p.off, p.off+p.n)
			if p.via != nil {
				p.via.use(c.access)
			}
		}
	}
}

func keepBoth(c cell, _ uint64) (head, tail cell) { return c, c }

// remember adds an access to the cells of [off, end). Neighbours that become alike become one.
func (o *object) remember(tl *timeline, a *Access, off, end uint64) {
	o.shadow.divide(off, keepBoth)
	o.shadow.divide(end, keepBoth)
	alone := cell{a}
	var cells []interval[cell]
	add := func(start, size uint64, c cell) {
		if n := len(cells); n > 0 && len(c) == 1 && len(cells[n-1].value) == 1 {
			cells[n-1].size += size // both hold a alone
			return
		}
		cells = append(cells, interval[cell]{start, size, c})
	}
	at := off
	for i := o.shadow.from(off); o.shadow.valid(i) && o.shadow.at(i).start < end; i = o.shadow.next(i) {
		e := o.shadow.at(i)
		if at < e.start {
			add(at, e.start-at, alone)
		}
		var kept cell
		for _, b := range e.value {
			if !tl.before(b) || b.Write && !a.Write {
				kept = append(kept, b)
			}
		}
		if kept == nil {
			kept = alone
		} else {
			kept = append(kept, a)
		}
		add(e.start, e.size, kept)
		at = e.end()
	}
	if at < end {
		add(at, end-at, alone)
	}
	o.shadow.removeFrom(off, end)
	for _, c := range cells {
		o.shadow.insert(c.start, c.size, c.value)
	}
}

// use records an access through a mapping as the last one of its stream.
func (m *mapping) use(a *Access) {
	for i, b := range m.uses {
		if b.Stream == a.Stream {
			m.uses[i] = a
			return
		}
	}
	m.uses = append(m.uses, a)
}

// checkUnmap fails if the host does not know that all accesses through the mappings of r, which start at first, are
// done.
func (d *Device) checkUnmap(mappings *index[*mapping], first pos, r driver.Range) error {
	if d.opts.Unchecked {
		return nil
	}
	var faults []error
	for i := first; mappings.valid(i) && mappings.at(i).start < uint64(r.Ptr)+uint64(r.Size); i = mappings.next(i) {
		m := mappings.at(i)
		for _, use := range m.value.uses {
			if d.host.at(use.Stream) >= use.Tick {
				continue
			}
			faults = d.report(faults, &RaceError{
				First:  *use,
				Second: Access{Seq: d.seq, Host: true, Call: CallUnmap, Write: true, Range: r, Site: d.site()},
				Range:  driver.Range{Ptr: driver.Pointer(m.start), Size: int64(m.size)},
			}, !d.opts.ReportOnly)
		}
	}
	return d.refuse(CallUnmap, faults)
}

// site returns the file and line of the caller, or "" unless Options.CallSites is set.
func (d *Device) site() string {
	if !d.opts.CallSites {
		return ""
	}
	var pcs [16]uintptr // first four, since most callers are close
	for from, to := 0, 4; from < len(pcs); from, to = to, len(pcs) {
		n := runtime.Callers(2+from, pcs[from:to])
		for _, pc := range pcs[from : from+n] {
			if c := callerAt(pc); !c.inside {
				return c.site
			}
		}
		if from+n < to {
			break
		}
	}
	return ""
}

// A caller is a place in the program: its file and line, and whether it is in a method of this package.
type caller struct {
	site   string
	inside bool
}

// callers are the places found so far, by program counter: finding one takes as long as several simulated operations.
var callers sync.Map

// callerAt returns the place of a program counter that runtime.Callers returned.
func callerAt(pc uintptr) caller {
	if c, ok := callers.Load(pc); ok {
		return c.(caller)
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	c := caller{site: fmt.Sprintf("%s:%d", f.File, f.Line), inside: isMethod(f.Function)}
	callers.Store(pc, c)
	return c
}

// isMethod reports whether a function, as package runtime names it, is a method of this package.
func isMethod(function string) bool {
	rest, inside := strings.CutPrefix(function, "github.com/ashlar-go/ashlar/driver/sim.")
	return inside && slices.ContainsFunc(
		[]string{"(*", "kernels.", "virtualMemory.", "pinned.", "graphs."},
		func(receiver string) bool { return strings.HasPrefix(rest, receiver) },
	)
}
