package multiprocess

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-go/ashlar/internal/testkit"
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
		testkit.Must(s.t, errors.Join(err, k.close()))
		p.end(there)
		p.end(theirs)
		testkit.Must(s.t, errors.Join(s.here.held[here].end(), s.here.held[ours].end()))
		if e := s.event(p, true); e != nil {
			testkit.Must(s.t, e.ends[0].record())
			testkit.Must(s.t, e.ends[1].record())
			e.close()
			// What is recorded may keep a file open until its stream gets there.
			p.ask(request{Op: "sync"}, nil)
			testkit.Must(s.t, s.here.d.DefaultStream().Sync(context.Background()))
		}
	}
	rounds() // what is opened once and for all is open now
	ours, err := openFiles()
	testkit.Must(s.t, err)
	theirs := list(p)
	for range 20 {
		rounds()
	}
	now, err := openFiles()
	testkit.Must(s.t, err)
	if len(now) != len(ours) {
		s.t.Errorf("open here after sharing: %q, before: %q", now, ours)
	}
	if now := list(p); len(now) != len(theirs) {
		s.t.Errorf("open there after sharing: %q, before: %q", now, theirs)
	}

	here, _ := s.give(p)
	k, err := s.export(s.here, here)
	testkit.Must(s.t, err)
	child := s.start()
	if inherited := list(child); len(inherited) != len(fresh) {
		s.t.Errorf("a program started with memory shared has open %q, one started before %q", inherited, fresh)
	}
	child.leave()
	testkit.Must(s.t, errors.Join(k.close(), s.here.held[here].end()))
}
