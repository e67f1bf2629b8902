package drivertest

import (
	"context"
	"errors"
	"slices"
)

// descriptors: nothing stays open in either process, and a program that is started inherits nothing.
func (s *sharingTest) descriptors() {
	list := func(p *process) []string {
		s.t.Helper()
		rep, _ := p.ask(request{Op: "files"}, nil)
		slices.Sort(rep.Files)
		return rep.Files
	}
	before := s.start()
	fresh := list(before)
	before.leave()

	p := s.start()
	rounds := func() {
		here, there := s.give(p)
		theirs, k := s.offer(p)
		ours, err := k.redeem(s.here)
		check(s.t, errors.Join(err, k.close()))
		p.end(there)
		p.end(theirs)
		check(s.t, errors.Join(s.here.held[here].end(), s.here.held[ours].end()))
		if e := s.event(p, true); e != nil {
			check(s.t, e.ends[0].record())
			check(s.t, e.ends[1].record())
			e.close()
			// What is recorded may keep a file open until its stream gets there.
			p.ask(request{Op: "sync"}, nil)
			check(s.t, s.here.d.DefaultStream().Sync(context.Background()))
		}
	}
	rounds() // what is opened once and for all is open now
	ours, err := openFiles()
	check(s.t, err)
	theirs := list(p)
	for range 20 {
		rounds()
	}
	now, err := openFiles()
	check(s.t, err)
	if len(now) != len(ours) {
		s.t.Errorf("open here after sharing: %q, before: %q", now, ours)
	}
	if now := list(p); len(now) != len(theirs) {
		s.t.Errorf("open there after sharing: %q, before: %q", now, theirs)
	}

	here, _ := s.give(p)
	k, err := s.export(s.here, here)
	check(s.t, err)
	child := s.start()
	if inherited := list(child); len(inherited) != len(fresh) {
		s.t.Errorf("a program started with memory shared has open %q, one started before %q", inherited, fresh)
	}
	child.leave()
	check(s.t, errors.Join(k.close(), s.here.held[here].end()))
}
