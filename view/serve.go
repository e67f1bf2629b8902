package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/ashlar-go/ashlar/holders"
)

// routes returns the handler of the URLs below the token.
func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /{file}", servePage)
	m.HandleFunc("GET /{$}", servePage)
	m.HandleFunc("GET /api/recordings", s.serveRecordings)
	for name, answer := range map[string]answerer{
		"lines":     answerLines,
		"memory":    answerMemory,
		"addresses": answerAddresses,
		"pick":      answerPick,
		"block":     answerBlock,
		"blocks":    answerBlocks,
		"state":     answerState,
		"holders":   answerHolders,
		"flame":     answerFlame,
		"moment":    answerMoment,
		"search":    answerSearch,
		"plan":      answerPlan,
	} {
		m.HandleFunc("GET /api/r/{id}/"+name, s.serveRecording(answer))
	}
	m.HandleFunc("GET /api/diff", s.serveDiff)
	m.HandleFunc("POST /api/r/{id}/whatif", s.startWhatIf)
	m.HandleFunc("GET /api/jobs/{job}", s.serveJob)
	m.HandleFunc("DELETE /api/jobs/{job}", s.stopJob)
	m.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		refuse(w, http.StatusNotFound, "there is nothing at this path")
	})
	return m
}

// An answerer returns the answer to a request about a recording: a *container, or a value for JSON. An error is one of
// the request, unless it is a statusError.
type answerer func(r *Recording, q url.Values) (any, error)

// A statusError is an error with another status than that of a bad request.
type statusError struct {
	status int
	err    error
}

func (e statusError) Error() string { return e.err.Error() }

// serveRecording returns the handler of an answerer.
func (s *Server) serveRecording(answer answerer) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		r, generation, ok := s.recording(w, q.PathValue("id"))
		if !ok {
			return
		}
		tag := fmt.Sprintf(`"%s-%d"`, q.PathValue("id"), generation)
		w.Header().Set("ETag", tag)
		if q.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		result, err := answer(r, q.URL.Query())
		reply(w, result, err)
	}
}

// recording returns the recording with an id, or refuses the request.
func (s *Server) recording(w http.ResponseWriter, id string) (r *Recording, generation int, ok bool) {
	r, generation, source := s.find(id)
	switch {
	case r != nil:
		return r, generation, true
	case source != nil:
		refuse(w, http.StatusTooEarly, "the recording is still being read, or could not be read: see api/recordings")
	default:
		refuse(w, http.StatusNotFound, "there is no recording with this id: api/recordings lists them")
	}
	return nil, 0, false
}

// reply writes an answer.
func reply(w http.ResponseWriter, result any, err error) {
	var status statusError
	switch c, isContainer := result.(*container); {
	case errors.As(err, &status):
		w.Header().Del("ETag")
		if result == nil {
			refuse(w, status.status, status.Error())
			return
		}
		writeJSON(w, status.status, result)
	case err != nil:
		w.Header().Del("ETag")
		refuse(w, http.StatusBadRequest, err.Error())
	case isContainer:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(c.encode()) // an error means that the browser left
	default:
		writeJSON(w, http.StatusOK, result)
	}
}

// refuse writes an error.
func refuse(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, map[string]string{"error": reason})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // an error means that the browser left
}

// waitFor is how long a request waits for news.
const waitFor = 10 * time.Second

// await waits until the version of b is not the one of the parameter "after", or some time has passed. The mutex
// that guards b is that of s.
func (s *Server) await(ctx context.Context, b *broadcast, after string) {
	s.mu.Lock()
	version, changed := b.version, b.changed
	s.mu.Unlock()
	if after != strconv.Itoa(version) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

// A suggestion is an allocator for comparisons.
type suggestion struct {
	Spec string `json:"spec"`
	Name string `json:"name"` // for people
}

// suggestions returns the allocators that the page offers.
func suggestions() (all []suggestion) {
	for _, spec := range []string{
		"caching", "caching:", "caching:expandable_segments:True", "caching:max_split_size_mb:128",
		"caching:garbage_collection_threshold:0.8", "arena", "paged", "bfc", "direct", "planned",
	} {
		all = append(all, suggestion{spec, specName(spec)})
	}
	return all
}

// An overview lists the recordings as JSON.
type overview struct {
	Version    int          `json:"version"`
	Ashlar     string       `json:"ashlar"`
	Live       bool         `json:"live"`
	Export     *exportText  `json:"export"`
	Allocators []suggestion `json:"allocators"`
	Recordings []*info      `json:"recordings"`
}

func (s *Server) overview() *overview {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &overview{
		Version: s.news.version, Ashlar: s.options.Version, Live: s.options.Live, Allocators: suggestions(),
		Recordings: []*info{},
	}
	for _, x := range s.sources {
		for _, ready := range x.infos {
			about := *ready
			about.Error = x.failed
			o.Recordings = append(o.Recordings, &about)
		}
		if len(x.infos) == 0 {
			o.Recordings = append(o.Recordings, &info{
				ID: strconv.Itoa(x.number), Name: x.name, File: x.file, State: x.state, Done: x.done, Error: x.failed,
			})
		}
	}
	return o
}

func (s *Server) serveRecordings(w http.ResponseWriter, q *http.Request) {
	s.await(q.Context(), &s.news, q.URL.Query().Get("after"))
	reply(w, s.overview(), nil)
}

func answerLines(r *Recording, _ url.Values) (any, error) {
	return map[string][]string{"lines": r.lines}, nil
}

func answerMemory(r *Recording, q url.Values) (any, error) {
	w, err := windowOf(r, q)
	if err != nil {
		return nil, err
	}
	return r.bandsPicture(w), nil
}

func answerAddresses(r *Recording, q url.Values) (any, error) {
	w, err := windowOf(r, q)
	if err != nil {
		return nil, err
	}
	return r.addressesPicture(w), nil
}

func answerPick(r *Recording, q url.Values) (any, error) {
	event, err := eventOf(r, q)
	if err != nil {
		return nil, err
	}
	y, err := number(q, "y", -1)
	if err != nil || y < 0 {
		return nil, fmt.Errorf("y %q: want bytes from 0", q.Get("y"))
	}
	if q.Get("view") == "addresses" {
		return r.pickAddress(event, y), nil
	}
	match, err := r.filter(q)
	if err != nil {
		return nil, err
	}
	return r.pickBand(event, y, match), nil
}

func answerBlock(r *Recording, q url.Values) (any, error) {
	n, err := number(q, "id", -1)
	if err != nil || n < 0 || n >= int64(r.lives.Len()) {
		return nil, fmt.Errorf("id %q: want 0 to %d", q.Get("id"), r.lives.Len()-1)
	}
	return r.textOf(uint32(n), true), nil
}

// Limits of lists of blocks.
const (
	usualBlocks = 1000
	mostBlocks  = 20_000
)

func answerBlocks(r *Recording, q url.Values) (any, error) {
	limit, err := limitOf(q, usualBlocks, mostBlocks)
	if err != nil {
		return nil, err
	}
	match, err := r.filter(q)
	if err != nil {
		return nil, err
	}
	if q.Get("event") == "" {
		return r.listOf(r.allBlocks(match), limit), nil
	}
	event, err := eventOf(r, q)
	if err != nil {
		return nil, err
	}
	low, err := number(q, "from", 0)
	if err != nil {
		return nil, err
	}
	high, err := number(q, "to", math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return r.listOf(r.within(event, q.Get("view") == "addresses", low, high, match), limit), nil
}

func answerState(r *Recording, q url.Values) (any, error) {
	event, err := eventOf(r, q)
	if err != nil {
		return nil, err
	}
	return r.statePicture(event), nil
}

func answerHolders(r *Recording, q url.Values) (any, error) {
	event, err := eventOf(r, q)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q, 1000, 100_000)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(q.Get("by"))
	if err != nil {
		return nil, err
	}
	if slices.Contains(keys, holders.ByCategory) {
		r.settle()
	}
	match, err := r.filter(q)
	if err != nil {
		return nil, err
	}
	return r.holdersAt(event, keys, limit, match), nil
}

func answerFlame(r *Recording, q url.Values) (any, error) {
	event, err := eventOf(r, q)
	if err != nil {
		return nil, err
	}
	match, err := r.filter(q)
	if err != nil {
		return nil, err
	}
	root := r.flameAt(event, match)
	return map[string]any{"event": event, "bytes": root.Bytes, "blocks": root.Blocks, "root": root}, nil
}

func answerMoment(r *Recording, q url.Values) (any, error) {
	m, err := r.h.Moment(q.Get("name"))
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"event": m.Event, "name": m.Name, "bytes": m.Bytes, "time": float64(r.timeOf(m.Event)),
	}, nil
}

func answerSearch(r *Recording, q url.Values) (any, error) {
	limit, err := limitOf(q, 200, mostBlocks)
	if err != nil {
		return nil, err
	}
	match, err := r.filter(q)
	if err != nil {
		return nil, err
	}
	list := r.allBlocks(match)
	lines := r.linesOf(list, 200)
	found := r.listOf(list, limit)
	return map[string]any{"blocks": found.Blocks, "total": found.Total, "bytes": found.Bytes, "lines": lines}, nil
}
