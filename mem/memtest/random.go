package memtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// checkRandom runs random histories; the odd ones have so little memory that requests fail.
func checkRandom(t testing.TB, cfg Config) {
	for i := range cfg.Seeds {
		cfg := cfg
		cfg.Seed += uint64(i)
		h := generate(cfg, cfg.Seed, cfg.Ops, 96)
		tight := i%2 == 1
		run := func(h history) *failure { return h.run(t, cfg, tight) }
		if f := run(h); f != nil {
			t.Fatalf("seed %d, tight %v:\n%s", cfg.Seed, tight, shrink(h, run, f))
		}
	}
}

// A failure is a history that failed.
type failure struct {
	at     int    // index of the operation, or the length of the history if it was after the last
	script string // the operations up to there that did something, as they went
	reason string
}

// run runs a history in a new world. With tight, most of the device's memory is taken away first.
func (h history) run(t testing.TB, cfg Config, tight bool) *failure {
	r := runner{}
	reason := try(t, func(t testing.TB) {
		w := newModel(t, cfg, nil)
		if tight {
			w.reserveMemory(t, 3*cfg.MaxBlock)
		}
		testkit.Must(t, r.run(w, h))
	})
	if reason == "" {
		return nil
	}
	return &failure{at: r.at, script: r.script(h), reason: reason}
}

// A runner runs a history and records its progress.
type runner struct {
	at       int
	done     []int         // operations that did something
	users    map[int][]int // streams that Free was told of, by operation
	tolerate func(error) bool
}

// run runs a history to its end, frees what is left and closes the allocator.
func (r *runner) run(w *model, h history) error {
	r.users = map[int][]int{}
	for i, o := range h {
		r.at = i
		if err := r.step(w, o); err != nil {
			return err
		}
		if err := w.checkReports(o.kind == opSnapshot); err != nil {
			return err
		}
	}
	r.at = len(h)
	return w.finish()
}

// step does one operation.
func (r *runner) step(w *model, o op) error {
	b := w.numbers[o.block]
	switch o.kind {
	case opFree, opWrite, opCheck, opJoin, opMovable, opRefuse:
		if b == nil {
			return nil
		}
	case opHold, opResume:
		if !w.hold(o.stream, o.kind == opHold) {
			return nil
		}
	}
	r.done = append(r.done, r.at)
	w.cfg.count(1)
	switch o.kind {
	case opAlloc:
		_, err := w.alloc(o.block, o.stream, o.size)
		if failed := (*allocError)(nil); errors.As(err, &failed) {
			if r.tolerate != nil && r.tolerate(err) || w.mayRunOut(o.size) && errors.Is(err, mem.ErrNoMemory) {
				return nil
			}
			return fmt.Errorf("Alloc of %d bytes with %d live: %w", o.size, w.sums.bytes, err)
		}
		return err
	case opFree:
		r.users[r.at] = w.users(b)
		return w.free(b)
	case opWrite:
		return w.rewrite(b, o.stream)
	case opCheck:
		return w.check(b, o.stream, "in the middle of its life")
	case opJoin:
		return w.join(b)
	case opSync:
		return w.syncOne(o.stream)
	case opSyncAll:
		return w.sync()
	case opEmpty:
		if err := w.empty(); err != nil && (r.tolerate == nil || !r.tolerate(err)) {
			return fmt.Errorf("EmptyCache: %w", err)
		}
	case opSnapshot:
		w.resetPeaks()
	case opMovable:
		return w.movable(b)
	case opRefuse:
		b.toggleRefuse()
	case opCompact:
		if err := w.compact(o.stream); err != nil && (r.tolerate == nil || !r.tolerate(err)) {
			return fmt.Errorf("Compact: %w", err)
		}
	}
	return nil
}

// most is the memory that an allocator may want from the device for a small request: mem/caching takes segments of
// 20 MiB for requests from 1 MiB on.
const most = 20 << 20

// mayRunOut reports whether a request may fail for lack of memory. Fragmentation breaks no promise, so with little
// memory any request may.
func (w *model) mayRunOut(size int64) bool {
	free, total, err := w.dev.Available()
	if limit, ok := mem.LimitOf(w.a); ok {
		free = min(free, limit-(total-free)) // without tight, only the allocator takes memory
	}
	return w.tight || err == nil && (size > free/4 || size >= 1<<20 && free < most)
}

func (w *model) resetPeaks() {
	if s, ok := mem.Find[mem.StatsReporter](w.a); ok {
		s.ResetPeakStats()
		w.peak = w.sums
	}
}

// script writes the effective operations, up to the failed one.
func (r *runner) script(h history) string {
	var text strings.Builder
	for _, i := range r.done {
		text.WriteString(h[i].text(r.users[i]) + "\n")
	}
	if r.at == len(h) {
		text.WriteString("# then: free what is left, sync, empty_cache, close\n")
	}
	return text.String()
}
