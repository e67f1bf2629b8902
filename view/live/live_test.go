package live_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
	"github.com/ashlar-go/ashlar/view"
	"github.com/ashlar-go/ashlar/view/live"
)

// program is a running program: an allocator that is recorded and served.
type program struct {
	mem.Allocator
	dev    *sim.Device
	server *httptest.Server
}

func start(t *testing.T) *program {
	t.Helper()
	dev := sim.New(sim.Options{})
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	recorder := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll})
	p := &program{Allocator: recorder.Attach(a), dev: dev}
	t.Cleanup(live.Register("gpu 0", p.Allocator, snapshot.Live{Recorder: recorder}))
	p.server = httptest.NewServer(http.DefaultServeMux)
	t.Cleanup(p.server.Close)
	return p
}

func (p *program) alloc(t *testing.T, size int64) mem.Block {
	t.Helper()
	b, err := p.Alloc(p.dev.DefaultStream(), size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPageFollowsARunningProgram(t *testing.T) {
	p := start(t)
	defer p.Free(p.alloc(t, 1<<20))
	s := view.New(view.Options{Token: "SECRET", Live: true})
	l := httptest.NewUnstartedServer(nil)
	l.Config.Handler = s.Handler(l.Listener.Addr())
	l.Start()
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready := make(chan bool, 1)
	go func() { ended <- s.Attach(ctx, p.server.URL, func() { ready <- s.Ready() }) }()
	type overview struct {
		Version    int
		Live       bool
		Recordings []struct {
			Name          string
			Generation    int
			RequestedPeak struct{ Bytes int64 } `json:"requested_peak"`
		}
	}
	peak := func(o *overview) int64 {
		if len(o.Recordings) == 0 {
			return 0
		}
		return o.Recordings[0].RequestedPeak.Bytes
	}
	var o overview
	until := func(bytes int64) {
		for peak(&o) != bytes {
			answer, err := http.Get(s.URL(l.Listener.Addr()) + "api/recordings")
			if err != nil {
				t.Fatal(err)
			}
			err = json.NewDecoder(answer.Body).Decode(&o)
			answer.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	until(1 << 20)
	if !<-ready {
		t.Error("Attach says that recordings are shown before they are")
	}
	if !o.Live || o.Recordings[0].Name != "gpu 0" {
		t.Errorf("recordings: %+v", o)
	}
	first := o.Recordings[0].Generation
	defer p.Free(p.alloc(t, 3<<20))
	until(4 << 20)
	if o.Recordings[0].Generation <= first {
		t.Errorf("the generation did not rise: %+v", o)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAttachNamesTheRemedy(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if err := view.New(view.Options{}).Attach(t.Context(), other.URL, nil); err == nil {
		t.Error("attached to a program without view/live")
	}
	if err := view.New(view.Options{}).Attach(t.Context(), "ftp://x", nil); err == nil {
		t.Error("attached to an FTP server")
	}
}

func TestSnapshotsAreThoseOfTheAllocator(t *testing.T) {
	p := start(t)
	defer p.Free(p.alloc(t, 5000))
	answer, err := http.Get(p.server.URL + "/debug/ashlar/snapshot?name=gpu+0")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	s, err := snapshot.Read(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if active := s.Active(0); len(active) != 1 || active[0].Size != 5000 {
		t.Errorf("active blocks: %+v", active)
	}
	missing, err := http.Get(p.server.URL + "/debug/ashlar/snapshot?name=other")
	if err != nil {
		t.Fatal(err)
	}
	missing.Body.Close()
	if missing.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown name: status %d", missing.StatusCode)
	}
}
