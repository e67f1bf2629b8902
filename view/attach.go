package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/snapshot"
)

// livePath is where a program that imports view/live serves its recordings.
const livePath = "/debug/ashlar/"

// Times and sizes of the requests to a running program.
const (
	attachEvery   = time.Second // and for each attachBytes that were read last
	attachBytes   = 8 << 20
	attachTimeout = 2 * time.Minute
	maxLiveList   = 1 << 20
)

// A liveSource is a recording of a running program, as view/live lists it.
type liveSource struct {
	Name    string `json:"name"`
	Version string `json:"version"` // differs if the recording has changed
}

// Attach shows the recordings of a running program, which serves them with package view/live, and follows them until
// ctx ends. The address is that of its HTTP server, such as http://127.0.0.1:6060, or one that ends in a path for
// live.Handler. It calls shown, if not nil, when the server first has them. The error says that the program
// could not be reached until then. The end of ctx is not an error.
func (s *Server) Attach(ctx context.Context, address string, shown func()) error {
	base, err := liveURL(address)
	if err != nil {
		return err
	}
	a := &attachment{s: s, base: base, client: &http.Client{Timeout: attachTimeout}, shown: map[string]*attached{}}
	if err := a.refresh(ctx); err != nil {
		return fmt.Errorf("view: attaching to %s: %w; the program must serve package view/live or, in Python, call ashlar.serve()", address, err)
	}
	if shown != nil {
		shown()
	}
	for {
		timer := time.NewTimer(attachEvery * time.Duration(1+a.bytes/attachBytes))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if err := a.refresh(ctx); err != nil && ctx.Err() == nil {
			a.fail(err) // the page keeps showing the last state
		}
	}
}

// liveURL returns the address of the list of recordings.
func liveURL(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("view: the address %q: want one such as http://127.0.0.1:6060", address)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = livePath
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	return u, nil
}

// An attachment follows a running program.
type attachment struct {
	s      *Server
	base   *url.URL
	client *http.Client
	shown  map[string]*attached // by name
	bytes  int64                // that the last refresh read
}

// An attached is a recording of the program.
type attached struct {
	source  *Source
	version string
}

// refresh reads the recordings that have changed.
func (a *attachment) refresh(ctx context.Context) error {
	a.bytes = 0
	var list []liveSource
	if err := a.get(ctx, a.base, func(r io.Reader) error {
		return json.NewDecoder(io.LimitReader(r, maxLiveList)).Decode(&list)
	}); err != nil {
		return err
	}
	for _, x := range list {
		known := a.shown[x.Name]
		if known == nil {
			known = &attached{source: a.s.Open(x.Name, a.base.String())}
			a.shown[x.Name] = known
		}
		if known.version == x.Version {
			continue
		}
		if err := a.read(ctx, x.Name, known.source); err != nil {
			return err
		}
		known.version = x.Version
	}
	return nil
}

// read reads one recording.
func (a *attachment) read(ctx context.Context, name string, into *Source) error {
	u := a.base.JoinPath("snapshot")
	u.RawQuery = url.Values{"name": {name}}.Encode()
	return a.get(ctx, u, func(r io.Reader) error {
		counted := &countio.Reader{R: r}
		trace, err := snapshot.Read(counted)
		a.bytes += counted.N
		if err != nil {
			return err
		}
		return into.Set(trace)
	})
}

// get makes a request and reads the answer.
func (a *attachment) get(ctx context.Context, u *url.URL, read func(io.Reader) error) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	answer, err := a.client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return errors.New(answer.Status + ": " + strings.TrimSpace(string(text)))
	}
	return read(answer.Body)
}

// fail says on the page that the program cannot be reached any more.
func (a *attachment) fail(err error) {
	for _, x := range a.shown {
		x.source.Fail(err)
	}
}
