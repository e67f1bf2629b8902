package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
	"github.com/ashlar-go/ashlar/mem/bfc"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const mib = 1 << 20

// limited makes an allocator that may use 32 MiB of a 64 MiB device.
func limited(t *testing.T, name string) (mem.Allocator, driver.Device) {
	t.Helper()
	dev := drivertest.OpenSim(t, 64*mib)
	var a mem.Allocator
	var err error
	cfg := caching.Default()
	switch name {
	case "caching":
		cfg.Limit = 32 * mib
		a, err = caching.New(dev, cfg)
	case "bfc":
		a, err = bfc.New(dev, bfc.Config{Limit: 32 * mib})
	case "arena":
		a, err = arena.New(dev, arena.Config{Size: 32 * mib})
	case "direct":
		a = direct.New(dev, direct.Config{Limit: 32 * mib})
	case "stack":
		a, err = caching.New(dev, cfg)
		if err == nil {
			a = layer.NewLimiter(layer.NewLeakTracker(a, layer.LeakTrackerOptions{}), 32*mib)
		}
	case "silent": // describes nothing, and fails without facts
		a = silent{}
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, dev
}

type silent struct{}

func (silent) Alloc(_ driver.Stream, size int64) (mem.Block, error) {
	if size > 32*mib {
		return mem.Block{}, fmt.Errorf("no %d bytes: %w", size, mem.ErrNoMemory)
	}
	return mem.Block{Ptr: 1, Size: size, Tag: 1}, nil
}

func (silent) Free(mem.Block, ...driver.Stream) {}

// reports reads the reports in a directory, ordered by name, and fails if the directory contains any other file.
func reports(t *testing.T, dir string) []*snapshot.Snapshot {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*snapshot.Snapshot
	for i, e := range entries {
		if want := fmt.Sprintf("oom-%06d.pickle", i+1); e.Name() != want {
			t.Errorf("%s lies there, want %s", e.Name(), want)
		}
		s, err := snapshot.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// When memory runs out there is a report before the caller has the error, and it says what the error says, and what the
// allocator held.
func TestBehaviour89_RunningOutWritesAReport(t *testing.T) {
	for _, name := range []string{"caching", "bfc", "arena", "direct", "stack", "silent"} {
		t.Run(name, func(t *testing.T) {
			a, dev := limited(t, name)
			dir := t.TempDir()
			var told []string
			r := snapshot.ReportOOM(a, snapshot.ReportOptions{
				Dir: dir, Clock: func() int64 { return 1790000000000123 },
				Done: func(path string, err error) {
					if _, missing := os.Stat(path); err != nil || missing != nil {
						t.Errorf("%q: %v, %v", path, err, missing)
					}
					told = append(told, path)
				},
			})
			s := dev.DefaultStream()
			b, err := r.Alloc(s, 20*mib)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(reports(t, dir)); n != 0 {
				t.Fatalf("%d reports of a request that fits", n)
			}
			_, err = r.Alloc(s, 33*mib)
			if !errors.Is(err, mem.ErrNoMemory) {
				t.Fatal(err)
			}
			all := reports(t, dir)
			if len(all) != 1 || len(told) != 1 || told[0] != filepath.Join(dir, "oom-000001.pickle") {
				t.Fatalf("%d reports, %q", len(all), told)
			}
			got := all[0]
			var facts *mem.OutOfMemory
			errors.As(err, &facts)
			o := got.OutOfMemory
			if o == nil || o.Text != err.Error() || o.Size != 33*mib || o.TimeUS != 1790000000000123 || (o.Facts == nil) != (facts == nil) {
				t.Fatalf("the report says %+v of %v", o, err)
			}
			if facts != nil && o.Facts.Error() != err.Error() {
				t.Errorf("the facts say %v\nof %v", o.Facts, err)
			}
			if len(got.Skipped) > 0 {
				t.Errorf("it has what is not read: %v", got.Skipped)
			}
			if _, ok := mem.Find[mem.Snapshotter](a); ok {
				live := 0
				for _, seg := range got.Segments {
					for _, x := range seg.Blocks {
						if x.State == mem.ActiveAllocated && x.Ptr == b.Ptr {
							live++
						}
					}
				}
				if live != 1 || got.Check() != nil {
					t.Errorf("the allocated block stands there %d times: %v", live, got.Check())
				}
			} else if len(got.Segments) > 0 {
				t.Errorf("segments of no allocator: %v", got.Segments)
			}
			if reporter, ok := mem.Find[mem.StatsReporter](a); ok {
				if want := reporter.Stats().Map(); !reflect.DeepEqual(got.Stats, want) {
					t.Errorf("statistics %v\nwant %v", got.Stats, want)
				}
			}
			if _, err := mem.AllocWith(r, s, 33*mib, mem.AllocOptions{}); !errors.Is(err, mem.ErrNoMemory) || len(reports(t, dir)) != 2 {
				t.Errorf("with options: %v, %d reports", err, len(reports(t, dir)))
			}
			if _, err := r.Alloc(s, 1<<61); !errors.Is(err, mem.ErrNoMemory) || len(reports(t, dir)) != 3 {
				t.Errorf("more than any device has: %v, %d reports", err, len(reports(t, dir)))
			}
			r.Free(b)
		})
	}
}

// A failure of mem/caching used directly is reported too, once.
func TestBehaviour89_UsersOfTheAllocatorBelow(t *testing.T) {
	a, dev := limited(t, "caching")
	dir := t.TempDir()
	snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: dir})
	if _, err := a.Alloc(dev.DefaultStream(), 33*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Fatal(err)
	}
	if n := len(reports(t, dir)); n != 1 {
		t.Errorf("%d reports", n)
	}
}

// A report with a history is replayed like any recording: the failed request is in it.
func TestBehaviour89_ReportsAreReplayed(t *testing.T) {
	a, dev := limited(t, "caching")
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	recorder.Attach(a)
	recorder.Start()
	dir := t.TempDir()
	r := snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: dir, Live: snapshot.Live{Recorder: recorder}})
	s := dev.DefaultStream()
	var blocks []mem.Block
	for range 3 {
		b, err := r.Alloc(s, 9*mib)
		if err != nil {
			break
		}
		blocks = append(blocks, b)
	}
	all := reports(t, dir)
	if len(all) != 1 {
		t.Fatalf("%d reports", len(all))
	}
	works, err := replay.Works(all[0])
	if err != nil || len(works) != 1 {
		t.Fatalf("%d works, %v", len(works), err)
	}
	c, err := replay.Compare(works[0], replay.CompareOptions{
		Specs: []string{replay.AsRecorded, "arena"}, Limit: 32 * mib,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows[0].OOMs == 0 || c.Rows[1].OOMs != 0 {
		t.Errorf("as recorded it ran out %d times, in an arena %d: want some and none", c.Rows[0].OOMs, c.Rows[1].OOMs)
	}
	for _, b := range blocks {
		r.Free(b)
	}
}

// The directory has as many reports, and bytes of them, as it may, no matter which process wrote them; then the reason
// is told, and once some are gone there is room again.
func TestBehaviour89_ReportsAreBounded(t *testing.T) {
	a, dev := limited(t, "bfc")
	dir := t.TempDir()
	var told []error
	opts := snapshot.ReportOptions{Dir: dir, Max: 3, Done: func(_ string, err error) { told = append(told, err) }}
	fail := func(r mem.Allocator) {
		t.Helper()
		if _, err := r.Alloc(dev.DefaultStream(), 33*mib); !errors.Is(err, mem.ErrNoMemory) || errors.Is(err, snapshot.ErrReportsFull) {
			t.Fatal(err)
		}
	}
	one := snapshot.ReportOOM(a, opts)
	fail(one)
	fail(one)
	two := snapshot.ReportOOM(a, opts) // as a later run does
	fail(two)
	fail(two)
	fail(one)
	if n := len(reports(t, dir)); n != 3 || !errors.Is(told[3], snapshot.ErrReportsFull) || !errors.Is(told[4], snapshot.ErrReportsFull) {
		t.Errorf("%d reports, %v", n, told)
	}
	first := filepath.Join(dir, "oom-000001.pickle")
	info, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	fail(one)
	if _, err := os.Stat(filepath.Join(dir, "oom-000004.pickle")); err != nil {
		t.Errorf("no report in the place of one that was taken away: %v", told)
	}

	told, opts.Dir, opts.Max = nil, t.TempDir(), 0
	opts.MaxBytes = 2*info.Size() + info.Size()/2
	r := snapshot.ReportOOM(a, opts)
	for range 4 {
		fail(r)
	}
	if n := len(reports(t, opts.Dir)); n != 2 || told[1] != nil || !errors.Is(told[2], snapshot.ErrReportsFull) || !errors.Is(told[3], snapshot.ErrReportsFull) {
		t.Errorf("%d reports in %d bytes, which are enough for two: %v", n, opts.MaxBytes, told)
	}

	told, opts.Dir = nil, t.TempDir()
	if err := os.WriteFile(filepath.Join(opts.Dir, ".oom-000001.part"), make([]byte, opts.MaxBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	fail(snapshot.ReportOOM(a, opts))
	if len(told) != 1 || !errors.Is(told[0], snapshot.ErrReportsFull) {
		t.Errorf("another process is writing a report of %d bytes, which are all: %v", opts.MaxBytes, told)
	}
}

// A report that cannot be written fails no request, and leaves nothing behind.
func TestBehaviour89_WritingFails(t *testing.T) {
	a, dev := limited(t, "bfc")
	dir := t.TempDir()
	for name, make := range map[string]func(dir string) error{
		"no directory":       func(dir string) error { return nil },
		"a file in the way":  func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a name that is odd": func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".oom-000001.part", "x"), 0o700) },
	} {
		at := filepath.Join(dir, name)
		if err := make(at); err != nil {
			t.Fatal(err)
		}
		var told []error
		r := snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: at, Done: func(_ string, err error) { told = append(told, err) }})
		_, err := r.Alloc(dev.DefaultStream(), 33*mib)
		_, plain := a.Alloc(dev.DefaultStream(), 33*mib)
		if err == nil || plain == nil || err.Error() != plain.Error() || len(told) != 1 {
			t.Fatalf("%s: %v, without reports %v; %v", name, err, plain, told)
		}
		if want := name != "a name that is odd"; (told[0] != nil) != want {
			t.Errorf("%s: told %v", name, told[0])
		}
		if name == "no directory" && !errors.Is(told[0], fs.ErrNotExist) {
			t.Errorf("%s: told %v", name, told[0])
		}
	}
	quiet := snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: filepath.Join(dir, "nowhere")})
	if _, err := quiet.Alloc(dev.DefaultStream(), 33*mib); !errors.Is(err, mem.ErrNoMemory) {
		t.Error(err)
	}
}

// Done may allocate: requests that fail in it are not reported, and nothing hangs. A panic of
// theirs does not end the reports.
func TestBehaviour89_NoReportOfAReport(t *testing.T) {
	for _, name := range []string{"caching", "bfc"} {
		a, dev := limited(t, name)
		dir := t.TempDir()
		var r *snapshot.Reporter
		depth, panics := 0, false
		r = snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: dir, Done: func(string, error) {
			if depth++; depth > 1 {
				t.Fatal("a report of a report")
			}
			defer func() { depth-- }()
			if panics {
				panic("told")
			}
			for range 3 {
				if _, err := r.Alloc(dev.DefaultStream(), 40*mib); !errors.Is(err, mem.ErrNoMemory) {
					t.Error(err)
				}
			}
		}})
		for i := range 3 {
			panics = i == 1
			func() {
				defer func() { _ = recover() }()
				_, _ = r.Alloc(dev.DefaultStream(), 33*mib)
			}()
		}
		if n := len(reports(t, dir)); n != 3 {
			t.Errorf("%s: %d reports of three requests", name, n)
		}
	}
}

// Many requests fail at once, through reporters that share a directory: each report that is there is whole and has a
// number of its own, and as many are there as may be.
func TestBehaviour89_ConcurrentRequests(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	written, refused := map[string]bool{}, 0
	done := func(path string, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && written[path]:
			t.Errorf("%s was written twice", path)
		case err == nil:
			written[path] = true
		case errors.Is(err, snapshot.ErrReportsFull):
			refused++
		default:
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for _, name := range []string{"caching", "bfc", "arena"} {
		a, dev := limited(t, name)
		r := snapshot.ReportOOM(a, snapshot.ReportOptions{Dir: dir, Max: 20, Done: done})
		for range 4 {
			wg.Go(func() {
				for i := range 5 {
					b, err := r.Alloc(dev.DefaultStream(), 1+int64(i)*mib)
					if err == nil {
						r.Free(b)
					}
					if _, err := r.Alloc(dev.DefaultStream(), 33*mib); !errors.Is(err, mem.ErrNoMemory) {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	// Three reporters that read the directory at the same time may each consider their report the last one allowed.
	n := len(reports(t, dir))
	if n < 20 || n > 22 || n != len(written) || n+refused != 60 {
		t.Errorf("%d reports, %d told of, %d refused", n, len(written), refused)
	}
}

// A report reads the same from either format, whatever the error contained.
func TestOutOfMemoryIsReadAsWritten(t *testing.T) {
	facts := &mem.OutOfMemory{
		Requested: 1, Rounded: 2, Segment: 3, TooLarge: true, Rejected: true, Device: 4, DeviceName: "H200 \"x\"", Total: 5, Free: 6,
		Allowed: 7, LimitName: "MemoryLimit", Allocated: 8, Needed: 34, Addresses: 35, ReserveClass: "serving",
		Reserved: 9, PrivatePools: 10, Processes: []mem.ProcessMemory{{PID: 11, Self: true, Bytes: -1}, {PID: 12, Bytes: 13}},
		Stream: 14, Pool: mem.PoolID{15, 16}, Small: true,
		Cached:      []mem.CachedMemory{{Pool: mem.PoolID{17, 18}, Stream: 19, Small: true, Bytes: 20, Blocks: 21, Largest: 22}},
		LargestFree: 23, Stranded: 24,
		Pinning:  []mem.PinningBlock{{Ptr: 0xffffffffffffff00, Size: 25, Requested: 26, Segment: 27, SegmentSize: 28, Stranded: 29, Live: 30, Pending: true}},
		Remedies: []mem.Remedy{{Name: "a", Reason: "b"}, {Name: "c", Reason: "d", Estimate: true}},
		Cause:    errors.New("the device said no"),
	}
	for i := range reflect.ValueOf(*facts).NumField() {
		if reflect.ValueOf(*facts).Field(i).IsZero() {
			t.Errorf("field %s has nothing in this test", reflect.TypeOf(*facts).Field(i).Name)
		}
	}
	for _, o := range []*snapshot.OutOfMemory{
		{Text: "no room", Size: 31, Stream: 32, TimeUS: 33, Facts: facts}, {Text: "no facts"}, {Facts: &mem.OutOfMemory{}},
	} {
		s := &snapshot.Snapshot{OutOfMemory: o}
		got, err := snapshot.ReadBytes(pickled(t, s))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.OutOfMemory, o) || len(got.Skipped) > 0 {
			t.Errorf("read %+v, %+v\nwritten %+v, %+v", got.OutOfMemory, got.OutOfMemory.Facts, o, o.Facts)
		}
		var text bytes.Buffer
		if err := s.WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		var m struct {
			OutOfMemory struct {
				Text  string
				Facts map[string]any
			} `json:"out_of_memory"`
		}
		if err := json.Unmarshal(text.Bytes(), &m); err != nil || m.OutOfMemory.Text != o.Text || (m.OutOfMemory.Facts == nil) != (o.Facts == nil) {
			t.Errorf("%+v, %v\n%s", m, err, &text)
		}
	}
}

// Files with an invalid failed request are refused with an error that names the place; unknown keys are skipped and
// counted.
func TestOutOfMemoryRefusesNonsense(t *testing.T) {
	type dict = map[string]any
	read := func(request any) (*snapshot.Snapshot, error) {
		var b bytes.Buffer
		w := pickle.NewWriter(&b)
		w.Value(dict{"segments": []any{}, "out_of_memory": request})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return snapshot.ReadBytes(b.Bytes())
	}
	for _, c := range []struct {
		request any
		want    string
	}{
		{5, "snapshot: out_of_memory: want a dict, got int"},
		{dict{"text": 5}, "snapshot: out_of_memory: text: want a str, got int"},
		{dict{"facts": []any{}}, "snapshot: out_of_memory, facts: want a dict, got list"},
		{dict{"facts": dict{"free": "much"}}, "snapshot: out_of_memory, facts: free: want an int, got str"},
		{dict{"facts": dict{"small": 1}}, "snapshot: out_of_memory, facts: small: want a bool, got int"},
		{dict{"facts": dict{"pool_id": []any{1}}}, "snapshot: out_of_memory, facts: pool_id: "},
		{dict{"facts": dict{"remedies": 5}}, "snapshot: out_of_memory, facts: remedies: want a list, got int"},
		{dict{"facts": dict{"remedies": []any{dict{}, dict{"name": nil}}}}, "snapshot: out_of_memory, facts, remedies 1: name: want a str, got None"},
		{dict{"facts": dict{"pinning": []any{dict{"address": "x"}}}}, "snapshot: out_of_memory, facts, pinning 0: address: "},
		{dict{"facts": dict{"cached": []any{7}}}, "snapshot: out_of_memory, facts, cached 0: want a dict, got int"},
	} {
		if s, err := read(c.request); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %+v, %v; want %s", c.request, s, err, c.want)
		}
	}
	// A list that is referenced from several places would be read once for each.
	var b bytes.Buffer
	w := pickle.NewWriter(&b)
	begin := func() { w.BeginDict(); w.Fill() }
	begin()
	w.Name("segments")
	w.Value([]any{})
	w.Name("out_of_memory")
	begin()
	w.Name("facts")
	begin()
	w.Name("remedies")
	w.Value([]any{dict{}})
	list := w.Put()
	w.Name("cached")
	w.Get(list)
	w.EndDict()
	w.EndDict()
	w.EndDict()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := snapshot.ReadBytes(b.Bytes()); err == nil || !strings.Contains(err.Error(), "facts: cached: the same list as an earlier one") {
		t.Errorf("a list in two places: %+v, %v", s, err)
	}
	s, err := read(dict{"size": 5, "later": 6, "facts": dict{"free": 7, "later": 8}})
	if err != nil || s.OutOfMemory.Size != 5 || s.OutOfMemory.Facts.Free != 7 || len(s.Skipped) != 1 || s.Skipped[0].Count != 2 || !s.Skipped[0].Dropped {
		t.Errorf("with what is not known: %+v, %v", s, err)
	}
}

// A report about an allocator that describes no segments has the history all the same.
func TestReportHasHistoryWithoutSegments(t *testing.T) {
	dir := t.TempDir()
	a, dev := limited(t, "silent")
	recorder := trace.NewRecorder(trace.RecorderOptions{})
	r := snapshot.ReportOOM(recorder.Attach(a), snapshot.ReportOptions{Dir: dir, Live: snapshot.Live{Recorder: recorder}})
	for _, size := range []int64{mib, 33 * mib} {
		if _, err := r.Alloc(dev.DefaultStream(), size); err == nil != (size == mib) {
			t.Fatal(err)
		}
	}
	all := reports(t, dir)
	if len(all) != 1 || len(all[0].Traces) != 1 || len(all[0].Segments) != 0 {
		t.Fatalf("%+v", all)
	}
	events := all[0].Traces[0].Events
	if len(events) != 2 || events[0].Action != mem.ActionAlloc || events[1].Action != mem.ActionOOM {
		t.Errorf("entries %+v", events)
	}
}
