package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
	"github.com/ashlar-go/ashlar/trace"
)

// The lines are the entries of the JSON file, in order, with their device: of a trace with events and of one with
// columns, with compile contexts, unknown keys and unknown entries between any two.
func TestJSONLinesAreTheEntries(t *testing.T) {
	read := map[string]func(b []byte) (*snapshot.Snapshot, error){
		"events": snapshot.ReadBytes,
		"columns": func(b []byte) (*snapshot.Snapshot, error) {
			return snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
		},
	}
	file, err := os.ReadFile(traces + "/unet.stacks.pickle.zst")
	testkit.Must(t, err)
	for form, read := range read {
		s, err := read(file)
		testkit.Must(t, err)
		other, err := read(file)
		testkit.Must(t, err)
		s.Traces = append(s.Traces, nil, other.Traces[0])
		s.Traces[2].Device = 2
		n := s.Traces[0].Len()
		extra := func(name string) *snapshot.Extra {
			return &snapshot.Extra{Pairs: []pickle.Pair{{Key: name, Value: "x"}}}
		}
		s.TraceExtra = make([]snapshot.TraceExtra, 1)
		for i, at := range []int{0, 1023, 1024, 1024, 2047, n} {
			s.TraceExtra[0].Unknown = append(s.TraceExtra[0].Unknown, snapshot.UnknownEntry{Before: at, Entry: extra(string(rune('a' + i)))})
		}
		for _, at := range []int{10, 1024, 9000} {
			s.TraceExtra[0].Keys = append(s.TraceExtra[0].Keys, snapshot.EntryExtra{First: at, Extra: extra("k")})
			s.Traces[0].CompileContexts = append(s.Traces[0].CompileContexts, trace.CompileContext{First: at, Text: string(rune('0' + at%7))})
		}
		var whole, lines bytes.Buffer
		testkit.Must(t, s.WriteJSON(&whole))
		told := 0
		testkit.Must(t, s.WriteJSONLines(&lines, func(events int) { told = events }))
		var want struct {
			Traces [][]map[string]any `json:"device_traces"`
		}
		testkit.Must(t, json.Unmarshal(whole.Bytes(), &want))
		d := json.NewDecoder(&lines)
		for device, entries := range want.Traces {
			for i, entry := range entries {
				entry["device"] = float64(device)
				var got map[string]any
				testkit.Must(t, d.Decode(&got))
				if !reflect.DeepEqual(got, entry) {
					t.Fatalf("%s: device %d, entry %d is %v, want %v", form, device, i, got, entry)
				}
			}
		}
		if d.More() || told < 2*n {
			t.Errorf("%s: more lines than entries, or %d of %d events were told", form, told, 2*n)
		}
	}
}

// A writer that fails ends the goroutines, and is the error.
func TestJSONLinesToAWriterThatFails(t *testing.T) {
	b, _ := generated(t, snapshottest.Config{Seed: 1, Events: 30_000})
	s, err := snapshot.ReadBytes(b)
	testkit.Must(t, err)
	full := errors.New("no more room")
	if err := s.WriteJSONLines(failing{full}, nil); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The events of a compact snapshot are never all in memory as trace.Event, 40 bytes each.
func TestWritersHoldNoEvents(t *testing.T) {
	const events = 300_000
	b, _ := generated(t, snapshottest.Config{Seed: 1, Events: events})
	s, err := snapshot.ReadCompact(bytes.NewReader(b), snapshot.Limits{})
	testkit.Must(t, err)
	for name, write := range map[string]func() error{
		"JSON":       func() error { return s.WriteJSON(io.Discard) },
		"JSON lines": func() error { return s.WriteJSONLines(io.Discard, nil) },
	} {
		before := testkit.Allocated()
		testkit.Must(t, write())
		if took := testkit.Allocated() - before; took > 8<<20 {
			t.Errorf("%s: %d bytes allocated for %d events", name, took, events)
		}
	}
}

// After an error of the writer no goroutine reads the snapshot any more, so that the caller may change it.
func TestJSONLinesEndTheirGoroutines(t *testing.T) {
	file, err := os.ReadFile(traces + "/unet.stacks.pickle.zst")
	testkit.Must(t, err)
	s, err := snapshot.ReadBytes(file)
	testkit.Must(t, err)
	stacks := make([]byte, 1<<20)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one worker, which then ends before it has all parts
	for range 20 {
		r, w := io.Pipe()
		r.Close()
		if err := s.WriteJSONLines(w, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		if all := stacks[:runtime.Stack(stacks, true)]; bytes.Contains(all, []byte("(*lineWriter).work(")) {
			t.Fatalf("the writer has failed, and there is\n%s", all)
		}
		s.Traces[0].Events = slices.Clip(s.Traces[0].Events) // the race detector sees a goroutine that still reads them
	}
}
