package view

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-go/ashlar/snapshot"
)

// A Source is a file, or a running program, that a Server shows. It is safe for concurrent use.
type Source struct {
	server *Server
	number int
	name   string // for people
	file   string

	// The fields below are guarded by Server.mu.
	state      string
	done       float64
	failed     string
	generation int
	recordings []*Recording
	infos      []*info // of recordings
}

// The states of a source, as the page knows them.
const (
	stateReading = "reading"
	stateReady   = "ready"
	stateFailed  = "failed"
)

// Progress says which part of the file has been read, from 0 to 1.
func (x *Source) Progress(done float64) {
	x.server.update(func() { x.done = done })
}

// Fail says why the file cannot be shown. A source that was shown before stays.
func (x *Source) Fail(err error) {
	x.server.update(func() {
		x.failed = err.Error()
		if x.state == stateReading {
			x.state = stateFailed
		}
	})
}

// Set shows a snapshot, which must not change afterwards. A later one replaces it: that of a running program. The error
// is that of holders.All; the source has then failed.
func (x *Source) Set(s *snapshot.Snapshot) error {
	recordings, err := newRecordings(s)
	if err == nil && len(recordings) == 0 {
		err = fmt.Errorf("view: %s: neither events nor segments in the file; record with "+
			"torch.cuda.memory._record_memory_history before the first allocation", x.name)
	}
	if err != nil {
		x.Fail(err)
		return err
	}
	if slices.ContainsFunc(recordings, func(r *Recording) bool { return r.events() > settleEvents }) {
		defer func() { go x.settle(recordings) }()
	} else {
		for _, r := range recordings {
			r.settle()
		}
	}
	x.publish(recordings, nil)
	return nil
}

// settleEvents is the number of events up to which a recording is shown only with its steps and categories.
const settleEvents = 50_000

// settle finds the steps and categories of recordings that are shown, and then shows them again.
func (x *Source) settle(recordings []*Recording) {
	for _, r := range recordings {
		r.settle()
	}
	x.publish(recordings, recordings)
}

// publish shows recordings: if others are given, only in their place.
func (x *Source) publish(recordings, others []*Recording) {
	infos := make([]*info, len(recordings))
	for i, r := range recordings {
		infos[i] = infoOf(r)
		infos[i].ID = fmt.Sprintf("%d.%d", x.number, r.h.Trace.Device)
		infos[i].Name, infos[i].File, infos[i].State, infos[i].Done = x.name, x.file, stateReady, 1
		if len(recordings) > 1 {
			infos[i].Name = fmt.Sprintf("%s, device %d", x.name, r.h.Trace.Device)
		}
	}
	x.server.update(func() {
		if others != nil && !slices.Equal(x.recordings, others) {
			return // a later snapshot has replaced them
		}
		x.generation++
		for _, i := range infos {
			i.Generation = x.generation
		}
		x.state, x.done, x.failed, x.recordings, x.infos = stateReady, 1, "", recordings, infos
	})
}

// A broadcast tells waiting requests that something changed.
type broadcast struct {
	version int
	changed chan struct{} // closed by the next change
}

func newBroadcast() broadcast { return broadcast{version: 1, changed: make(chan struct{})} }

// tell ends all waits. The caller holds the lock that guards b.
func (b *broadcast) tell() {
	b.version++
	close(b.changed)
	b.changed = make(chan struct{})
}

// A Server shows recordings. The zero value is not usable; see New.
type Server struct {
	options Options

	mu      sync.Mutex
	sources []*Source
	news    broadcast
	jobs    jobs
}

// Options configure a Server.
type Options struct {
	Version string // of the program, for the page
	Token   string // the secret part of the URL; "" makes a random one
	Live    bool   // the sources are running programs
}

// New returns a server without recordings.
func New(o Options) *Server {
	if o.Token == "" {
		o.Token = newToken()
	}
	s := &Server{options: o, news: newBroadcast()}
	s.jobs.news = newBroadcast()
	return s
}

// Open adds a source, of which the page says that it is being read until Set or Fail is called. The name is for people;
// the file may be empty.
func (s *Server) Open(name, file string) *Source {
	x := &Source{server: s, name: name, file: file, state: stateReading}
	s.update(func() {
		x.number = len(s.sources)
		s.sources = append(s.sources, x)
	})
	return x
}

// update changes sources.
func (s *Server) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.news.tell()
}

// find returns the recording with an id, with its generation; or its source if it is not ready.
func (s *Server) find(id string) (r *Recording, generation int, x *Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sources {
		for i, info := range x.infos {
			if info.ID == id {
				return x.recordings[i], x.generation, x
			}
		}
		if fmt.Sprint(x.number) == id {
			return nil, 0, x
		}
	}
	return nil, 0, nil
}

// Ready reports whether the server has a recording to show.
func (s *Server) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sources {
		if len(x.recordings) > 0 {
			return true
		}
	}
	return false
}
