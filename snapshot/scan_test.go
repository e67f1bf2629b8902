package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/countio"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// scanned returns the events of a file, as Scan passes them on, and what it returns.
func scanned(t *testing.T, b []byte) ([]trace.Event, *snapshot.Scanned) {
	t.Helper()
	var events []trace.Event
	s, err := snapshot.Scan(bytes.NewReader(b), snapshot.Limits{}, func(more []trace.Event) {
		events = append(events, more...)
	})
	testkit.Must(t, err)
	return events, s
}

// Scan passes on the events that ReadCompact keeps, and returns the same snapshot for the rest.
func TestScanHasTheEvents(t *testing.T) {
	files := map[string][]byte{}
	paths, err := filepath.Glob(traces + "/*.zst")
	testkit.Must(t, err)
	for _, path := range paths {
		files[path], err = os.ReadFile(path)
		testkit.Must(t, err)
	}
	for protocol := 2; protocol <= 5; protocol++ {
		c := snapshottest.Config{Seed: 3, Events: 20_000, Protocol: protocol, Stacks: 50}
		files[fmt.Sprint("protocol ", protocol)], _ = generated(t, c)
	}
	for name, b := range files {
		events, s := scanned(t, b)
		want, err := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
		testkit.Must(t, err)
		of := want.Traces[s.Device]
		if s.Events != len(events) || s.Events != of.Len() || s.Traces[s.Device].Len() != 0 {
			t.Fatalf("%s: %d events, %d were passed on and %d are kept; want %d", name, s.Events, len(events),
				s.Traces[s.Device].Len(), of.Len())
		}
		for i := range events {
			s.Numbers.Replace(&events[i])
		}
		if !slices.Equal(events, of.Columns.Events()) {
			t.Errorf("%s: the events differ", name)
		}
		of.Columns = nil
		if !reflect.DeepEqual(s.Segments, want.Segments) || !reflect.DeepEqual(s.Traces, want.Traces) ||
			!reflect.DeepEqual(s.Stacks, want.Stacks) || !reflect.DeepEqual(s.Skipped, want.Skipped) {
			t.Errorf("%s: the rest of the snapshot differs", name)
		}
	}
}

// Files whose events are not those of one device in order, or that must be known whole, are refused.
func TestScanRefusesWhatItCannotPassOn(t *testing.T) {
	type d = snapshottest.D
	type l = snapshottest.L
	entry := func(action string, more ...any) d {
		return append(d{"action", action, "addr", 512, "size", 512, "stream", 0, "time_us", 1}, more...)
	}
	itself := l{entry("alloc")}
	for name, c := range map[string]struct {
		file    d
		refused bool
	}{
		"one device":           {d{"segments", l{}, "device_traces", l{l{}, l{entry("alloc"), entry("free_completed")}}}, false},
		"no device":            {d{"segments", l{}, "device_traces", l{l{}}}, false},
		"an unknown action":    {d{"segments", l{}, "device_traces", l{l{entry("alloc"), entry("weird"), entry("alloc")}}}, false},
		"two devices":          {d{"segments", l{}, "device_traces", l{l{entry("alloc")}, l{entry("alloc")}}}, true},
		"a gap":                {d{"segments", l{}, "device_traces", l{itself}, "trace_gaps", l{l{1}}}, true},
		"nested unknown keys":  {d{"segments", l{}, "device_traces", l{l{entry("alloc", "new", l{l{1}})}}}, true},
		"an entry elsewhere":   {d{"segments", l{}, "device_traces", l{l{}}, "new", entry("alloc")}, true},
		"entries before those": {d{"new", l{entry("alloc")}, "segments", l{}, "device_traces", l{itself}}, true},
	} {
		b := snapshottest.Pickle(c.file, 4)
		if _, err := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := snapshot.Scan(bytes.NewReader(b), snapshot.Limits{}, func([]trace.Event) {})
		if errors.Is(err, snapshot.ErrNotScanned) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Scan finds the errors that ReadCompact finds, at the same events.
func TestScanFindsTheSameErrors(t *testing.T) {
	type d = snapshottest.D
	type l = snapshottest.L
	good := d{"action", "alloc", "addr", 512, "size", 512, "stream", 0, "time_us", 1}
	for name, bad := range map[string]d{
		"no entry":    {"action", 7},
		"no address":  {"action", "alloc", "size", 512, "stream", 0},
		"no frames":   append(slices.Clone(good), "frames", 1),
		"no frame":    append(slices.Clone(good), "frames", l{1}),
		"a bad frame": append(slices.Clone(good), "frames", l{d{"filename", 1, "line", 2, "name", "f"}}),
		"a bad pool":  append(slices.Clone(good), "segment_pool_id", "x"),
	} {
		b := snapshottest.Pickle(d{"segments", l{}, "device_traces", l{l{}, l{good, good, bad, good}}}, 4)
		_, want := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
		_, err := snapshot.Scan(bytes.NewReader(b), snapshot.Limits{}, func([]trace.Event) {})
		if want == nil || fmt.Sprint(err) != want.Error() {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// The lines of a file that is read twice are those of its snapshot, and Expanded returns the events of either form.
func TestScannedWritesTheSameLines(t *testing.T) {
	b, _ := generated(t, snapshottest.Config{Seed: 5, Events: 5_000, Stacks: 50})
	whole, err := snapshot.ReadBytes(b)
	testkit.Must(t, err)
	var want, got bytes.Buffer
	testkit.Must(t, whole.WriteJSONLines(&want, nil))
	_, s := scanned(t, b)
	testkit.Must(t, s.WriteJSONLines(&got, bytes.NewReader(b), snapshot.Limits{}))
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes, want %d", got.Len(), want.Len())
	}
	other, _ := generated(t, snapshottest.Config{Seed: 6, Events: 5_000, Stacks: 50})
	if err := s.WriteJSONLines(&got, bytes.NewReader(other), snapshot.Limits{}); err == nil || !contains(err, "changed") {
		t.Errorf("another file: %v", err)
	}
	compact, err := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
	testkit.Must(t, err)
	x := compact.Expanded()
	if whole.Expanded() != whole || x == compact || compact.Traces[0].Columns == nil ||
		!slices.Equal(x.Traces[0].Events, whole.Traces[0].Events) || x.NumDevices() != whole.NumDevices() {
		t.Error("the expanded snapshot has other events, or the compact one was changed")
	}
	empty := snapshottest.Pickle(snapshottest.D{"segments", snapshottest.L{}, "device_traces", snapshottest.L{snapshottest.L{}}}, 4)
	got.Reset()
	_, s = scanned(t, empty)
	if err := s.WriteJSONLines(&got, bytes.NewReader(empty), snapshot.Limits{}); err != nil || got.Len() != 0 {
		t.Errorf("no events: %q, %v", &got, err)
	}
}

func TestNumDevices(t *testing.T) {
	for _, c := range []struct {
		s    snapshot.Snapshot
		want int
	}{
		{snapshot.Snapshot{}, 0},
		{snapshot.Snapshot{Traces: []*trace.Trace{nil, {}}}, 2},
		{snapshot.Snapshot{Segments: []snapshot.Segment{{Device: 3}, {Device: 1}}, Traces: []*trace.Trace{{}}}, 4},
		{snapshot.Snapshot{Segments: []snapshot.Segment{{Device: 0}}}, 1},
	} {
		if got := c.s.NumDevices(); got != c.want {
			t.Errorf("%d devices, want %d", got, c.want)
		}
	}
}

// Scan counts no memory for events: it reads a file whose events do not fit into the limit.
func TestScanHoldsNoEvents(t *testing.T) {
	b, _ := generated(t, snapshottest.Config{Seed: 5, Events: 400_000, Stacks: 200})
	limits := snapshot.Limits{Pickle: pickle.Limits{Memory: 6 << 20}}
	if _, err := snapshot.ReadCompact(bytes.NewReader(b), limits); !errors.Is(err, pickle.ErrLimit) {
		t.Errorf("ReadCompact: %v, want ErrLimit", err)
	}
	n := 0
	_, err := snapshot.Scan(bytes.NewReader(b), limits, func(more []trace.Event) { n += len(more) })
	if err != nil || n < 400_000 {
		t.Errorf("Scan: %d events, %v", n, err)
	}
}

// A file that was replaced by another one, with as many events and as many texts, is an error when it is read again.
func TestAgainFindsAnotherFile(t *testing.T) {
	history := func(size int) []byte {
		entry := snapshottest.D{"action", "alloc", "addr", 512, "size", size, "stream", 0, "time_us", 1}
		return snapshottest.Pickle(snapshottest.D{
			"segments", snapshottest.L{}, "device_traces", snapshottest.L{snapshottest.L{entry}},
		}, 4)
	}
	each := func([]trace.Event) bool { return true }
	other := compress(t, history(1024))
	for name, b := range compress(t, history(512)) {
		_, s := scanned(t, b)
		testkit.Must(t, s.Again(bytes.NewReader(b), snapshot.Limits{}, each))
		if err := s.Again(bytes.NewReader(other[name]), snapshot.Limits{}, each); err == nil || !contains(err, "changed") {
			t.Errorf("%s: another file: %v", name, err)
		}
	}
}

// When the events are not wanted any more, Again calls each no more, and stops reading after some thousand events.
func TestAgainStops(t *testing.T) {
	b, _ := generated(t, snapshottest.Config{Seed: 5, Events: 100_000, Stacks: 200})
	_, s := scanned(t, b)
	read := &countio.Reader{R: bytes.NewReader(b)}
	calls := 0
	testkit.Must(t, s.Again(read, snapshot.Limits{}, func([]trace.Event) bool {
		calls++
		return calls < 2
	}))
	if calls != 2 || read.N > int64(len(b))/2 {
		t.Errorf("%d calls, and %d of %d bytes are read", calls, read.N, len(b))
	}
}
