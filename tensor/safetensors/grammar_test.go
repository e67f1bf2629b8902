package safetensors

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// sentence makes a file of the format from the input, with what must be read from it. Spaces, escapes and the order of
// the fields vary. If the input says so, one entry is changed, and wrong tells how: then the file must be refused.
func sentence(in *testkit.Input) (file []byte, want map[string]Info, wrong string) {
	bits := map[string]int{"BOOL": 8, "F4": 4, "F6_E2M3": 6, "I8": 8, "BF16": 16, "F32": 32, "C64": 64}
	space := func() string { return testkit.Choose(in, "", "", "", " ", "\n\t") }
	want = map[string]Info{}
	var members []string
	at := 0
	for i := range in.N(6) {
		name := fmt.Sprintf("%s%d", testkit.Choose(in, "t", "layer.0.", "é", `"\`, ""), i)
		kind := testkit.Choose(in, "BOOL", "F4", "F6_E2M3", "I8", "BF16", "F32", "C64")
		shape := []int{}
		n := 1
		for range in.N(4) {
			length := testkit.Choose(in, 4, 8, 1, 0, 12)
			shape, n = append(shape, length), n*length
		}
		if n*bits[kind]%8 != 0 {
			shape, n = append(shape, 4), n*4
		}
		begin, end := at, at+n*bits[kind]/8
		at = end
		want[name] = Info{Name: name, Type: kind, Shape: shape, Size: int64(end - begin), Path: "x"}
		lengths := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ","+space())
		fault := ""
		if in.N(16) == 15 && wrong == "" {
			fault = testkit.Choose(in, "a length", "the end", "the begin", "the type", "a missing field", "a double field", "a name")
			wrong = fault
			switch fault {
			case "a length":
				lengths += "," + testkit.Choose(in, fmt.Sprint(in.Odd()|2), "-1", "1.0", "x", "")
				if n == 0 {
					lengths += ",-1" // a size of 0 has many shapes
				}
			case "the end":
				end++
			case "the begin":
				begin--
			case "the type":
				kind = testkit.Choose(in, "F33", "f32", "", "O")
			case "a name":
				name = "t0\x00"
			}
		}
		fields := []string{
			fmt.Sprintf(`"dtype"%s:%s"%s"`, space(), space(), kind),
			fmt.Sprintf(`"shape":%s[%s%s]`, space(), lengths, space()),
			fmt.Sprintf(`"d\u0061ta_offsets":[%d,%s%d]`, begin, space(), end),
		}
		switch fault {
		case "a missing field":
			fields = fields[1:]
		case "a double field":
			fields = append(fields, fields[0])
		}
		first := in.N(len(fields))
		fields[0], fields[first] = fields[first], fields[0]
		key := string(appendString(nil, name))
		if strings.Contains(name, "\x00") {
			key = `"t0` + "\x00" + `"`
		}
		members = append(members, key+space()+":{"+strings.Join(fields, space()+",")+space()+"}")
	}
	if in.N(3) == 2 {
		members = append(members, `"__metadata__":{"k"`+space()+`:"v"}`)
	}
	data := make([]byte, at)
	if in.N(16) == 15 && wrong == "" {
		wrong, data = "bytes that are no tensor's", append(data, 0)
	}
	return raw("{"+strings.Join(members, ",")+space()+"}"+strings.Repeat(" ", in.N(8)), data), want, wrong
}

// A file is read as what it says, however that is written, and refused if an entry is wrong.
func FuzzSentence(f *testing.F) {
	f.Add([]byte{3, 0, 5, 2, 0, 1, 0, 1, 0, 1, 0, 1, 1, 2, 2, 0, 3, 0, 0, 0, 0, 0, 2, 6, 3, 1, 1, 1})
	f.Add([]byte{2, 3, 1, 1, 4, 0, 15, 0, 3, 0, 0, 0, 0, 2})
	f.Add([]byte{1, 1, 5, 1, 0, 0, 15, 4, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		file, want, wrong := sentence(&testkit.Input{Rest: input})
		var h *header
		var err error
		testkit.AllocatesAtMost(t, len(file), 200, 1<<20, func() { h, err = parse("x", file) })
		if wrong != "" {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%s: %q: %v", wrong, file, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		got := map[string]Info{}
		for _, e := range h.entries {
			e.DType = 0
			got[e.Name] = e.Info
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is read as %+v, want %+v", file, got, want)
		}
	})
}
