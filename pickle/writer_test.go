package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// written is the pickle that a function writes, without the protocol and the frame around it.
func written(t testing.TB, write func(p *Writer)) string {
	t.Helper()
	var b bytes.Buffer
	p := NewWriter(&b)
	write(p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	const head = 2 + 9
	if b.Len() < head || !bytes.HasPrefix(b.Bytes(), []byte("\x80\x04\x95")) {
		t.Fatalf("starts with %q", b.Bytes())
	}
	return strings.TrimSuffix(b.String()[head:], ".")
}

// Python 3.11 writes the same bytes for each of these with pickle.dumps(x, 4), apart from the memo.
func TestWriterWritesWhatPythonDoes(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "N"},
		{true, "\x88"},
		{false, "\x89"},
		{0, "K\x00"},
		{255, "K\xff"},
		{256, "M\x00\x01"},
		{65535, "M\xff\xff"},
		{65536, "J\x00\x00\x01\x00"},
		{-1, "J\xff\xff\xff\xff"},
		{math.MinInt32, "J\x00\x00\x00\x80"},
		{math.MaxInt32, "J\xff\xff\xff\x7f"},
		{int64(1) << 31, "\x8a\x05\x00\x00\x00\x80\x00"},
		{int64(math.MinInt32) - 1, "\x8a\x05\xff\xff\xff\x7f\xff"},
		{int64(1)<<39 - 1, "\x8a\x05\xff\xff\xff\xff\x7f"},
		{int64(1) << 39, "\x8a\x06\x00\x00\x00\x00\x80\x00"},
		{int64(-1) << 39, "\x8a\x05\x00\x00\x00\x00\x80"},
		{int64(math.MaxInt64), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"},
		{int64(math.MinInt64), "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"},
		{uint64(1) << 63, "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"},
		{uint64(7), "K\x07"},
		{-1.5, "G\xbf\xf8\x00\x00\x00\x00\x00\x00"},
		{"grün", "\x8c\x05gr\xc3\xbcn\x94"},
		{strings.Repeat("x", 256), "X\x00\x01\x00\x00" + strings.Repeat("x", 256) + "\x94"},
		{[]byte{0, 255}, "C\x02\x00\xff\x94"},
		{bytes.Repeat([]byte("x"), 256), "B\x00\x01\x00\x00" + strings.Repeat("x", 256) + "\x94"},
		{[]any{}, "]"},
		{map[string]any{}, "}"},
		{[]any{1, 2}, "]\x94(K\x01K\x02e"},
		{map[string]any{"b": 1, "a": "b"}, "}\x94(\x8c\x01a\x94\x8c\x01b\x94h\x02K\x01u"},
		{[]Pair{{[]any{1, 2}, nil}, {[]any{}, nil}, {[]any{1, 2, 3, 4}, nil}}, "}\x94(K\x01K\x02\x86\x94N)N(K\x01K\x02K\x03K\x04t\x94Nu"},
		{[]any{TupleValue{1, []any{2}}, TupleValue{}}, "]\x94(K\x01]\x94(K\x02e\x86\x94)e"},
		{Handle(3), "N"},
	} {
		if got := written(t, func(p *Writer) { p.Value(c.value) }); got != c.want {
			t.Errorf("%v: %q, want %q", c.value, got, c.want)
		}
	}
}

func TestWriterFillsInBatches(t *testing.T) {
	full := "(" + strings.Repeat("N", 1000) + "e"
	for n, want := range map[int]string{
		0: "]", 1: "](Ne", 1000: "]" + full, 1001: "]" + full + "(Ne", 2500: "]" + full + full + "(" + strings.Repeat("N", 500) + "e",
	} {
		if got := written(t, func(p *Writer) { p.List(n, func(int) { p.None() }) }); got != want {
			t.Errorf("%d items: %d bytes, want %d", n, len(got), len(want))
		}
	}
	pairs := make([]Pair, 2001)
	for i := range pairs {
		pairs[i].Key = true
	}
	got := written(t, func(p *Writer) { p.Value(pairs) })
	full = "(" + strings.Repeat("\x88N", 1000) + "u"
	if want := "}\x94" + full + full + "(\x88Nu"; got != want {
		t.Errorf("2001 pairs: %d bytes, want %d", len(got), len(want))
	}
}

func TestWriterMemo(t *testing.T) {
	got := written(t, func(p *Writer) {
		p.BeginList()
		p.Fill()
		for i := range 300 {
			p.Str("")
			if m := p.Put(); m != Memo(i) {
				t.Errorf("number %d, want %d", m, i)
			}
		}
		p.Get(255)
		p.Get(256)
		p.EndList()
	})
	if want := "](" + strings.Repeat("\x8c\x00\x94", 300) + "h\xffj\x00\x01\x00\x00e"; got != want {
		t.Errorf("%q", got)
	}
}

func TestWriterKeepsWhatPythonReads(t *testing.T) {
	for s, want := range map[string]string{
		"a\xffb":       "a\ufffdb",
		"\xed\xa0\x80": "\xed\xa0\x80", // half of a surrogate pair
		"\xed\xa0":     "\ufffd\ufffd",
		"\ufffd":       "\ufffd",
		"\xf8é":        "\ufffdé",
	} {
		if got := written(t, func(p *Writer) { p.Str(s) }); got != fmt.Sprintf("\x8c%c%s", len(want), want) {
			t.Errorf("%q: %q", s, got)
		}
	}
}

// Reading, writing and reading again gives the same values.
func TestWriterRoundTrip(t *testing.T) {
	want := plainValue(3)
	var b bytes.Buffer
	p := NewWriter(&b)
	p.Value(want)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Read(&b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Plain(d.Root()); !reflect.DeepEqual(got, any(want)) {
		t.Errorf("%v", got)
	}
	if d.Protocol() != 4 {
		t.Errorf("protocol %d", d.Protocol())
	}
}

// A small value that is endless when walked stays small.
func TestWriterSharesContainers(t *testing.T) {
	var list any = []any{"ha"}
	var dict any = map[string]any{"k": 1}
	var key any = TupleValue{1}
	for range 60 {
		list, dict, key = []any{list, list}, map[string]any{"a": dict, "b": dict}, TupleValue{key, key}
	}
	got := written(t, func(p *Writer) {
		for range 100 { // also from one call to the next
			p.Value([]any{list, dict, []Pair{{key, nil}}, TupleValue{key, key}})
		}
	})
	if len(got) > 6000 {
		t.Errorf("%d bytes", len(got))
	}
}

// Frames let a reader fetch what it needs at once; a long string makes a longer one.
func TestWriterFrames(t *testing.T) {
	var b bytes.Buffer
	p := NewWriter(&b)
	long := strings.Repeat("y", 200_000)
	p.List(100_000, func(i int) {
		if i == 50_000 {
			p.Str(long)
			return
		}
		p.Int(int64(i))
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	rest, frames, most := b.Bytes()[2:], 0, 0
	for len(rest) > 0 {
		n := 0
		for i := range 8 {
			n |= int(rest[1+i]) << (8 * i)
		}
		if rest[0] != 0x95 || n > len(rest)-9 {
			t.Fatalf("frame of %d bytes, of %d", n, len(rest))
		}
		rest, frames, most = rest[9+n:], frames+1, max(most, n)
	}
	if frames < 5 || most < len(long) || most > len(long)+frameSize+16 {
		t.Errorf("%d frames, of at most %d bytes", frames, most)
	}
	d, err := Read(&b, Options{})
	if err != nil || d.Len(d.Root()) != 100_000 {
		t.Fatal(err)
	}
}

// A failingWriter accepts some bytes, then fails.
type failingWriter struct{ left int }

var errFull = errors.New("full")

func (w *failingWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return 0, errFull
	}
	w.left -= len(b)
	return len(b), nil
}

func TestWriterKeepsTheFirstError(t *testing.T) {
	w := &failingWriter{100_000}
	p := NewWriter(w)
	p.List(200_000, func(i int) { p.Int(1) })
	if p.Err() != errFull {
		t.Errorf("Err() = %v before the end", p.Err())
	}
	w.left = 1 << 30
	if err := p.Close(); err != errFull || w.left != 1<<30 {
		t.Errorf("Close() = %v, %d bytes written after the error", err, 1<<30-w.left)
	}
}

func TestWriterPanicsOnOtherTypes(t *testing.T) {
	text := testkit.Panic(t, func() { NewWriter(&bytes.Buffer{}).Value(struct{}{}) })
	testkit.Equal(t, "panic", text, "pickle: Value of a struct {}")
}

// FuzzWrite reads arbitrary input and writes it. The result reads back, and is written as the same bytes again.
func FuzzWrite(f *testing.F) {
	for _, v := range []any{plainValue(3), []any{1, "a", []Pair{{nil, []any{2.5}}}}, "\xff"} {
		var b bytes.Buffer
		p := NewWriter(&b)
		p.Value(v)
		p.Close()
		f.Add(b.Bytes()[:min(b.Len(), 4096)])
	}
	f.Add([]byte(laughs(20)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var before []byte
		for range 2 {
			d, err := Read(bytes.NewReader(in), Options{Limits: fuzzLimits})
			if err != nil {
				if before != nil {
					t.Fatalf("what was written: %v", err)
				}
				return
			}
			var b bytes.Buffer
			p := NewWriter(&b)
			p.Value(d.Plain(d.Root()))
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if before != nil && !bytes.Equal(before, b.Bytes()) {
				t.Fatalf("%q, then %q", before, b.Bytes())
			}
			before = b.Bytes()
			in = before
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	w := &failingWriter{math.MaxInt}
	p := NewWriter(w)
	for b.Loop() {
		p.BeginDict()
		p.Fill()
		p.Name("size")
		p.Int(1 << 40)
		p.Name("name")
		p.Str("forward")
		p.EndDict()
	}
	b.SetBytes((math.MaxInt - int64(w.left)) / int64(b.N))
}

// A value referenced from many places is one piece of memory when read, and is written once: a small file stays small.
func TestBytesAreShared(t *testing.T) {
	const size, times = 1 << 16, 100
	var file bytes.Buffer
	p := NewWriter(&file)
	var m Memo
	p.List(times, func(i int) {
		if i > 0 {
			p.Get(m)
			return
		}
		p.Bytes(bytes.Repeat([]byte{7}, size))
		m = p.Put()
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Read(bytes.NewReader(file.Bytes()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	items := d.Plain(d.Root()).([]any)
	first := items[0].([]byte)
	for i, item := range items {
		if b := item.([]byte); len(b) != size || &b[0] != &first[0] {
			t.Fatalf("item %d is a copy of %d bytes, want the first's %d", i, len(b), size)
		}
	}
	var again bytes.Buffer
	p = NewWriter(&again)
	p.Value(items)
	if err := p.Close(); err != nil || again.Len() > 2*size {
		t.Errorf("written anew it has %d bytes (%v), from %d", again.Len(), err, file.Len())
	}
}
