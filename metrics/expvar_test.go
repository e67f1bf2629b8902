package metrics_test

import (
	"crypto/rand"
	"encoding/json"
	"expvar"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/metrics"
)

func TestVariable(t *testing.T) {
	w := newWorld(t)
	if _, err := w.AddStats(metrics.Labels{Device: "sim:0", Allocator: "broken"}, func() mem.Stats { panic("no statistics") }); err != nil {
		t.Fatal(err)
	}
	name := rand.Text() // published for as long as the tests run, however often
	if err := w.Publish(name); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Sources []struct {
			Labels map[string]string
			Values map[string]json.RawMessage
		}
		Errors []string
	}
	if err := json.Unmarshal([]byte(expvar.Get(name).String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Sources) != 5 || len(got.Errors) != 1 {
		t.Fatalf("%+v", got)
	}
	first := got.Sources[0]
	if first.Labels["allocator"] != "main" || first.Labels["model"] != "llama" || got.Sources[4].Labels["allocator"] != "broken" {
		t.Errorf("the sources are not in their order: %+v", got.Sources)
	}
	for of, want := range map[int]map[string]string{
		0: {
			"ashlar_memory_allocated_bytes": `{"large":4194304,"small":2048}`, "ashlar_memory_ooms_total": `0`,
			"ashlar_scrape_success": `1`,
		},
		1: {"ashlar_pinned_driver_time_seconds_total": `{"alloc":0.003,"free":0.0015}`},
		2: {"ashlar_quota_live_bytes": `2048`},
		4: {"ashlar_scrape_success": `0`},
	} {
		for name, text := range want {
			if v := string(got.Sources[of].Values[name]); v != text {
				t.Errorf("source %d: %s is %s, want %s", of, name, v, text)
			}
		}
	}
	if len(got.Sources[4].Values) != 1 {
		t.Errorf("a source that failed has values: %v", got.Sources[4].Values)
	}
}

func TestVariableOfNothing(t *testing.T) {
	var r metrics.Registry
	if got := r.Var().String(); got != `{"sources":[],"errors":[]}` {
		t.Error(got)
	}
}

// A name that is taken is an error. Of several concurrent calls with one name a single one succeeds.
func TestPublishTwice(t *testing.T) {
	var r metrics.Registry
	for _, name := range []string{"", "memstats"} {
		if err := r.Publish(name); err == nil {
			t.Errorf("%q was published", name)
		}
	}
	wanted := rand.Text()
	var wg sync.WaitGroup
	var got atomic.Int64
	for range 8 {
		wg.Go(func() {
			if r.Publish(wanted) == nil {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("%d got the name", got.Load())
	}
}
