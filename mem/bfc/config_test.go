package bfc_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/bfc"
)

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]bfc.Config{
		"":            {},
		"  ":          {},
		"limit=8GiB":  {Limit: 8 * gib},
		"growth=on":   {},
		" limit = 1k": {Limit: kib},
		"limit=1MiB,initial=64KiB,fragmentation=0.25,growth=off,collect=off,virtual=on": {
			Limit: mib, Initial: 64 * kib, Fragmentation: 0.25, NoGrowth: true, NoCollect: true, Virtual: true,
		},
	} {
		got, err := bfc.ParseConfig(text)
		if err != nil || got.Limit != want.Limit || got.Initial != want.Initial || got.Fragmentation != want.Fragmentation || got.NoGrowth != want.NoGrowth ||
			got.NoCollect != want.NoCollect || got.Virtual != want.Virtual {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, word := range map[string]string{
		"limit":              "limit",
		"limit=much":         "much",
		"limit=1,limit=2":    "twice",
		"initial=some":       "some",
		"fragmentation=half": "half",
		"growth=yes":         "yes",
		"collect=":           "collect",
		"virtual=1":          "virtual",
		"bins=21":            "bins",
		"retry=10":           "10",
		"retry=-1s":          "-1s",
		"retry=1s,retry=2s":  "twice",
		"limit=1,,":          `""`,
	} {
		if c, err := bfc.ParseConfig(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %+v, %v; want an error with %q", text, c, err, word)
		}
	}
}

// TestDefect19_RetryIsSettableAsText: a request without room waits for as long as the text says.
func TestDefect19_RetryIsSettableAsText(t *testing.T) {
	for text, waits := range map[string]bool{"": false, ",retry=0s": false, ",retry=1ns": true} {
		dev := drivertest.OpenSim(t, 64<<20)
		a, err := mem.Open("bfc:limit=1MiB,growth=off"+text, dev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Alloc(dev.DefaultStream(), mib); err != nil {
			t.Fatal(err)
		}
		_, err = a.Alloc(dev.DefaultStream(), mib)
		if !errors.Is(err, mem.ErrNoMemory) || errors.Is(err, context.DeadlineExceeded) != waits {
			t.Errorf("bfc:%s: %v; want a request that waited for its time: %v", text, err, waits)
		}
		_, err = mem.AllocWith(a, dev.DefaultStream(), mib, mem.AllocOptions{NoRetry: true})
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bfc:%s: with NoRetry a request waited: %v", text, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	dev := sim.New(sim.Options{Total: 64 << 20, NoVirtualMemory: true})
	defer dev.Close()
	for _, cfg := range []bfc.Config{{Limit: -1}, {Limit: 1 << 60}, {Fragmentation: -0.1}, {Fragmentation: 1.1}, {Fragmentation: math.NaN()}} {
		if a, err := bfc.New(dev, cfg); err == nil {
			t.Errorf("%+v was taken: %v", cfg, a)
		}
	}
	if a, err := bfc.New(dev, bfc.Config{Virtual: true}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("virtual=on without virtual memory: %v, %v", a, err)
	}
}

// Fragmentation decides from which waste on the end of a block is cut off.
func TestFragmentationFraction(t *testing.T) {
	for _, c := range []struct {
		fraction float64
		size     int64
	}{{0, 100 * kib}, {0.5, 100 * kib}, {0.25, 64 * kib}, {1e-9, 64 * kib}} {
		b := newBench(t, bfc.Config{Limit: 100 * kib, NoGrowth: true, Fragmentation: c.fraction})
		if block := b.alloc(64 * kib); block.Size != c.size {
			t.Errorf("fragmentation %v: a block of %d bytes, want %d", c.fraction, block.Size, c.size)
		}
		if b := newBench(t, bfc.Config{Limit: 64 * kib, NoGrowth: true, Fragmentation: c.fraction}); b.alloc(64*kib).Size != 64*kib {
			t.Errorf("fragmentation %v: a block that fits was cut", c.fraction)
		}
	}
	if b := newBench(t, bfc.Config{Limit: 80 * kib, NoGrowth: true, Fragmentation: 0.25}); b.alloc(60*kib).Size != 60*kib {
		t.Error("a quarter of the limit was not cut off")
	}
}
