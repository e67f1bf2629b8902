package metrics_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/metrics"
)

// A source that panics, or fails half-way, exports only its failure; all other sources are complete.
func TestSourceThatFails(t *testing.T) {
	w := newWorld(t)
	before := strings.Count(pageOf(t, w), "\n")
	source := must[*metrics.Source](t)
	lost := errors.New("device lost")
	panicked := source(w.AddStats(metrics.Labels{Device: "sim:0", Allocator: "broken"}, func() mem.Stats { panic("no\nstatistics") }))
	failed := source(w.AddDevice(metrics.Labels{Device: "sim:1"}, func() (int64, int64, error) { return 1, 2, lost }))
	page := pageOf(t, w)
	wants(t, page, `ashlar_scrape_success{device="sim:0",allocator="broken"} 0`, `ashlar_scrape_success{device="sim:1"} 0`)
	if n := strings.Count(page, "\n"); n != before+2 {
		t.Errorf("%d lines, want two more than %d", n, before)
	}
	_, err := w.Gather()
	var of *metrics.SourceError
	if !errors.Is(err, lost) || !errors.As(err, &of) || of.Source != panicked || !strings.Contains(err.Error(), "statistics") {
		t.Errorf("Gather: %v", err)
	}
	panicked.Remove()
	if _, err := w.Gather(); !errors.As(err, &of) || of.Source != failed {
		t.Errorf("Gather: %v", err)
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t)
	l := metrics.Labels{Device: "sim:0", Allocator: "spare"}
	s, err := w.AddStats(l, w.caching.Stats)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddPinned(l, nil); err == nil {
		t.Error("two sources of the same labels")
	}
	s.Remove()
	s.Remove()
	page := pageOf(t, w)
	if strings.Contains(page, "spare") || !strings.Contains(page, `allocator="main"`) {
		t.Error("not the one that was removed, or more")
	}
	if _, err := w.AddStats(l, w.caching.Stats); err != nil {
		t.Errorf("the labels of a source that was removed: %v", err)
	}
}

// Sources may be added and removed during a scrape, even by a source: the scrape asks those that existed when it began.
func TestRemoveDuringAScrape(t *testing.T) {
	var r metrics.Registry
	var first *metrics.Source
	add := func(name string, stats func() mem.Stats) *metrics.Source {
		return must[*metrics.Source](t)(r.AddStats(metrics.Labels{Device: "d", Allocator: name}, stats))
	}
	first = add("first", func() mem.Stats {
		first.Remove()
		add("new", func() mem.Stats { return mem.Stats{} })
		return mem.Stats{}
	})
	for _, name := range []string{"second", "third"} {
		add(name, func() mem.Stats { return mem.Stats{NumOOMs: 7} })
	}
	of := func(name string) string { return `ashlar_memory_ooms_total{device="d",allocator="` + name + `"} ` }
	page := pageOf(t, &r)
	wants(t, page, of("first")+"0", of("second")+"7", of("third")+"7")
	if strings.Contains(page, `"new"`) {
		t.Error("a source that came later was asked")
	}
	page = pageOf(t, &r)
	wants(t, page, of("second")+"7", of("third")+"7", of("new")+"0")
	if strings.Contains(page, `"first"`) {
		t.Error("a source that was removed was asked")
	}
}

// Additional labels are ordered by name, so that sources with equal labels are recognized as equal.
func TestOrderOfLabels(t *testing.T) {
	var r metrics.Registry
	l := metrics.Labels{Device: "d", Allocator: "x", More: map[string]string{}}
	want := `ashlar_memory_ooms_total{device="d",allocator="x"`
	for _, name := range []string{"_a", "b", "c", "d", "e", "f", "g", "h"} {
		l.More[name] = "1"
		want += `,` + name + `="1"`
	}
	for i := range 5 {
		if _, err := r.AddStats(l, func() mem.Stats { return mem.Stats{} }); (err == nil) != (i == 0) {
			t.Errorf("Add number %d: %v", i, err)
		}
	}
	wants(t, pageOf(t, &r), want+"} 0")
}

func TestLabelsThatAreRefused(t *testing.T) {
	var r metrics.Registry
	for name, l := range map[string]metrics.Labels{
		"no device":    {Allocator: "a"},
		"no allocator": {Device: "d"},
		"empty value":  {Device: "d", Allocator: "a", More: map[string]string{"model": ""}},
		"not UTF-8":    {Device: "d", Allocator: "\xff"},
		"empty name":   {Device: "d", Allocator: "a", More: map[string]string{"": "x"}},
		"digit first":  {Device: "d", Allocator: "a", More: map[string]string{"1st": "x"}},
		"dash":         {Device: "d", Allocator: "a", More: map[string]string{"the-model": "x"}},
		"newline":      {Device: "d", Allocator: "a", More: map[string]string{"model\n": "x"}},
		"Prometheus's": {Device: "d", Allocator: "a", More: map[string]string{"__name__": "x"}},
	} {
		if _, err := r.AddStats(l, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, m := range metrics.Metrics() {
		for _, name := range m.Labels {
			if _, err := r.AddStats(metrics.Labels{Device: "d", Allocator: "a", More: map[string]string{name: "x"}}, nil); err == nil {
				t.Errorf("%s, a label of %s: accepted", name, m.Name)
			}
		}
	}
	if _, err := r.AddDevice(metrics.Labels{Device: "d", Allocator: "a"}, nil); err == nil {
		t.Error("a device with an allocator")
	}
	nameless := must[*layer.Tenant](t)(layer.NewQuotas(nil, 1).Tenant("", 0, 1))
	if _, err := r.AddTenant(metrics.Labels{Device: "d", Allocator: "a"}, nameless); err == nil {
		t.Error("a tenant without a name")
	}
	if page := pageOf(t, &r); page != "" {
		t.Errorf("the page of nothing:\n%s", page)
	}
}

// Scrapes, the addition and removal of sources, and the allocators' own work do not disturb each other. The values of
// one source in a scrape are of one instant: allocated minus freed equals current.
func TestConcurrent(t *testing.T) {
	dev := open(t)
	a := direct.New(dev, direct.Config{})
	closing(t, a)
	var r metrics.Registry
	if _, err := r.Add(metrics.Labels{Device: "sim:0", Allocator: "main"}, a); err != nil {
		t.Fatal(err)
	}
	var workers, scrapers sync.WaitGroup
	done := make(chan struct{})
	for i := range 2 {
		workers.Go(func() {
			for n := range 300 {
				if err := churn(a, dev.DefaultStream(), int64(n+1)*1024); err != nil {
					t.Error(err)
					return
				}
			}
		})
		workers.Go(func() {
			for n := range 300 {
				s, err := r.Add(metrics.Labels{Device: "sim:0", Allocator: fmt.Sprintf("%d.%d", i, n)}, a)
				if err != nil {
					t.Error(err)
					return
				}
				s.Remove()
			}
		})
		scrapers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := consistent(&r); err != nil {
					t.Error(err)
					return
				}
				_, _ = r.WriteTo(io.Discard)
			}
		})
	}
	workers.Wait()
	close(done)
	scrapers.Wait()
}

func churn(a mem.Allocator, s driver.Stream, size int64) error {
	b, err := a.Alloc(s, size)
	if err == nil {
		a.Free(b)
	}
	return err
}

func consistent(r *metrics.Registry) error {
	samples, err := r.Gather()
	if err != nil {
		return err
	}
	type series struct {
		source *metrics.Source
		pool   string
	}
	sums := map[series]int64{}
	for _, s := range samples {
		of := series{s.Source, s.Label.Value}
		switch s.Metric.Name {
		case "ashlar_memory_allocated_bytes", "ashlar_memory_allocated_removed_bytes_total":
			sums[of] += s.Value
		case "ashlar_memory_allocated_added_bytes_total":
			sums[of] -= s.Value
		}
	}
	for of, sum := range sums {
		if sum != 0 {
			return fmt.Errorf("of pool %s of %v %d bytes are neither here nor gone", of.pool, of.source.Labels(), sum)
		}
	}
	return nil
}
