package sim

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// Each earlier access that is not ordered before a call is reported once, however many pieces of memory they share.
func TestEachAccessIsReportedOnce(t *testing.T) {
	for what, c := range map[string]struct {
		before func(b *bench)
		want   int
	}{
		"two calls, the same range": {func(b *bench) {
			b.ok(b.read(b.s[1], 0))
			b.ok(b.read(b.s[2], 0))
		}, 2},
		"one call, two ranges": {func(b *bench) { b.ok(b.launch(b.s[1], "write", nil, []int{0, 128})) }, 2},
		"one range, in pieces": {func(b *bench) {
			b.ok(b.s[1].Fill(b.p, 0, 256))
			b.ok(b.s[1].Fill(b.p+64, 0, 64))
		}, 2},
	} {
		b := newBench(t, Options{}, 3)
		c.before(b)
		if err := b.s[0].Fill(b.p, 1, 256); err == nil {
			t.Errorf("%s: no error", what)
		}
		testkit.Equal(t, what, len(b.Reports()), c.want)
	}
}

// With AtRandom queued work gets done by itself, while other calls are made.
func TestAtRandomWorkGetsDone(t *testing.T) {
	b := newBench(t, Options{Completion: AtRandom, Seed: 1}, 2)
	for range 5 {
		b.ok(b.write(b.s[1], 0))
	}
	for range 100 {
		_, _, err := b.Available()
		b.ok(err)
	}
	testkit.Equal(t, "pieces of work left", b.Pending(1), 0)
}

// Sync costs what the model says for 0 bytes.
func TestSyncCost(t *testing.T) {
	m := H200()
	m.Calls[CallSync] = Curve{{0, time.Second}, {1, time.Minute}}
	b := newBench(t, Options{Cost: m}, 1)
	before := b.Now()
	b.ok(b.s[0].Sync(context.Background()))
	testkit.Equal(t, "cost", b.Now()-before, time.Second)
}
