package holders_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
)

// A truth is the file that testdata/traces/record_tagged.py writes for a recording.
type truth struct {
	HeldOut bool   `json:"held_out"`
	Peak    int64  `json:"requested_peak"`
	Letters string // for each allocation
}

// right has the categories that are right for each letter, the specific one first.
var right = map[byte][]holders.Category{
	'w': {holders.Weights},
	'g': {holders.Gradients},
	'o': {holders.OptimizerState},
	'a': {holders.Activations},
	't': {holders.Temporaries},
	'c': {holders.Weights, holders.Temporaries},
	'k': {holders.Workspace},
	'i': {holders.Unknown, holders.Activations},
	'x': {holders.Unknown, holders.OptimizerState, holders.Temporaries},
	'u': {holders.Unknown},
}

// tagged returns the names of the recordings with a truth.
func tagged(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/tagged/*.truth.json")
	testkit.Must(t, err)
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".truth.json")
	}
	return files
}

func truthOf(t *testing.T, name string) (x truth) {
	t.Helper()
	b, err := os.ReadFile("testdata/tagged/" + name + ".truth.json")
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(b, &x))
	return x
}

func taggedSnapshot(t *testing.T, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile("testdata/tagged/" + name + ".pickle.zst")
	testkit.Must(t, err)
	return s
}

// A score has the bytes of blocks by how right their category is.
type score struct{ right, unknown, wrong int64 }

func (s *score) add(letter byte, b *holders.Block) {
	switch {
	case slices.Contains(right[letter], b.Category):
		s.right += b.Size
	case b.Category == holders.Unknown:
		s.unknown += b.Size
	default:
		s.wrong += b.Size
	}
}

// percent returns the share of the right ones.
func (s score) percent() float64 { return 100 * float64(s.right) / float64(s.right+s.unknown+s.wrong) }

// lettersOf returns the letter of each block of a history of a part of a recording, from the event first on. A block
// that is older has the address of one that was live before first.
func lettersOf(h *holders.History, s *snapshot.Snapshot, letters string, first int) map[holders.Block]byte {
	older, byEvent := map[driver.Pointer]byte{}, map[int]byte{}
	n := 0
	for i, e := range s.Traces[0].Events {
		if e.Action != mem.ActionAlloc {
			continue
		}
		if byEvent[i-first] = letters[n]; i < first {
			older[e.Ptr] = letters[n]
		}
		n++
	}
	all := map[holders.Block]byte{}
	for _, b := range h.Blocks() {
		if b.Recorded {
			all[b] = byEvent[int(b.Start)]
		} else {
			all[b] = older[b.Ptr]
		}
	}
	return all
}

// part returns the events first to last-1 of a recording. Without the end of the recording it has no final state.
func part(s *snapshot.Snapshot, first, last int) *snapshot.Snapshot {
	x, trace := *s, *s.Traces[0]
	if last < len(trace.Events) {
		x.Segments = nil
	}
	trace.Events = trace.Events[first:last]
	x.Traces = slices.Clone(s.Traces)
	x.Traces[0] = &trace
	return &x
}

// The inference is measured against the truth, also on the recordings that were held out while it was built: nothing is
// wrong, and at least 95 % of the peak's bytes are right.
func TestCategoriesAreRight(t *testing.T) {
	names := tagged(t)
	if len(names) < 18 {
		t.Fatalf("%d recordings, want at least 18", len(names))
	}
	for _, name := range names {
		x, s := truthOf(t, name), taggedSnapshot(t, name)
		h := history(t, s)
		testkit.Equal(t, name+": allocations with a letter", len(x.Letters), h.NumBlocks())
		letters := lettersOf(h, s, x.Letters, 0)
		peak := at(t, h, "peak")
		testkit.Equal(t, name+": peak", peak.Bytes, x.Peak)
		var all, held score
		for _, b := range h.Blocks() {
			all.add(letters[b], &b)
		}
		for _, b := range peak.Blocks {
			held.add(letters[b], &b)
		}
		t.Logf("%-14s held out: %-5t  right at the peak: %6.2f %%  of all blocks: %6.2f %%", name, x.HeldOut,
			held.percent(), all.percent())
		if held.percent() < 95 || all.wrong > 0 {
			t.Errorf("%s: %.2f %% of the peak is right; %d bytes of all blocks are wrong", name, held.percent(), all.wrong)
		}
	}
}

// A recording that ends anywhere, as at an out-of-memory error, or that lost its beginning, has less to tell, and what
// is not known stays unknown.
func TestCategoriesOfPartsAreNotWrong(t *testing.T) {
	for _, name := range tagged(t) {
		x, s := truthOf(t, name), taggedSnapshot(t, name)
		n := len(s.Traces[0].Events)
		peak := at(t, history(t, s), "peak").Moment.Event + 1
		for _, c := range []struct {
			first, last int
			least       float64 // percent of the bytes of all blocks that must be right
		}{
			{0, peak, 45},
			{0, n / 3, 60},
			{0, n / 2, 80},
			{0, 2 * n / 3, 85},
			{n / 3, n, 75},
			{n / 2, n, 70},
			{2 * n / 3, n, 65},
		} {
			h := history(t, part(s, c.first, c.last))
			letters := lettersOf(h, s, x.Letters, c.first)
			var all score
			for _, b := range h.Blocks() {
				if letters[b] == 0 {
					t.Fatalf("%s from %d to %d: no letter for %+v", name, c.first, c.last, b)
				}
				all.add(letters[b], &b)
			}
			if all.wrong > 0 || all.percent() < c.least {
				t.Errorf("%s from %d to %d: %d bytes are wrong, %.1f %% right", name, c.first, c.last, all.wrong, all.percent())
			}
		}
	}
}

// Without stacks, the annotations and the sizes tell some categories, and none is wrong.
func TestCategoriesWithoutStacks(t *testing.T) {
	var all score
	for _, name := range tagged(t) {
		x, s := truthOf(t, name), taggedSnapshot(t, name)
		s.Stacks, s.Traces[0].Stacks = nil, nil
		for i := range s.Traces[0].Events {
			s.Traces[0].Events[i].Stack = 0
		}
		for i := range s.Segments {
			for j := range s.Segments[i].Blocks {
				s.Segments[i].Blocks[j].Stack = 0
			}
		}
		h := history(t, s)
		letters := lettersOf(h, s, x.Letters, 0)
		var own score
		for _, b := range h.Blocks() {
			own.add(letters[b], &b)
		}
		if own.wrong > 0 {
			t.Errorf("%s: %d bytes are wrong", name, own.wrong)
		}
		all.right, all.unknown = all.right+own.right, all.unknown+own.unknown
	}
	if all.percent() < 20 {
		t.Errorf("%.1f %% are right, want at least 20 %%", all.percent())
	}
}
