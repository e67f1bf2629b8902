package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// record returns an allocator with a recorder that keeps stacks.
func record(t *testing.T, c trace.Context) (mem.Allocator, *sim.Device, *trace.Recorder) {
	t.Helper()
	dev := drivertest.OpenSim(t, 0)
	a := openCaching(t, dev)
	now := int64(1790000000000000)
	r := trace.NewRecorder(trace.RecorderOptions{Context: c, Clock: func() int64 { now++; return now }})
	return r.Attach(a), dev, r
}

func openCaching(t *testing.T, dev *sim.Device) *caching.Allocator {
	t.Helper()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func forwardPass(a mem.Allocator, dev *sim.Device) (kept []mem.Block) {
	for i := range 6 {
		if b, err := a.Alloc(dev.DefaultStream(), int64(i+1)<<20); i%2 == 0 {
			a.Free(b)
		} else if err == nil {
			kept = append(kept, b)
		}
	}
	return kept
}

func loadWeights(a mem.Allocator, dev *sim.Device) mem.Block {
	b, _ := a.Alloc(dev.DefaultStream(), 50<<20)
	return b
}

// A written file contains everything that a recorder knows about a live allocator, annotations and stacks included, and
// reads back.
func TestOfARecorder(t *testing.T) {
	for _, c := range []trace.Context{trace.ContextNever, trace.ContextState, trace.ContextAlloc, trace.ContextAll} {
		a, dev, r := record(t, c)
		endStep := r.Annotate("step 1", "lr=0.1")
		r.SetMetadata("weights")
		weights := loadWeights(a, dev)
		r.SetMetadata("")
		endForward := r.Annotate("forward", "")
		forwardPass(a, dev)
		endForward()
		endStep()
		s, err := snapshot.Of(a, snapshot.Live{Recorder: r, Device: 1, Annotations: []snapshot.Annotation{{Name: "before", Stage: "END"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		checkViewer(t, checkRoundTrip(t, s))
		again, err := snapshot.ReadBytes(pickled(t, s))
		if err != nil {
			t.Fatal(err)
		}
		var annotations []string
		for _, a := range again.Annotations {
			annotations = append(annotations, fmt.Sprintf("%d %s %s %q", a.Device, a.Stage, a.Name, a.Metadata))
		}
		if want := []string{`0 END before ""`, `1 START step 1 "lr=0.1"`, `1 START forward ""`, `1 END forward ""`, `1 END step 1 "lr=0.1"`}; !slices.Equal(annotations, want) {
			t.Errorf("annotations %q\nwant %q", annotations, want)
		}
		tr := again.Traces[1]
		first := tr.Events[slices.IndexFunc(tr.Events, func(e trace.Event) bool { return e.Action == mem.ActionAlloc })]
		if first.Ptr != weights.Ptr || tr.Metadata[first.Metadata] != "weights" {
			t.Errorf("the first block is %+v of %q", first, tr.Metadata)
		}
		last := tr.Events[len(tr.Events)-1]
		if last.Action != mem.ActionAlloc || (last.Stack != 0) != (c >= trace.ContextAlloc) {
			t.Errorf("the last entry is %+v", last)
		}
		got := map[string]int{}
		for _, seg := range again.Segments {
			if (seg.Stack != 0) != (c >= trace.ContextState) {
				t.Errorf("%v: a segment has the stack %d", c, seg.Stack)
			}
			for _, b := range seg.Blocks {
				if b.State == mem.ActiveAllocated {
					got[innermost(again, b.Stack)]++
				} else if b.Stack != 0 {
					t.Errorf("%v: a free block has a stack", c)
				}
			}
		}
		want := "map[forwardPass:3 loadWeights:1]"
		if c == trace.ContextNever {
			want = "map[:4]"
		}
		if fmt.Sprint(got) != want || (again.Stacks != nil) != (c != trace.ContextNever) {
			t.Errorf("%v: allocated blocks by function: %v, want %s", c, got, want)
		}
	}
}

// Entries name the compile context, which is N/A where nothing is compiled, as PyTorch writes it.
func TestDefect13_EntriesSayWhatIsCompiled(t *testing.T) {
	a, dev, r := record(t, trace.ContextNever)
	loadWeights(a, dev)
	r.PushCompileContext("Torch-Compiled Region: 0/0")
	forwardPass(a, dev)
	r.PopCompileContext()
	s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, s)
	var text bytes.Buffer
	if err := s.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Traces [][]map[string]any `json:"device_traces"`
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	got := map[any]int{}
	for _, e := range file.Traces[0] {
		got[e["compile_context"]]++
	}
	if len(got) != 2 || got["N/A"] != 2 || got["Torch-Compiled Region: 0/0"] != len(file.Traces[0])-2 {
		t.Errorf("entries by compile context: %v", got)
	}
}

// innermost is the name of the innermost function of a stack, without its package.
func innermost(s *snapshot.Snapshot, id trace.StackID) string {
	frames := s.Stacks.At(id)
	if len(frames) == 0 {
		return ""
	}
	name := s.Stacks.Frames[frames[0]].Name
	return name[strings.LastIndexByte(name, '.')+1:]
}

// The profile of a running program shows which functions requested its device memory.
func TestProfileOfARecorder(t *testing.T) {
	for _, c := range []trace.Context{trace.ContextState, trace.ContextAlloc} {
		a, dev, r := record(t, c)
		loadWeights(a, dev)
		forwardPass(a, dev)
		s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "memory.pb.gz")
		var b bytes.Buffer
		h, err := holders.New(s, 0)
		testkit.Must(t, err)
		end, err := h.Moment("end")
		testkit.Must(t, err)
		testkit.Must(t, export.WriteProfile(&b, h.At(end)))
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("go", "tool", "pprof", "-top", "-unit=mb", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for function, mib := range map[string]string{"loadWeights": "50MB", "forwardPass": "12MB"} {
			found := false
			for line := range strings.Lines(string(out)) {
				fields := strings.Fields(line)
				found = found || len(fields) > 5 && fields[0] == mib && strings.HasSuffix(fields[5], "snapshot_test."+function)
			}
			if !found {
				t.Errorf("%v: %s is not there with %s:\n%s", c, function, mib, out)
			}
		}
	}
}

// Others allocate while a snapshot is taken: its blocks have the stacks of those who asked for them all the same.
func TestStacksAreOfTheMomentOfTheSnapshot(t *testing.T) {
	for _, c := range []trace.Context{trace.ContextState, trace.ContextAll} {
		a, dev, r := record(t, c)
		var wg sync.WaitGroup
		// Each function requests its own sizes, so that a block's size identifies the function.
		odd := func(i int64) (mem.Block, error) { return a.Alloc(dev.DefaultStream(), 1024*i+1) }
		even := func(i int64) (mem.Block, error) { return a.Alloc(dev.DefaultStream(), 1024*i+2) }
		for w, alloc := range []func(int64) (mem.Block, error){odd, even} {
			wg.Go(func() {
				var mine []mem.Block
				for i := range int64(2000) {
					if b, err := alloc(i % 100); err == nil {
						mine = append(mine, b)
					}
					if len(mine) > 5+w {
						a.Free(mine[0])
						mine = mine[1:]
					}
				}
			})
		}
		for range 30 {
			s, err := snapshot.Of(a, snapshot.Live{Recorder: r})
			if err != nil {
				t.Fatal(err)
			}
			for _, seg := range s.Segments {
				for _, b := range seg.Blocks {
					if b.State != mem.ActiveAllocated {
						continue
					}
					if got, want := innermost(s, b.Stack), fmt.Sprintf("func%d", b.RequestedSize%1024); got != want {
						t.Fatalf("%v: %d bytes were asked for by %q, want %q", c, b.RequestedSize, got, want)
					}
				}
			}
		}
		wg.Wait()
	}
}
