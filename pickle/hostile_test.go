package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestHostileInputs(t *testing.T) {
	all := hostileInputs()
	if len(all) < 100 {
		t.Errorf("%d hostile inputs, want at least 100", len(all))
	}
	names := map[string]bool{}
	for _, h := range all {
		if names[h.name] {
			t.Errorf("two inputs are named %q", h.name)
		}
		names[h.name] = true
		before := testkit.Allocated()
		d, err := Read(strings.NewReader(h.data), Options{})
		took := testkit.Allocated() - before
		wantError(t, h.name, err, h.code, h.text)
		if d != nil {
			t.Errorf("%s: a Document beside an error", h.name)
		}
		if bound := uint64(1<<20 + 200*len(h.data)); took > bound {
			t.Errorf("%s: %d bytes allocated for %d of input, want at most %d", h.name, took, len(h.data), bound)
		}
		if len(h.data) > 1<<16 {
			continue
		}
		if one, oneErr := Read(iotest.OneByteReader(strings.NewReader(h.data)), Options{}); one != nil ||
			oneErr.Error() != err.Error() {
			t.Errorf("%s: byte by byte %v, at once %v", h.name, oneErr, err)
		}
	}
}

// laughs is a list of ten lists of ten lists, n times, in a few bytes a level.
func laughs(n int) string {
	s := p4 + "\x8c\x03lol\x94"
	for i := range n {
		s += "]\x94(" + strings.Repeat("h"+string([]byte{byte(i)}), 10) + "e"
	}
	return s + strings.Repeat("\x86", n) + "."
}

func TestBillionLaughsStayOneListEach(t *testing.T) {
	const levels = 100 // a walk of all paths would see 10^100 strings
	d, err := Read(strings.NewReader(laughs(levels)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Nodes(), 2*levels; got != want {
		t.Errorf("%d nodes, want %d", got, want)
	}
	if d.Plain(d.Root()) == nil { // takes no time
		t.Error("Plain gave nothing")
	}
}

func TestTruncationAtEveryByte(t *testing.T) {
	body := "](}(\x8c\x01aK\x01X\x01\x00\x00\x00bM\x01\x02uG" + le64(0) + "(N\x88\x89t\x94\x8a\x02\x01\x02" +
		"J\xff\xff\xff\xffC\x02xyB\x01\x00\x00\x00z\x8e" + le64(1) + "z\x8d" + le64(1) + "z\x96" + le64(1) + "z" +
		"h\x00j" + le32(0) + "r" + le32(7) + "q\x08\x8b" + le32(1) + "\x05e."
	whole := p4 + "\x95" + le64(uint64(len(body))) + body
	if _, err := Read(strings.NewReader(whole), Options{}); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		_, err := Read(strings.NewReader(whole[:n]), Options{})
		wantError(t, fmt.Sprintf("the first %d bytes", n), err, ErrTruncated, "the input ends")
	}
	broken := errors.New("the disk is on fire")
	for n := range len(whole) {
		r := io.MultiReader(strings.NewReader(whole[:n]), iotest.ErrReader(broken))
		_, err := Read(r, Options{})
		wantError(t, fmt.Sprintf("a failure after %d bytes", n), err, broken, "cannot be read: the disk is on fire")
	}
}

func TestLimits(t *testing.T) {
	many := strings.Repeat
	for _, c := range []struct {
		name   string
		data   string
		limits Limits
		text   string // of the error; empty if there is none
	}{
		{"bytes, just enough", p2 + "N.", Limits{Bytes: 4}, ""},
		{"bytes", p2 + "NN0.", Limits{Bytes: 4}, "the input is longer than the limit of 4 bytes"},
		{"bytes, more follow the pickle", p2 + "N.more", Limits{Bytes: 4}, ""},
		{"nodes, just enough", p2 + "](]]e.", Limits{Nodes: 3}, ""},
		{"nodes", p2 + "](]]]e.", Limits{Nodes: 3}, "more than 3 dicts"},
		{"memo, just enough", p2 + "Nq\x02.", Limits{Memo: 3}, ""},
		{"memo", p2 + "Nq\x03.", Limits{Memo: 3}, "puts memo entry 3: the limit is 3"},
		{"depth, just enough", p2 + "]]]aa.", Limits{Depth: 3}, ""},
		{"depth", p2 + "]]]]aaa.", Limits{Depth: 3}, "more than 3 deep"},
		{"depth, shared", p2 + "]]]aq\x000](]h\x00aea.", Limits{Depth: 3}, "more than 3 deep"},
		{"depth, shared and seen before", p2 + "](]]aq\x00]h\x00a]]h\x00aae.", Limits{Depth: 4}, "more than 4 deep"},
		{"marks", p2 + "((((1111N.", Limits{Depth: 3}, "more than 3 marks"},
		{"string, just enough", p2 + "X\x03\x00\x00\x00abc.", Limits{String: 3}, ""},
		{"string", p2 + "X\x04\x00\x00\x00abcd.", Limits{String: 3}, "declares a length of 4 bytes: the limit is 3"},
		{
			"empty containers on the stack", p2 + many("](}", 100),
			Limits{Open: 100},
			"finds 128 empty dicts, lists and tuples on the stack: the limit is fewer than 100",
		},
		{"empty containers, then taken", p2 + "(" + many("]", 99) + many("N", 10_000) + "t.", Limits{Open: 100}, ""},
		{"filled containers on the stack", p2 + "(" + many("]Na", 10_000) + "t.", Limits{Open: 100}, ""},
		{"memory of the stack", p2 + many("N", 1_000_000), Limits{Memory: 1 << 20}, "more memory than 1048576 bytes"},
		{"memory of the memo", p4 + "N" + many("\x94", 1_000_000), Limits{Memory: 1 << 20}, "more memory"},
		{"memory of lists", p2 + many("]0", 1_000_000), Limits{Memory: 1 << 20}, "more memory"},
		{"memory of items", p2 + "]" + many("Na", 1_000_000), Limits{Memory: 1 << 20}, "more memory"},
		{"memory of tuples", p2 + many(")\x850", 100_000), Limits{Memory: 1 << 20}, "more memory"},
	} {
		_, err := Read(strings.NewReader(c.data), Options{Limits: c.limits})
		if c.text == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		wantError(t, c.name, err, ErrLimit, c.text)
	}
}

func TestAllow(t *testing.T) {
	over := errors.New("too much of it")
	var earned int64
	read := func(data string, each int64, fold Fold) error {
		earned = 0
		_, err := Read(strings.NewReader(data), Options{Fold: fold, Allow: func() (int64, error) {
			earned += each
			return earned, over
		}})
		return err
	}
	many := p2 + "(" + strings.Repeat("N", 100_000) + "t."
	if err := read(many, 1<<20, nil); err != nil {
		t.Errorf("with enough: %v", err)
	}
	if err := read(many, 100, nil); !errors.Is(err, over) {
		t.Errorf("with too little: %v, want %v", err, over)
	}
	wantError(t, "the limit and the offset", read(many, 1000, nil), over,
		"offset 259: NONE needs more memory than 4000 bytes: too much of it")
	charge := func(d *Document, _ []Value) (uint32, bool) {
		d.Charge(5000)
		return 0, true
	}
	wantError(t, "a Fold that keeps much", read(p2+"}(NNu.", 2000, charge), over, "offset 6: SETITEMS needs more memory")
}

func TestEmptyTuplesAreOne(t *testing.T) {
	d, err := Read(strings.NewReader(p2+"](]))(tN\x85e."), Options{})
	if err != nil {
		t.Fatal(err)
	}
	items := d.Items(d.Root())
	if d.Nodes() != 4 || items[1] != items[2] || items[2] != items[3] || d.Len(items[4]) != 1 {
		t.Errorf("%d nodes, items %v", d.Nodes(), items)
	}
}

func TestRefillOfAFoldedDict(t *testing.T) {
	fold := func(*Document, []Value) (uint32, bool) { return 0, true }
	_, err := Read(strings.NewReader(p2+"}(NNuNNs."), Options{Fold: fold})
	wantError(t, "SETITEM after SETITEMS", err, ErrRefused, "adds to a dict that was already complete")
	if _, err := Read(strings.NewReader(p2+"}(NNu(u."), Options{Fold: fold}); err != nil {
		t.Errorf("adding nothing to a folded dict: %v", err)
	}
}

func TestWhatFollowsIsLeftAlone(t *testing.T) {
	d, err := Read(bytes.NewReader([]byte(p2+"K\x05.cos\nsystem\n.")), Options{})
	if err != nil || d.Size() != 5 || d.Plain(d.Root()) != any(int64(5)) {
		t.Errorf("Read = %v, %v, want 5 of 5 bytes", d, err)
	}
}

// The error for an input that ends within an opcode is a sentence about the opcode.
func TestCutOffInput(t *testing.T) {
	_, err := Read(strings.NewReader("\x80\x04\x8a\x06\x00"), Options{})
	if want := "pickle: offset 2: LONG1 is cut off: the input ends inside its argument"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
