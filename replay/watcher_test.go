package replay_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// A Watcher returns what Histories returns, for recordings with and without failures, that start early or late.
func TestWatcherTellsTheHistory(t *testing.T) {
	paths, err := filepath.Glob("../testdata/traces/*.zst")
	testkit.Must(t, err)
	failures := 0
	for _, path := range paths {
		b, err := os.ReadFile(path)
		testkit.Must(t, err)
		var watcher replay.Watcher
		scanned, err := snapshot.Scan(bytes.NewReader(b), snapshot.Limits{}, watcher.Watch)
		testkit.Must(t, err)
		got, err := watcher.Work(scanned)
		testkit.Must(t, err)
		s, err := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
		testkit.Must(t, err)
		all, err := replay.Histories(s)
		testkit.Must(t, err)
		want := all[0]
		failures += want.NumFailures
		if len(all) != 1 || got.RecordedReserved != want.RecordedReserved || got.RecordedLimit != want.RecordedLimit ||
			got.LimitKnown != want.LimitKnown || got.NumFailures != want.NumFailures ||
			!reflect.DeepEqual(got.Failures, want.Failures) || !reflect.DeepEqual(got.Notes, want.Notes) ||
			got.Program.Prelude != want.Program.Prelude || !reflect.DeepEqual(got.Program.Anomalies, want.Program.Anomalies) {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if failures == 0 {
		t.Error("no recording has a failure")
	}
}

// A recording without completions must be read whole: whether it has any is known at its end only.
func TestWatcherRefusesRecordingsWithoutCompletions(t *testing.T) {
	entry := func(action string) snapshottest.D {
		return snapshottest.D{"action", action, "addr", 512, "size", 512, "stream", 0, "time_us", 1}
	}
	b := snapshottest.Pickle(snapshottest.D{
		"segments",
		snapshottest.L{},
		"device_traces",
		snapshottest.L{snapshottest.L{entry("alloc"), entry("free_requested")}},
	}, 4)
	var watcher replay.Watcher
	s, err := snapshot.Scan(bytes.NewReader(b), snapshot.Limits{}, watcher.Watch)
	testkit.Must(t, err)
	if _, err := watcher.Work(s); !errors.Is(err, replay.ErrNotWatched) {
		t.Errorf("%v, want ErrNotWatched", err)
	}
}
