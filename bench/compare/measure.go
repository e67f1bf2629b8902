package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A bench is a run that is under way.
type bench struct {
	r        *results
	workers  map[string]*worker
	progress io.Writer
	checksum func() string // of the replacements, as this program draws them
}

// A worker is how to start a side, and its process.
type worker struct {
	env, argv []string
	peer      *peer
	starts    int
}

const maxStarts = 4 // of a worker that keeps dying

// measure starts the workers and fills r. What fails on the way is in r; the error is for what makes the rest
// pointless.
func measure(ctx context.Context, o options, r *results, progress io.Writer) (err error) {
	s := o.settings
	b := &bench{r: r, workers: map[string]*worker{}, progress: progress}
	b.checksum = sync.OnceValue(func() string {
		_, sum := replacements(s.Seed, s.Live, (s.WarmRounds+s.Rounds)*s.Live)
		return fmt.Sprintf("%016x", sum)
	})
	dir, err := os.MkdirTemp("", "ashlar-compare-")
	if err != nil {
		return err
	}
	defer func() {
		b.close()
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.start(ctx, "go", nil, self, "-worker", "-device", o.device)
	parts := s.parts()
	for i := range parts {
		parts[i].limit(regexp.MustCompile(o.only))
	}
	if o.python != "" {
		b.startOthers(ctx, o, dir, parts)
	}
	if len(b.workers) == 0 {
		return fmt.Errorf("no worker could be started: %s: %s", r.Failures[0].What, r.Failures[0].Error)
	}
	for _, p := range parts {
		fmt.Fprintln(progress, p.title)
		for _, group := range p.groups {
			b.ask(ctx, p.name, group)
		}
		if err := errors.Join(ctx.Err(), r.write(o.out)); err != nil {
			return err
		}
	}
	return nil
}

// startOthers starts the workers of PyTorch: those in C++ only if they have something to measure. The Python one knows
// where the headers are.
func (b *bench) startOthers(ctx context.Context, o options, dir string, parts []part) {
	b.start(ctx, "python", nil, o.python, filepath.Join(o.dir, "python", "worker.py"))
	native := func(p part) bool { return p.asks("native") || p.asks("expanding") || p.asks("dropin") }
	if b.workers["python"] == nil || !slices.ContainsFunc(parts, native) {
		return
	}
	fmt.Fprintln(b.progress, "building", filepath.Join(o.dir, "native", "native.cpp"))
	binary := b.built("native", func() (string, []attempt) { return build(ctx, o, places(b.r.Machine), dir) })
	if binary == "" {
		return
	}
	b.start(ctx, "native", nil, binary)
	const conf = "expandable_segments:True" // under its name of today and the one before
	b.start(ctx, "expanding", []string{"PYTORCH_ALLOC_CONF=" + conf, "PYTORCH_CUDA_ALLOC_CONF=" + conf}, binary)
	b.startDropIn(ctx, o, dir)
}

// startDropIn starts the worker of PyTorch with Ashlar's drop-in in place of its allocator.
func (b *bench) startDropIn(ctx context.Context, o options, dir string) {
	library := b.built("dropin", func() (string, []attempt) { return buildLibrary(ctx, o, places(b.r.Machine), dir) })
	if library != "" {
		b.start(ctx, "dropin", nil, o.python, filepath.Join(o.dir, "python", "dropin.py"), library)
	}
}

// built builds for a worker and records the attempts. It returns what was built, or "" after a failure.
func (b *bench) built(worker string, build func() (string, []attempt)) string {
	binary, attempts := build()
	b.r.Build = append(b.r.Build, attempts...)
	for _, a := range attempts {
		if !a.OK {
			fmt.Fprintf(b.progress, "%s\n%s\n", a.Command, a.Output)
		}
	}
	if binary == "" {
		b.fail("building the worker "+worker, errors.New("every attempt failed"))
	}
	return binary
}

// start starts a worker for the first time. One that does not come up is a failure.
func (b *bench) start(ctx context.Context, name string, env []string, argv ...string) {
	w := &worker{env: env, argv: argv}
	facts, err := w.start(ctx, name)
	if err != nil {
		b.fail("starting the worker "+name, err)
		return
	}
	b.workers[name] = w
	for fact, value := range facts {
		b.r.Machine[name+": "+fact] = value
	}
}

// start starts the process and asks it who it is.
func (w *worker) start(ctx context.Context, name string) (facts map[string]string, err error) {
	w.starts++
	if w.peer, err = start(ctx, name, w.env, w.argv...); err != nil {
		return nil, err
	}
	a, err := w.peer.ask(ctx, "hello")
	if err != nil {
		_ = w.peer.close() // the first error says it
	}
	return a.Facts, err
}

// ask lets the steps of a group take turns. A step that failed once is not asked again; a worker that died over it is
// started anew for the next.
func (b *bench) ask(ctx context.Context, part string, group []step) {
	failed := make([]bool, len(group))
	for range b.r.Settings.Reps {
		for i, s := range group {
			w := b.workers[s.worker]
			if w == nil || failed[i] || ctx.Err() != nil {
				continue
			}
			if w.peer.gone != nil {
				if w.starts == maxStarts {
					continue
				}
				if _, err := w.start(ctx, s.worker); err != nil {
					b.fail("starting the worker "+s.worker+" again", err)
					continue
				}
			}
			a, err := w.peer.ask(ctx, s.question)
			if sum := a.Facts["checksum"]; err == nil && sum != "" && sum != b.checksum() {
				err = fmt.Errorf("its random numbers are not ours: checksum %s, not %s", sum, b.checksum())
			}
			if err != nil {
				failed[i] = true
				b.fail(fmt.Sprintf("%s: %s, asked %q", part, s.worker, s.question), err)
				continue
			}
			for name, value := range a.Values {
				if at, ok := s.places[name]; ok {
					b.r.add(at, value)
				}
			}
		}
	}
}

func (b *bench) fail(what string, err error) {
	b.r.Failures = append(b.r.Failures, failure{what, strings.TrimSpace(err.Error())})
	fmt.Fprintf(b.progress, "%s: %v\n", what, err)
}

func (b *bench) close() {
	for _, name := range slices.Sorted(maps.Keys(b.workers)) {
		if err := b.workers[name].peer.close(); err != nil {
			b.fail("ending the worker "+name, err)
		}
	}
}
