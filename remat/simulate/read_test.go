package simulate

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// small has all instructions of DTR's format.
const small = `{"INSTRUCTION":"CONSTANT","NAME":"before"}
{"INSTRUCTION":"MEMORY","NAME":"before","MEMORY":"1000"}
{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","NAME":"w","MEMORY":"10"}
{"INSTRUCTION":"CALL","NAME":"two","ARGS":["w"],"RESULT":["a","b"],"TIME":"100"}
{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"20"}
{"INSTRUCTION":"ALIAS","NAME":"a","ALIAS":"-1"}
{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"10"}
{"INSTRUCTION":"ALIAS","NAME":"b","ALIAS":"0"}
{"INSTRUCTION":"COPY","DST":"c","SRC":"a"}
{"INSTRUCTION":"RELEASE","NAME":"a"}
{"INSTRUCTION":"RELEASE","NAME":"unknown"}
{"INSTRUCTION":"ANNOTATE","ANNOTATION":"BACKWARD"}
{"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["c","w"],"MUTATE":["0"],"TIME":"50"}
{"INSTRUCTION":"COPY_FROM","DST":"b","SRC":"c"}
{"INSTRUCTION":"RELEASE","NAME":"w"}
`

func read(t *testing.T, text string) *Log {
	t.Helper()
	l, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The old version of c is 20 bytes, the new one too; the constant stays though its name was released.
func TestReadDTR(t *testing.T) {
	l := read(t, small)
	want := Log{Operations: 2, Baseline: 150, Peak: 50, Constants: 10, Bottleneck: 50}
	got := *l
	got.program = nil
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOwnFormat(t *testing.T) {
	first := read(t, small)
	var text bytes.Buffer
	if err := first.Write(&text); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	second := read(t, text.String())
	if err := second.Write(&again); err != nil {
		t.Fatal(err)
	}
	if text.String() != again.String() {
		t.Errorf("a log that was read and written differs:\n%s\nwant:\n%s", &again, &text)
	}
	a, b := *first, *second
	a.program, b.program = nil, nil
	if a != b {
		t.Errorf("the own format has %+v, want %+v", b, a)
	}
}

func TestCompressed(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write([]byte(small))
	w.Close()
	if l := read(t, zipped.String()); l.Baseline != 150 {
		t.Errorf("got %v, want 150ns", l.Baseline)
	}
}

func TestWrongLogs(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "the log is empty"},
		"no JSON":          {"x", "line 1: "},
		"unknown":          {`{"INSTRUCTION":"X"}`, `line 1: unknown instruction "X"`},
		"undefined":        {`{"INSTRUCTION":"COPY","DST":"a","SRC":"b"}`, `line 1: undefined tensor "b"`},
		"cut":              {`{"INSTRUCTION":"CONSTANT","NAME":"a"}`, "line 1: the log ends within an instruction"},
		"wrong memory":     {`{"INSTRUCTION":"CONSTANT","NAME":"a"}` + "\n" + `{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"1"}`, `line 2: want the MEMORY of "a"`},
		"negative":         {`{"INSTRUCTION":"CONSTANT","NAME":"a"}` + "\n" + `{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"-1"}`, `line 2: MEMORY "-1": want a number of at least 0`},
		"version":          {`{"remat":2}`, "line 1: version 2 of the format: want 1"},
		"no instruction":   {"{\"remat\":1}\n{}", "line 2: want constant, call, retain or release"},
		"released too far": {"{\"remat\":1}\n{\"constant\":1}\n{\"release\":0}\n{\"release\":0}\n{\"release\":0}", "line 5: value 0 does not exist or was released"},
		"alias":            {"{\"remat\":1}\n{\"call\":\"x\",\"out\":[{\"alias\":0}]}", "line 2: alias 0: want the index of one of 0 inputs"},
		"overflow":         {"{\"remat\":1}\n{\"constant\":9223372036854775807}", "the sizes or the times of the log add up to more than"},
		"negative size":    {"{\"remat\":1}\n{\"call\":\"x\",\"out\":[{\"size\":-1}]}", "line 2: an output of -1 bytes: want at least 0"},
		"negative cost":    {"{\"remat\":1}\n{\"call\":\"x\",\"ns\":-1}", "line 2: ns -1, scratch 0: want at least 0"},
		"negative input":   {"{\"remat\":1}\n{\"call\":\"x\",\"in\":[-1]}", "line 2: value -1 does not exist or was released"},
	} {
		_, err := Read(strings.NewReader(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), "remat: "+c.want) {
			t.Errorf("%s: got %v, want remat: %s...", name, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte("{\"remat\":1}\n{\"constant\":1}\n{\"call\":\"x\",\"in\":[0],\"out\":[{\"size\":2},{\"alias\":0}],\"ns\":1}\n{\"release\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var l *Log
		var err error
		testkit.AllocatesAtMost(t, len(text), 500, 1<<20, func() { l, err = Read(bytes.NewReader(text)) })
		if err != nil {
			return
		}
		for _, p := range Policies() {
			if _, err := l.Run(Config{Budget: l.Peak/2 + 1, Policy: p.Name, MaxTime: 10 * l.Baseline}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func sample(t testing.TB, name string) *Log {
	t.Helper()
	f, err := os.Open(filepath.Join("../testdata", name+".log.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The figures are those of another reader, remat/testdata/programlog.py; its README has them.
func TestRecordedLogs(t *testing.T) {
	for name, want := range map[string]Log{
		"unet":   {Operations: 615, Peak: 3453019716, Constants: 107371232, Bottleneck: 734113792 + 107371232},
		"resnet": {Operations: 1161, Peak: 5740013576, Constants: 228452040, Bottleneck: 616566784 + 228452040},
		"gan":    {Operations: 1791, Peak: 2350950528, Constants: 85214544, Bottleneck: 100664320 + 85214544},
	} {
		got := *sample(t, name)
		if got.Baseline < time.Millisecond {
			t.Errorf("%s takes %v, want milliseconds", name, got.Baseline)
		}
		got.program, got.Baseline = nil, 0
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}
