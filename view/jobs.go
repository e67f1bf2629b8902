package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// jobs are computations that take longer than a request. One runs at a time.
type jobs struct {
	running sync.Mutex // held by the computation; taken before Server.mu

	// The fields below are guarded by Server.mu.
	list []*job
	news broadcast
}

// A job is one computation. Its fields are guarded by Server.mu.
type job struct {
	state  string // "running", "done" or "failed"
	done   float64
	failed string
	result any
}

// The states of a job that sources lack.
const (
	stateRunning = "running"
	stateDone    = "done"
)

// maxJobs is the number of jobs whose results are kept.
const maxJobs = 64

// errBusy says that another job runs.
var errBusy = errors.New("another comparison is running: wait for it, or stop it")

// errStopped is the error of a job that was stopped.
var errStopped = errors.New("stopped")

// start starts a computation, which reports its progress and is told whether it was stopped.
func (s *Server) start(compute func(progress func(float64), stopped func() bool) (any, error)) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.jobs.list {
		if other.state == stateRunning {
			return "", statusError{http.StatusConflict, errBusy}
		}
	}
	j := &job{state: stateRunning}
	s.jobs.list = append(s.jobs.list, j)
	if n := len(s.jobs.list) - maxJobs; n > 0 {
		s.jobs.list[n-1].result = nil
	}
	go func() {
		s.jobs.running.Lock() // a computation that was stopped may take a while to end
		defer s.jobs.running.Unlock()
		result, err := compute(
			func(done float64) { s.change(j, func() { j.done = done }) },
			func() bool { return s.ended(j) },
		)
		s.change(j, func() {
			j.state, j.done, j.result = stateDone, 1, result
			if err != nil {
				j.state, j.failed, j.result = stateFailed, err.Error(), nil
			}
		})
	}()
	return strconv.Itoa(len(s.jobs.list)), nil
}

// change changes a job that runs.
func (s *Server) change(j *job, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.state == stateRunning {
		change()
		s.jobs.news.tell()
	}
}

func (s *Server) ended(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.state != stateRunning
}

// A jobText is a job as JSON.
type jobText struct {
	Version int     `json:"version"`
	State   string  `json:"state"`
	Done    float64 `json:"done"`
	Error   string  `json:"error"`
	Result  any     `json:"result"`
}

// job returns the job with an id.
func (s *Server) job(id string) *job {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > len(s.jobs.list) {
		return nil
	}
	return s.jobs.list[n-1]
}

func (s *Server) serveJob(w http.ResponseWriter, q *http.Request) {
	s.await(q.Context(), &s.jobs.news, q.URL.Query().Get("after"))
	s.mu.Lock()
	j := s.job(q.PathValue("job"))
	var text jobText
	if j != nil {
		text = jobText{s.jobs.news.version, j.state, j.done, j.failed, j.result}
	}
	s.mu.Unlock()
	if j == nil {
		refuse(w, http.StatusNotFound, "there is no such job")
		return
	}
	reply(w, text, nil)
}

func (s *Server) stopJob(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	j := s.job(q.PathValue("job"))
	s.mu.Unlock()
	if j == nil {
		refuse(w, http.StatusNotFound, "there is no such job")
		return
	}
	s.change(j, func() { j.state, j.failed = stateFailed, errStopped.Error() })
	reply(w, map[string]bool{"stopped": true}, nil)
}

// maxBody is the maximum size of a request.
const maxBody = 64 << 10

// readBody reads the JSON of a request.
func readBody(w http.ResponseWriter, q *http.Request, into any) error {
	if q.Header.Get("Content-Type") != "application/json" {
		return statusError{http.StatusUnsupportedMediaType, errors.New("the request must be application/json")}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the request is not valid: %w", err)
	}
	return nil
}
