package snapshot_test

import (
	"bytes"
	cryptorand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// recorded is a trace without pools of these events.
func recorded(events ...trace.Event) *trace.Trace {
	return &trace.Trace{Streams: []uint64{0}, Pools: []mem.PoolID{{}}, Metadata: []string{""}, Events: events}
}

// Files from before requested sizes were recorded: the counter of a trace that was cut at the front does not go below 0.
func TestTimelineOfOldFiles(t *testing.T) {
	s := &snapshot.Snapshot{
		Segments: []snapshot.Segment{{Ptr: 0x1000, TotalSize: 1024, Blocks: []snapshot.Block{{Ptr: 0x1000, Size: 512, State: mem.ActiveAllocated}}}},
		Traces: []*trace.Trace{recorded(
			trace.Event{Ptr: 0x1200, Size: 512, Action: mem.ActionFreeCompleted},
		)},
	}
	for _, e := range timelineOf(t, s) {
		if e.Ph == "C" && e.Args["requested"] != 512.0 {
			t.Errorf("%+v", e)
		}
	}
}

// An event without a time, among events with one, is placed at the start.
func TestTimelineOfSomeWithoutTimes(t *testing.T) {
	s := &snapshot.Snapshot{
		Traces:      []*trace.Trace{recorded(trace.Event{Ptr: 1, Size: 1, Action: mem.ActionAlloc}, trace.Event{Ptr: 2, TimeUS: 1e15, Size: 1, Action: mem.ActionAlloc})},
		Annotations: []snapshot.Annotation{{Name: "x", Stage: "START"}},
	}
	for _, e := range timelineOf(t, s) {
		if e.TS != nil && *e.TS != 0 {
			t.Errorf("%+v", e)
		}
	}
}

// A shortWriter writes less than it is given and returns no error.
type shortWriter struct{}

func (shortWriter) Write(b []byte) (int, error) { return len(b) / 2, nil }

func TestShortWrites(t *testing.T) {
	for _, f := range formats {
		if err := f.write(small(), shortWriter{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

// A text that occurs many times in the settings is in the pickle once.
func TestSettingsShareTexts(t *testing.T) {
	list := make([]any, 100)
	for i := range list {
		list[i] = strings.Repeat("x", 10_000)
	}
	s := &snapshot.Snapshot{Settings: snapshot.Settings{Raw: map[string]any{"x": list}}}
	if n := len(pickled(t, s)); n > 20_000 {
		t.Errorf("%d bytes", n)
	}
}

// Settings that have a textual form are read back from it.
func TestSettingsRoundTrip(t *testing.T) {
	var bits [8]byte
	_, _ = cryptorand.Read(bits[:])
	seed := binary.LittleEndian.Uint64(bits[:])
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		c := caching.Default()
		if r.IntN(2) == 0 {
			c.LargeSegmentSize = (12 + 2*r.Int64N(40)) << 20
		}
		if r.IntN(2) == 0 {
			c.MaxSplitSize = c.LargeSegmentSize + r.Int64N(1000)<<20
		}
		if r.IntN(2) == 0 {
			c.MaxNonSplitRounding = c.LargeSegmentSize + (1+r.Int64N(100))<<20
		}
		for i := range c.RoundupDivisions {
			c.RoundupDivisions[i] = []int64{0, 1, 2, 4, 8, 64}[r.IntN(6)]
		}
		if r.IntN(3) == 0 {
			for i := range c.RoundupDivisions {
				c.RoundupDivisions[i] = 4
			}
		}
		c.ThrowOnOOM, c.ReleaseLock, c.PyTorchExact = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		c.GraphCaptureRecordStreamReuse = r.IntN(2) == 0
		c.ExpandableSegments = r.IntN(2) == 0
		if r.IntN(2) == 0 {
			c.GarbageCollectionThreshold = r.Float64() / 2
		}
		switch r.IntN(4) {
		case 0:
			c.ExpandableReserve.Bytes = 1 + r.Int64N(1<<40)
		case 1:
			c.ExpandableReserve.Fraction = r.Float64() * 2
			c.ExpandableReserveByClass = map[string]caching.Reserve{"serving": {Fraction: r.Float64()}, "ads": {Bytes: 1 + r.Int64N(1<<40)}}
		}
		if r.IntN(2) == 0 {
			c.MemoryFraction = r.Float64() / float64(r.IntN(1e6)+1)
		}
		if r.IntN(2) == 0 {
			c.Limit = r.Int64N(1<<62) + 1
		}
		if c.Validate() != nil {
			continue
		}
		conf := snapshot.SettingsOf(c).Conf
		if got, _, err := caching.ParseConfig(conf); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("seed %d: %v\n%s\n%+v\n%+v", seed, err, conf, c, got)
		}
	}
}

// What follows an empty dict is JSON all the same.
func TestJSONOfEmptySettings(t *testing.T) {
	s := &snapshot.Snapshot{Settings: snapshot.Settings{Raw: map[string]any{}}}
	var text bytes.Buffer
	testkit.Must(t, s.WriteJSON(&text))
	if !json.Valid(text.Bytes()) {
		t.Errorf("no JSON: %s", text.String())
	}
}
