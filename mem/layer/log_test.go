package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/fake"
	"github.com/ashlar-go/ashlar/mem/layer"
)

func TestLogWritesWhatRMMDoes(t *testing.T) {
	var out bytes.Buffer
	at := time.Date(2026, 1, 2, 15, 4, 5, 678_901_000, time.UTC)
	limit := layer.NewLimiter(fake.NewPile(512), 2048)
	l := layer.NewLogger(limit, &out, func() time.Time { at = at.Add(time.Microsecond); return at })
	a := fake.MustAlloc(t, l, 100)
	b, err := l.Alloc(fake.S1, 1000)
	testkit.Must(t, err)
	if _, err := l.Alloc(fake.S1, 4000); err == nil {
		t.Fatal("no failure")
	}
	fake.MustAlloc(t, l, 0)
	l.Free(mem.Block{})
	l.Free(a, fake.S1, fake.S0)
	l.Free(b)
	want := `Thread,Time,Action,Pointer,Size,Stream,Detail
0,15:04:05.678902,allocate,0x1000,100,0,
0,15:04:05.678903,allocate,0x1200,1000,1,
0,15:04:05.678904,allocate failure,0x0,4000,1,
0,15:04:05.678905,free,0x1000,512,0,1 0
0,15:04:05.678906,free,0x1200,1024,0,
`
	if out.String() != want {
		t.Errorf("the log is\n%swant\n%s", out.String(), want)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// A log of one allocator, replayed on another of the same kind, gets the same addresses, and so the same log.
func TestLogReplaysToTheSameLog(t *testing.T) {
	const seed = 20
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var first, second bytes.Buffer
	open := func(out *bytes.Buffer) (*sim.Device, *layer.Logger, []driver.Stream) {
		dev := drivertest.OpenSim(t, 64<<20)
		other := drivertest.NewStream(t, dev)
		return dev, layer.NewLogger(newCaching(t, dev), out, nil), []driver.Stream{dev.DefaultStream(), other}
	}
	dev, l, streams := open(&first)
	defer dev.Close()
	var live []mem.Block
	for range 500 {
		if rng.IntN(5) < 3 {
			if b, err := l.Alloc(streams[rng.IntN(2)], 1+rng.Int64N(1<<(4+rng.IntN(18)))); err == nil {
				live = append(live, b)
			} else {
				t.Fatal(err)
			}
		} else if n := len(live); n > 0 {
			i := rng.IntN(n)
			l.Free(live[i], streams[:rng.IntN(3)]...)
			live[i], live = live[n-1], live[:n-1]
		}
	}
	for _, b := range live {
		l.Free(b)
	}
	dev2, again, streams2 := open(&second)
	defer dev2.Close()
	testkit.Must(t, layer.ReplayLog(bytes.NewReader(first.Bytes()), again, func(id driver.StreamID) (driver.Stream, error) {
		return streams2[id], nil
	}))
	if first.String() != second.String() {
		t.Error("the logs differ")
	}
}

// A log with moves replays: blocks are freed by the addresses that they have by then, also where one has come to
// another's place before that one left.
func TestLogOfMovesReplays(t *testing.T) {
	for _, backward := range []bool{false, true} {
		var out bytes.Buffer
		below := &slidingAllocator{backward: backward}
		l := layer.NewLogger(below, &out, nil)
		var owners []*owner
		for i := range 6 {
			b := fake.MustAlloc(t, l, 100+int64(i%2))
			o := &owner{block: b}
			mem.Movable(l, b, o)
			owners = append(owners, o)
		}
		l.Free(owners[0].block)
		testkit.Must(t, below.Compact(fake.S0))
		l.Free(owners[3].block)
		l.Free(owners[1].block)
		testkit.Must(t, below.Compact(fake.S0))
		if !strings.Contains(out.String(), ",move,0x1064,101,0,0x1000\n") {
			t.Errorf("the move is not in\n%s", out.String())
		}
		base := fake.NewPile(1)
		freed := 0
		base.OnFree = func(mem.Block) { freed++ }
		testkit.Must(t, layer.ReplayLog(strings.NewReader(out.String()), base, onlyS0))
		if len(base.Live) != 0 || freed != 6 {
			t.Errorf("%d blocks are left, %d were freed", len(base.Live), freed)
		}
	}
}

// The row of a free comes before that of the block that is allocated in its place, which may be before Free returns.
func TestBehaviour86_LogOfASlowFree(t *testing.T) {
	var out bytes.Buffer
	base := fake.NewPile(512)
	l := layer.NewLogger(base, &out, nil)
	a := fake.MustAlloc(t, l, 100)
	var b mem.Block
	base.OnFree = func(mem.Block) {
		base.OnFree = nil
		b = fake.MustAlloc(t, l, 100)
	}
	l.Free(a)
	if b.Ptr != a.Ptr {
		t.Fatalf("%+v is not in the place of %+v", b, a)
	}
	l.Free(b)
	if err := layer.ReplayLog(&out, fake.NewPile(512), onlyS0); err != nil {
		t.Error(err)
	}
}

func onlyS0(id driver.StreamID) (driver.Stream, error) {
	if id > 1 {
		return nil, errors.New("no such stream")
	}
	return []driver.Stream{fake.S0, fake.S1}[id], nil
}

func TestReplayOfRMMsLog(t *testing.T) {
	log := "Thread,Time,Action,Pointer,Size,Stream\r\n" +
		"1979932,14:21:19.998533,allocate,0x30a000000,256,0x0\r\n" +
		"1979932,14:21:19.998540,allocate failure,(nil),1048576,0x1\r\n" +
		"1980043,14:21:32.661875,free,0x30a000000,256,0x0\r\n"
	base := fake.NewPile(512)
	testkit.Must(t, layer.ReplayLog(strings.NewReader(log), base, onlyS0))
	if len(base.Live) != 0 || len(base.Used) != 1 {
		t.Errorf("%d live, %d freed", len(base.Live), len(base.Used))
	}
}

func TestReplayRefusesWithTheLine(t *testing.T) {
	const ok = "0,1,allocate,0x10,5,0,\n"
	for _, tt := range []struct{ log, want string }{
		{"nonsense\n", "line 1: 1 columns"},
		{ok + ok, "line 2: there is already a live block at 0x10"},
		{ok + "0,2,free,0x11,5,0,\n", "line 2: no block is live at 0x11"},
		{ok + "0,2,move,0x12,5,0,0x13\n", "line 2: no block is live at 0x12"},
		{"0,1,allocate,16,5,0,\n", `address "16"`},
		{"0,1,allocate,0x10,-5,0,\n", `size "-5"`},
		{"0,1,allocate,0x10,5,x,\n", `stream "x"`},
		{"0,1,allocate,0x10,5,9,\n", "no such stream"},
		{"0,1,allocate,0x10,5,0,what\n", `detail "what"`},
		{ok + "0,1,free,0x10,5,0,0 -1\n", `stream "-1" in the detail`},
		{ok + "0,1,free,0x10,5,0,0 7\n", "no such stream"},
		{"0,1,move,0x10,5,0,\n", `address ""`},
		{"0,1,deallocate,0x10,5,0,\n", `unknown action "deallocate"`},
		{strings.Repeat("x", 1<<17), "token too long"},
	} {
		base := fake.NewPile(512)
		err := layer.ReplayLog(strings.NewReader(tt.log), base, onlyS0)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "layer: ") {
			t.Errorf("%.60q: %v, want %q", tt.log, err, tt.want)
		}
		if len(base.Live) != 0 {
			t.Errorf("%.60q: %d blocks are left", tt.log, len(base.Live))
		}
	}
	base := fake.NewPile(512)
	base.Fail = mem.ErrNoMemory
	if err := layer.ReplayLog(strings.NewReader(ok), base, onlyS0); !errors.Is(err, mem.ErrNoMemory) {
		t.Errorf("a request that is refused: %v", err)
	}
	testkit.Must(t, layer.ReplayLog(strings.NewReader(ok), base, onlyS0)) // whose block is not freed
	if len(base.Live) != 0 {
		t.Error("a block is left")
	}
}

// FuzzReadLog: for any log, a row reads back as it is written, and nothing panics.
func FuzzReadLog(f *testing.F) {
	f.Add("0,1,allocate,0x10,5,0,\n0,2,move,0x10,5,0,0x20\n0,3,free,0x20,5,0,1 0\n")
	f.Add(layer.LogHeader + "\r\n7,t,allocate failure,(nil),9,0x2")
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		for row, err := range layer.ReadLog(strings.NewReader(text)) {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "layer: ") {
					t.Errorf("%v", err)
				}
				break
			}
			if row.Line <= last || row.Size < 0 {
				t.Errorf("%+v after line %d", row, last)
			}
			last = row.Line
		}
		base := fake.NewPile(1)
		var err error
		testkit.AllocatesAtMost(t, len(text), 1000, 1<<20, func() { err = layer.ReplayLog(strings.NewReader(text), base, onlyS0) })
		if len(base.Live) != 0 {
			t.Errorf("%d blocks are left (%v)", len(base.Live), err)
		}
	})
}

// full is a writer with room for so many bytes.
type full int

func (w *full) Write(p []byte) (int, error) {
	if len(p) > int(*w) {
		return 0, errors.New("disk full")
	}
	*w -= full(len(p))
	return len(p), nil
}

func TestLogOutlivesItsWriter(t *testing.T) {
	room := full(len(layer.LogHeader) + 60)
	base := fake.NewPile(512)
	l := layer.NewLogger(base, &room, nil)
	for range 5 {
		l.Free(fake.MustAlloc(t, l, 100))
	}
	if err := l.Err(); err == nil || fmt.Sprint(err) != "disk full" || len(base.Live) != 0 {
		t.Errorf("%v, with %d blocks live", err, len(base.Live))
	}
}

// RMM logs requests for no bytes, all at one address, and frees of blocks that were never allocated there.
func TestReplayOfRequestsForNothing(t *testing.T) {
	base := fake.NewPile(512)
	testkit.Must(t, layer.ReplayLog(strings.NewReader("1,1,allocate,(nil),0,0x0\n1,2,allocate,0x0,0,0x0\n1,3,free,(nil),0,0x0\n"+
		"1,4,free,(nil),0,0x0\n1,5,free,(nil),0,0x0\n"), base, onlyS0))
	if len(base.Used) != 0 {
		t.Errorf("%d blocks were freed", len(base.Used))
	}
}

// RMM names streams by their handles, which are addresses: they are numbered, but not without end.
func TestReadLogNumbersHandles(t *testing.T) {
	var got []driver.StreamID
	for row, err := range layer.ReadLog(strings.NewReader("1,1,allocate,0x10,5,0x55d4a7c0e2b0\n1,2,allocate,0x20,5,0x55d4a7c0e2b8\n" +
		"1,3,allocate,0x30,5,0x2\n1,4,free,0x10,5,0x55d4a7c0e2b0\n")) {
		testkit.Must(t, err)
		got = append(got, row.Stream)
	}
	if !slices.Equal(got, []driver.StreamID{3, 4, 2, 3}) {
		t.Errorf("streams %v", got)
	}
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "1,1,allocate failure,0x0,5,0x7f%08x\n", i)
	}
	rows, last := 0, error(nil)
	for _, last = range layer.ReadLog(strings.NewReader(many.String())) {
		rows++
	}
	if rows != 1025 || last == nil {
		t.Fatalf("%d rows, then %v", rows, last)
	}
	testkit.Contains(t, last.Error(), "layer: log, line 1025", "1024 streams")
}

// Any number in a row of a log is replayed, or an error names it and the expected value.
func TestDefect02_NumbersOfLogs(t *testing.T) {
	const log = layer.LogHeader + "\n0,15:04:05.678902,allocate,0x1000,100,7,\n0,15:04:05.678905,free,0x1000,512,7,3 4\n"
	testkit.Replaced(log, func(n, changed string) {
		before := testkit.Allocated()
		dev := drivertest.OpenSim(t, 64<<20)
		streams := map[driver.StreamID]driver.Stream{}
		err := layer.ReplayLog(strings.NewReader(changed), newCaching(t, dev), func(id driver.StreamID) (driver.Stream, error) {
			if s := streams[id]; s != nil {
				return s, nil
			}
			s, err := dev.NewStream(driver.StreamOptions{})
			streams[id] = s
			return s, err
		})
		if err != nil && !strings.Contains(err.Error(), "layer: log, line") {
			t.Errorf("%s: %v", changed, err)
		}
		if n := testkit.Allocated() - before; n > 64<<20 {
			t.Errorf("%s: %d bytes allocated", changed, n)
		}
	})
	for _, n := range testkit.Numbers() {
		if _, err := mem.ParseAttributes("device=" + n); err != nil && !strings.Contains(err.Error(), n) {
			t.Errorf("device=%s: %v", n, err)
		}
	}
}
