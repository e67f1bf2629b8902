// Package live serves the recordings of a running program over HTTP, for "ashlar view --attach URL", as net/http/pprof
// serves profiles. Programs that serve http.DefaultServeMux import it for its side effect:
//
//	import _ "github.com/ashlar-go/ashlar/view/live"
//	...
//	recorder := trace.NewRecorder(trace.RecorderOptions{Max: 1_000_000, Context: trace.ContextAll})
//	a = recorder.Attach(a)
//	defer live.Register("gpu 0", a, snapshot.Live{Recorder: recorder})()
//	go http.ListenAndServe("localhost:6060", nil)
//
// Others use Handler. Under /debug/ashlar/ there are
//
//	/debug/ashlar/                     the list of the recordings, as JSON
//	/debug/ashlar/snapshot?name=gpu+0  a snapshot with the history so far, as PyTorch's viewer reads it
//
// Clients of the server see addresses, sizes, and the names of functions and files. Let it listen on localhost, as for
// profiles. Requests change nothing. All functions may be called from several goroutines at once.
package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
)

// path is where the handler is in http.DefaultServeMux.
const path = "/debug/ashlar/"

func init() {
	http.Handle("GET "+path, http.StripPrefix(strings.TrimSuffix(path, "/"), Handler()))
}

// A registered is an allocator that is served.
type registered struct {
	name      string
	allocator mem.Allocator
	parts     snapshot.Live
	taking    sync.Mutex // while a snapshot is taken: one at a time
}

var (
	mu  sync.Mutex
	all []*registered // in the order of their registration
)

// Register serves an allocator under a name until done is called. The parts are those of snapshot.Of: with a recorder,
// which must be attached to the allocator, the page shows the history, else only the current state. As for
// snapshot.Of, a layer of the allocator must be a mem.Snapshotter. Register panics if the name is taken or empty.
func Register(name string, a mem.Allocator, parts snapshot.Live) (done func()) {
	mu.Lock()
	defer mu.Unlock()
	if name == "" || slices.ContainsFunc(all, func(x *registered) bool { return x.name == name }) {
		panic(fmt.Sprintf("live: the name %q is empty, or another allocator has it", name))
	}
	x := &registered{name: name, allocator: a, parts: parts}
	all = append(all, x)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		all = slices.DeleteFunc(all, func(other *registered) bool { return other == x })
	}
}

// Handler returns the handler of the paths "/" and "/snapshot", for a server with paths of its own.
func Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", serveList)
	m.HandleFunc("GET /snapshot", serveSnapshot)
	return m
}

// An entry is an item of the list.
type entry struct {
	Name    string `json:"name"`
	Version string `json:"version"` // differs if the recording has changed
}

func serveList(w http.ResponseWriter, _ *http.Request) {
	mu.Lock()
	served := slices.Clone(all)
	mu.Unlock()
	list := []entry{}
	for _, x := range served {
		list = append(list, entry{x.name, x.version()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(list) // an error means that the client left
}

// version returns a text that differs after an event of the allocator.
func (x *registered) version() string {
	s := ""
	if reporter, ok := mem.Find[mem.StatsReporter](x.allocator); ok {
		stats := reporter.Stats()
		s = fmt.Sprint(stats.Allocation.All.Allocated, stats.Allocation.All.Freed, stats.ReservedBytes.All.Current)
	}
	if x.parts.Recorder != nil {
		s += fmt.Sprintf(" %d", x.parts.Recorder.Recorded())
	}
	return s
}

func serveSnapshot(w http.ResponseWriter, q *http.Request) {
	name := q.URL.Query().Get("name")
	mu.Lock()
	n := slices.IndexFunc(all, func(x *registered) bool { return x.name == name })
	var x *registered
	if n >= 0 {
		x = all[n]
	}
	mu.Unlock()
	if x == nil {
		http.Error(w, "no allocator has this name", http.StatusNotFound)
		return
	}
	x.taking.Lock()
	s, err := snapshot.Of(x.allocator, x.parts)
	x.taking.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Disposition", `attachment; filename="snapshot.pickle"`)
	_ = s.WritePickle(w) // an error means that the client left
}
