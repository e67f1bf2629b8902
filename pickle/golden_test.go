package pickle

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) (*Document, error) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Read(bytes.NewReader(b), Options{})
}

// plainValue is the value in each testdata/plain.N.pickle, as Python wrote them.
func plainValue(protocol int) map[string]any {
	var many []any
	byName := map[string]any{}
	for i := range 2500 {
		many = append(many, int64(i))
	}
	for i := range 1500 {
		byName[fmt.Sprintf("k%d", i)] = int64(i)
	}
	ints := []any{}
	for _, x := range []int64{
		0, 1, 255, 256, 65535, 65536, -1, -128, 1<<31 - 1, -1 << 31, 1 << 31, 1<<47 + 5, 1<<59 - 1, 1 << 59, -1 << 59,
		-1<<59 - 1, math.MaxInt64, math.MinInt64,
	} {
		ints = append(ints, x)
	}
	one, two, three, four := any(int64(1)), any(int64(2)), any(int64(3)), any(int64(4))
	v := map[string]any{
		"none": nil, "bools": []any{true, false}, "ints": append(ints, uint64(1<<63), uint64(math.MaxUint64)),
		"floats": []any{0.0, -1.5, 1e300},
		"strs":   []any{"", "ascii", "gr\u00fc\u00df", strings.Repeat("x", 300)},
		"tuples": TupleValue{
			TupleValue{}, TupleValue{one}, TupleValue{one, two}, TupleValue{one, two, three}, TupleValue{one, two, three, four},
		},
		"empty":  []any{map[string]any{}, []any{}, TupleValue{}},
		"shared": []any{[]any{"a", "b"}, []any{"a", "b"}},
		"keys":   []Pair{{one, "one"}, {TupleValue{two, three}, "pair"}, {nil, "none"}},
		"many":   many, "dict": byName,
	}
	if protocol >= 3 {
		v["bytes"] = []any{[]byte{}, []byte{0, 0xff}, bytes.Repeat([]byte("y"), 300)}
	}
	if protocol == 5 {
		v["bytearray"] = bytes.Repeat([]byte("z"), 10)
	}
	return v
}

func TestPlainDataOfPython(t *testing.T) {
	for protocol := 2; protocol <= 5; protocol++ {
		d, err := readFile(t, fmt.Sprintf("plain.%d.pickle", protocol))
		if err != nil {
			t.Fatal(err)
		}
		if d.Protocol() != protocol {
			t.Errorf("Protocol() = %d, want %d", d.Protocol(), protocol)
		}
		got, want := d.Plain(d.Root()).(map[string]any), plainValue(protocol)
		if len(got) != len(want) {
			t.Errorf("protocol %d: %d keys, want %d", protocol, len(got), len(want))
		}
		for key := range want {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("protocol %d: %s = %#v, want %#v", protocol, key, got[key], want[key])
			}
		}
		shared, _ := d.Lookup(d.Root(), "shared")
		items := d.Items(shared)
		if items[0] != items[1] || items[0].Node() != items[1].Node() {
			t.Errorf("protocol %d: a list that stands twice came back as two lists", protocol)
		}
	}
}

func TestWhatPythonWritesAndIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		code error
		want string
	}{
		{"system.2.pickle", ErrRefused, "pickle: offset 16: GLOBAL asks for posix.system: refused; " +
			"only plain data is supported, and no code is run"},
		{"system.4.pickle", ErrRefused, "STACK_GLOBAL asks for posix.system: refused"},
		{"ordereddict.4.pickle", ErrRefused, "STACK_GLOBAL asks for collections.OrderedDict: refused"},
		{"set.4.pickle", ErrRefused, "EMPTY_SET makes a set"},
		{"huge.4.pickle", ErrRange, "LONG1 has an integer of 9 bytes, above the largest of 64 bits"},
		{"protocol0.pickle", ErrCorrupt, "one of protocol 0 or 1"},
		{"protocol1.pickle", ErrCorrupt, "one of protocol 0 or 1"},
		{"cycle.4.pickle", ErrRefused, "a list that contains itself"},
	} {
		_, err := readFile(t, c.name)
		wantError(t, c.name, err, c.code, c.want)
	}
}

// wantError checks that err is an *Error with a code and a part of its text.
func wantError(t *testing.T, name string, err, code error, text string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, code) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: error %v, want an *Error of code %q with %q", name, err, code, text)
	}
}

func TestFold(t *testing.T) {
	b, err := os.ReadFile("testdata/plain.4.pickle")
	if err != nil {
		t.Fatal(err)
	}
	folds := 0
	d, err := Read(bytes.NewReader(b), Options{Fold: func(d *Document, pairs []Value) (uint32, bool) {
		if key, ok := d.Int(pairs[0]); ok && key == 1 && len(pairs) == 6 {
			folds++
			return 77, true
		}
		return 0, false
	}})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := d.Lookup(d.Root(), "keys")
	if h, ok := d.Folded(v); !ok || h != 77 || folds != 1 {
		t.Errorf("Folded = %d, %v after %d folds, want 77, true after 1", h, ok, folds)
	}
	if got := d.Plain(v); got != Handle(77) {
		t.Errorf("Plain of a folded dict = %#v, want Handle(77)", got)
	}
	if d.Len(v) != 0 || d.Pairs(v) != nil {
		t.Error("a folded dict still has pairs")
	}
}
