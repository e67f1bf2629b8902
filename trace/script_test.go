package trace_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/trace"
)

func TestParseScript(t *testing.T) {
	got, err := trace.ParseScript(`# every command
device sim total=1MiB seed=7
allocator caching expandable_segments:True, max_split_size_mb:32

alloc a 512 on=s0   # the first
alloc layer.0-w_1 1.5MiB pool=0,7 on=s3
alloc c 0
try 18GiB on=s1
free a used=s1,s2
free layer.0-w_1 pending
complete layer.0-w_1
work s1
sync s0
wait s1 s2
empty_cache
limit 18.5GiB
stats
stats num_ooms active.all.peak
segments
snapshot
----
a = 0x000+512

# not a comment
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &trace.Script{Commands: []trace.Command{
		{Comment: "# every command"},
		{Verb: trace.VerbDevice, Name: "sim", Args: []string{"total=1MiB", "seed=7"}},
		{Verb: trace.VerbAllocator, Name: "caching", Args: []string{"expandable_segments:True,", "max_split_size_mb:32"}},
		{},
		{Verb: trace.VerbAlloc, Name: "a", Size: 512, Comment: "# the first"},
		{Verb: trace.VerbAlloc, Name: "layer.0-w_1", Size: 3 << 19, Stream: 3, Pool: mem.PoolID{0, 7}},
		{Verb: trace.VerbAlloc, Name: "c"},
		{Verb: trace.VerbTry, Size: 18 << 30, Stream: 1},
		{Verb: trace.VerbFree, Name: "a", Used: []uint32{1, 2}},
		{Verb: trace.VerbFree, Name: "layer.0-w_1", Pending: true},
		{Verb: trace.VerbComplete, Name: "layer.0-w_1"},
		{Verb: trace.VerbWork, Stream: 1},
		{Verb: trace.VerbSync},
		{Verb: trace.VerbWait, Stream: 1, Other: 2},
		{Verb: trace.VerbEmptyCache},
		{Verb: trace.VerbLimit, Size: 37 << 29},
		{Verb: trace.VerbStats},
		{Verb: trace.VerbStats, Args: []string{"num_ooms", "active.all.peak"}},
		{Verb: trace.VerbSegments},
		{Verb: trace.VerbSnapshot},
	}, HasExpected: true, Expected: "a = 0x000+512\n\n# not a comment\n"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if spec := got.Commands[1].DeviceSpec(); spec != "sim:total=1MiB,seed=7" {
		t.Errorf("spec %q", spec)
	}
	if s := got.Commands[2].Settings(); s != "expandable_segments:True, max_split_size_mb:32" {
		t.Errorf("settings %q", s)
	}
}

func TestScriptsPrintAsTheyWereWritten(t *testing.T) {
	for _, text := range []string{
		"", "\n", "\n\n# a\n\n", "----\n", "alloc a 512 on=s0\n----\na = 0x000+512", "free a used=s1,s2 # why # not\n",
		"device sim\nallocator caching a:b, c:d\nalloc b 1536MiB on=s4095 pool=18446744073709551615,0\n",
		"free a pending\ncomplete a\nwork s0\nsync s1\nwait s2 s3\nempty_cache\nlimit 1GiB\nstats a b\nsegments\nsnapshot\ntry 0 on=s0\n",
	} {
		s, err := trace.ParseScript(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := s.String(); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	s, err := trace.ParseScript("  alloc\ta   524288 pool=0,1 \r\n\t # note \t\r\n----\r\nx\r\n")
	if want := "alloc a 512KiB on=s0 pool=0,1\n# note\n----\nx\r\n"; err != nil || s.String() != want {
		t.Errorf("%q, %v; want %q", s, err, want)
	}
}

func TestParseScriptSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, test := range []struct {
		text         string
		line, column int
		what         string
	}{
		{"\n  malloc a 1", 2, 3, `unknown command "malloc": want one of device, allocator, alloc,`},
		{"alloc", 1, 6, `"": want the name of a block, such as a`},
		{"alloc 1a 512", 1, 7, `"1a": want the name of a block`},
		{"alloc ä 512", 1, 7, "want the name of a block"},
		{"alloc a much on=s0", 1, 9, `size "much"`},
		{"alloc a -1", 1, 9, `size "-1"`},
		{"alloc a 1 on=1", 1, 14, `"1": want a stream, s0 to s4095`},
		{"alloc a 1 on=s4096", 1, 14, `"s4096": want a stream`},
		{"alloc a 1 on=s01", 1, 14, `"s01": want a stream`},
		{"alloc a 1 on=s0 on=s1", 1, 17, "on given twice"},
		{"alloc a 1 pool=1", 1, 16, `"1": want a pool as two numbers`},
		{"alloc a 1 pool=1,-2", 1, 16, `want a pool as two numbers`},
		{"alloc a 1 at=s0", 1, 11, `"at=s0": want on=STREAM, pool=A,B or the end of the line`},
		{"free a used=s1,2", 1, 16, `"2": want a stream`},
		{"free a used=s1 pending", 1, 16, "used= and pending exclude each other"},
		{"free a pending used=s1", 1, 16, "used= and pending exclude each other"},
		{"free a pending pending", 1, 16, "pending given twice"},
		{"free a soon", 1, 8, `"soon": want used=STREAM,STREAM..., pending or the end of the line`},
		{"complete a b", 1, 12, "want the end of the line"},
		{"work", 1, 5, `"": want a stream`},
		{"wait s1", 1, 8, `"": want a stream`},
		{"limit", 1, 6, `size ""`},
		{"snapshot now", 1, 10, "want the end of the line"},
		{"device", 1, 7, `want a name, as in "device sim total=1MiB"`},
		{"device sim:total=1MiB", 1, 8, "want a name"},
		{"allocator # none", 1, 11, `want a name, as in "allocator caching"`},
	} {
		_, err := trace.ParseScript(test.text)
		var se *trace.ScriptError
		if !errors.As(err, &se) || se.Line != test.line || se.Column != test.column || !strings.Contains(se.What, test.what) {
			t.Errorf("%q: %v; want %d:%d: %s", test.text, err, test.line, test.column, test.what)
		}
	}
}

func TestScriptProgram(t *testing.T) {
	s, err := trace.ParseScript(`device sim
alloc a 1 on=s2
alloc b 2 pool=1,0
free a
alloc a 3
free b used=s1
free a pending
try 4 pool=1,0
complete a
empty_cache
stats
`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Program()
	want := &trace.Program{Blocks: 3, Streams: 3, Pools: []mem.PoolID{{}, {1, 0}}, Ops: []trace.Op{
		{Kind: trace.OpAlloc, Block: 0, Size: 1, Stream: 2},
		{Kind: trace.OpAlloc, Block: 1, Size: 2, Pool: 1},
		{Kind: trace.OpFree, Block: 0},
		{Kind: trace.OpAlloc, Block: 2, Size: 3},
		{Kind: trace.OpFreeDeferred, Block: 1},
		{Kind: trace.OpComplete, Block: 1},
		{Kind: trace.OpFreeDeferred, Block: 2},
		{Kind: trace.OpTry, Size: 4, Pool: 1},
		{Kind: trace.OpComplete, Block: 2},
		{Kind: trace.OpEmptyCache},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
}

func TestScriptProgramRefuses(t *testing.T) {
	for _, test := range []struct {
		text, what string
		line       int
	}{
		{"free a", "free a: no live block with that name", 1},
		{"alloc a 1\nalloc a 1", "alloc a: the name is that of a live block", 2},
		{"alloc a 1\nfree a pending\nalloc a 1", "alloc a: the name is that of a live block", 3},
		{"alloc a 1\nfree a pending\nfree a", "free a: no live block with that name", 3},
		{"alloc a 1\ncomplete a", "complete a: no block with that name has a pending free", 2},
		{"work s0", "work: a program cannot contain this command; run the script instead", 1},
		{"limit 1GiB", "limit: a program cannot contain this command", 1},
	} {
		s, err := trace.ParseScript(test.text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Program()
		var se *trace.ScriptError
		if !errors.As(err, &se) || se.Line != test.line || !strings.Contains(se.What, test.what) {
			t.Errorf("%q: %v; want line %d, %s", test.text, err, test.line, test.what)
		}
	}
}

func TestProgramScriptRefusesStreamsThatHaveNoName(t *testing.T) {
	p := &trace.Program{Streams: 5000, Blocks: 1, Ops: []trace.Op{{Stream: 4096}}, Pools: []mem.PoolID{{}}}
	var pe *trace.ProgramError
	if _, err := p.Script(); !errors.As(err, &pe) {
		t.Error(err)
	}
}

// Parsing never panics, and a parsed script prints as a text that parses to the same script. If a script is a valid
// program, printing the program and parsing it again gives the same program.
func FuzzParseScript(f *testing.F) {
	f.Add("device sim total=1MiB\nalloc a 512 on=s0\nfree a\nalloc b 1KiB on=s1 # why\n----\na = 0x000+512\n")
	f.Add("allocator caching a:b\nfree a used=s1,s2\nwait s1 s2\nwork s0\nsync s0\nlimit 1GiB\nstats x\n\nsnapshot\nsegments\n")
	f.Add("alloc a 1 pool=0,1\nfree a pending\ncomplete a\nempty_cache\ntry 1.5MiB on=s3\n")
	f.Fuzz(func(t *testing.T, text string) {
		var s *trace.Script
		var err error
		testkit.AllocatesAtMost(t, len(text), 1000, 1<<20, func() { s, err = trace.ParseScript(text) })
		if err != nil {
			return
		}
		printed := s.String()
		again, err := trace.ParseScript(printed)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%q\nprints as %q\nwhich is %+v, not %+v (%v)", text, printed, again, s, err)
		}
		p, err := s.Program()
		if err != nil {
			return
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		named, err := p.Script()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := named.Program(); err != nil || !reflect.DeepEqual(q, p) {
			t.Fatalf("%q became %q: %v", text, named, err)
		}
	})
}

// WriteScript writes the text of Script.
func TestWriteScript(t *testing.T) {
	p := &trace.Program{Pools: []mem.PoolID{{}, {0, 7}}, Streams: 3}
	for i := range 10_000 {
		n := uint32(i)
		p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: n, Size: int64(i) * 512, Stream: n % 3, Pool: uint16(i % 2)}, trace.Op{Kind: trace.OpTry, Size: 77},
			trace.Op{Kind: trace.OpEmptyCache})
		if i%2 == 0 {
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: n})
		} else {
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFreeDeferred, Block: n}, trace.Op{Kind: trace.OpComplete, Block: n})
		}
	}
	p.Blocks = 10_000
	s, err := p.Script()
	testkit.Must(t, err)
	var b strings.Builder
	last := 0
	testkit.Must(t, p.WriteScript(&b, func(ops int) { last = ops }))
	if b.String() != s.String() || last != len(p.Ops) {
		t.Errorf("another text, or %d of %d ops were told", last, len(p.Ops))
	}
	p.Ops[0].Stream = trace.MaxScriptStream + 1
	if err := p.WriteScript(&b, nil); err == nil {
		t.Error("a stream that has no name")
	}
	p.Ops[0].Stream = 0
	full := errors.New("full")
	failing := writerFunc(func([]byte) (int, error) { return 0, full })
	if err := p.WriteScript(failing, func(ops int) { t.Errorf("%d ops were told, and none was written", ops) }); !errors.Is(err, full) {
		t.Errorf("the writer is full: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
