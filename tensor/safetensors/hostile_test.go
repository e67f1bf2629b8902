package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A hostile is a file that must be refused.
type hostile struct {
	what string
	file []byte
}

// one is the entry of a tensor of 16 bytes, and good a header of it alone.
const (
	one  = `"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}`
	good = `{` + one + `}`
)

// hostiles returns files that are wrong in all the ways that there are, the same ones every time.
func hostiles() []hostile {
	var all []hostile
	add := func(what string, file []byte) { all = append(all, hostile{what, file}) }
	data := make([]byte, 16)
	header := func(what, text string) { add(what, raw(text, data)) }
	entry := func(what, kind, shape, offsets string) {
		header(what, fmt.Sprintf(`{"t":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, kind, shape, offsets))
	}
	empty := func(what, kind, shape string) { // takes no bytes, it says, as the file has none
		add(what, raw(fmt.Sprintf(`{"t":{"dtype":%s,"shape":%s,"data_offsets":[0,0]}}`, kind, shape), nil))
	}
	file := raw(good, data)

	for n := range file { // every shorter file
		add(fmt.Sprintf("the first %d bytes of a file", n), file[:n])
	}
	for n := 1; n <= 64; n++ {
		add(fmt.Sprintf("%d bytes behind the last", n), append(file[:len(file):len(file)], make([]byte, n)...))
	}
	for i := range 64 { // lengths of the header
		for _, n := range []uint64{1 << i, 1<<i - 1, math.MaxUint64 - 1<<i} {
			if n == uint64(len(good)) {
				continue
			}
			b := append([]byte(nil), file...)
			binary.LittleEndian.PutUint64(b, n)
			add(fmt.Sprintf("a header of %d bytes", n), b)
		}
	}
	for i := range len(good) { // bytes that are not UTF-8, or control characters, anywhere
		for _, c := range []byte{0x80, 0xff, 0xc0, 0xed, 0x00, 0x01, 0x1f} {
			add(fmt.Sprintf("byte %#x at %d of the header", c, i), raw(good[:i]+string([]byte{c})+good[i+1:], data))
		}
		if c := good[i]; c != '"' || i == 0 {
			continue
		}
		header(fmt.Sprintf("no quote at %d", i), good[:i]+good[i+1:])
	}
	for _, text := range []string{
		"", " ", "{", "}", "[]", "null", "1", `"t"`, "{{}}", " " + good, "\n" + good, good + "x", good + good, good + ",",
		"[" + good + "]", "{" + one + ",}", "{," + one + "}", "{" + one + " " + one + "}", "{'t':1}", "{t:1}", "{1:1}", "{null:1}",
		`{"t"}`, `{"t":}`, `{"t":1}`, `{"t":null}`, `{"t":"x"}`, `{"t":[]}`, `{"t":{}}`, `{"t":{},}`, `{"t" {}}`, "\ufeff" + good,
		"/* */" + good, good + "// x", strings.ReplaceAll(good, ":", "="), strings.ReplaceAll(good, ",", ";"),
		strings.ReplaceAll(good, `"`, "'"), strings.ToUpper(good), good + "\x00", "{}{}", "{}", "{}  ",
	} {
		header(fmt.Sprintf("the header %q", text), text)
	}
	for depth := 1; depth <= 1<<20; depth *= 2 { // nesting
		for _, open := range []string{"[", `{"a":`} {
			deep := strings.Repeat(open, depth)
			header(fmt.Sprintf("%d times %q", depth, open), deep)
			header(fmt.Sprintf("%d times %q as a tensor", depth, open), `{"t":`+deep)
			entry(fmt.Sprintf("%d times %q as a shape", depth, open), `"F32"`, deep, "[0,16]")
			header(fmt.Sprintf("%d times %q as metadata", depth, open), `{"__metadata__":`+deep)
		}
	}
	for _, kind := range []string{ // types
		`"f32"`, `"F33"`, `"float32"`, `"F32 "`, `" F32"`, `""`, `"torch.float32"`, `"C128"`, `"STRING"`, `"O"`, `"F32\u0000"`, `null`, `32`, `["F32"]`,
		`{}`, `true`, `"\ud83d"`, `"half"`, `"<f4"`, `"I4"`, `"U4"`, `"BOOL8"`, `"F8_E4M3FN"`, `"F8"`, `"BF16X"`, `"` + strings.Repeat("F", 10000) + `"`,
	} {
		entry("the type "+shortened(kind), kind, "[2,2]", "[0,16]")
	}
	for _, kind := range []string{"BOOL", "U8", "I16", "BF16", "F64", "C64", "F4", "F6_E2M3", "F8_E8M0"} { // sizes
		entry("four elements of "+kind+" in 16 bytes", `"`+kind+`"`, "[2,2]", "[0,16]")
	}
	for n := range 17 {
		for _, kind := range []string{"F4", "F6_E2M3", "F32", "I8"} {
			if kind == "F4" && n == 32 || kind == "I8" && n == 16 || kind == "F32" && n == 4 {
				continue
			}
			entry(fmt.Sprintf("%d of %s in 16 bytes", n, kind), `"`+kind+`"`, fmt.Sprintf("[%d]", n), "[0,16]")
		}
	}
	for _, number := range []string{ // numbers that are none, or too large
		"-1", "-0", "-4", "2.0", "2.5", "2e0", "2E0", "0x2", "02", "00", "+2", " ", "2 2", "NaN", "Infinity", "null", "true", `"2"`, "[2]", "{}", "2,", ",2", ".2",
		"2.", "9223372036854775808", "18446744073709551615", "18446744073709551618", "1e400", "99999999999999999999999999999999", "-9223372036854775808",
		"4294967296", "4611686018427387904", "9223372036854775807", "2305843009213693952", "1152921504606846977", "1" + strings.Repeat("0", 1000), "２", "1_0",
	} {
		entry("the shape ["+shortened(number)+",2]", `"F32"`, "["+number+",2]", "[0,16]")
		entry("the shape [2,"+shortened(number)+"]", `"F32"`, "[2,"+number+"]", "[0,16]")
		entry("offsets from "+shortened(number), `"F32"`, "[2,2]", "["+number+",16]")
		entry("offsets to "+shortened(number), `"F32"`, "[2,2]", "[0,"+number+"]")
		if number != "4" {
			entry("the shape "+shortened(number), `"F32"`, number, "[0,16]")
		}
		entry("the offsets "+shortened(number), `"F32"`, "[2,2]", number)
	}
	for i := 1; i < 64; i++ { // shapes whose product wraps to 4, or to 0
		entry(fmt.Sprintf("the shape [2^%d, 2^%d, 4]", i, 64-i), `"F32"`, fmt.Sprintf("[%d,%d,4]", uint64(1)<<i, uint64(1)<<(64-i)), "[0,16]")
		empty(fmt.Sprintf("the shape [2^%d, 2^%d, 0]", i, 64-i), `"F32"`, fmt.Sprintf("[%d,%d,0]", uint64(1)<<i, uint64(1)<<(64-i)))
	}
	for i := 56; i < 63; i++ { // elements whose bits wrap to 0
		empty(fmt.Sprintf("the shape [2^%d]", i), `"F64"`, fmt.Sprintf("[%d]", uint64(1)<<i))
	}
	entry("65 axes of length 2", `"F32"`, "["+strings.Repeat("2,", 64)+"2]", "[0,16]")
	entry("a million axes of length 3", `"F32"`, "["+strings.Repeat("3,", 1e6)+"3]", "[0,16]")
	for begin := range 20 { // offsets that do not fit the shape
		for end := range 20 {
			if begin != 0 || end != 16 {
				entry(fmt.Sprintf("the offsets [%d,%d]", begin, end), `"F32"`, "[2,2]", fmt.Sprintf("[%d,%d]", begin, end))
			}
		}
	}
	for _, offsets := range []string{"[]", "[16]", "[0,8,16]", "[0,16,0]", "[[0,16]]", "[0,16", "0,16", `["0","16"]`, `{"0":16}`, "[0 16]", "[0,,16]"} {
		entry("the offsets "+offsets, `"F32"`, "[2,2]", offsets)
	}
	two := func(a, b, c, d int) { // overlaps and gaps
		header(fmt.Sprintf("tensors at [%d,%d] and [%d,%d]", a, b, c, d), fmt.Sprintf(
			`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},"b":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}`, b-a, a, b, d-c, c, d))
	}
	for a := 0; a <= 16; a += 4 {
		for b := a; b <= 20; b += 4 {
			for c := 0; c <= 16; c += 4 {
				for d := c; d <= 20; d += 4 {
					covers := (a == 0 && b == c && d == 16) || (c == 0 && d == a && b == 16) || (a == 0 && b == 16 && c == d && (c == 0 || c == 16)) ||
						(c == 0 && d == 16 && a == b && (a == 0 || a == 16))
					if !covers {
						two(a, b, c, d)
					}
				}
			}
		}
	}
	for _, fields := range []string{ // fields
		`"dtype":"F32","shape":[2,2]`, `"dtype":"F32","data_offsets":[0,16]`, `"shape":[2,2],"data_offsets":[0,16]`,
		`"dtype":"F32","dtype":"F32","shape":[2,2],"data_offsets":[0,16]`, `"dtype":"F32","shape":[2,2],"shape":[2,2],"data_offsets":[0,16]`,
		`"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"data_offsets":[0,16]`, `"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"strides":[2,1]`,
		`"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"":1`, `"Dtype":"F32","shape":[2,2],"data_offsets":[0,16]`,
		`"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"d\u0074ype":"F32"`, `"dtype":"F32","shape":[2,2],"offsets":[0,16]`,
		`"dtype":"F32","shape":[2,2],"data_offsets":[0,16],`, `,"dtype":"F32","shape":[2,2],"data_offsets":[0,16]`,
	} {
		header("the fields "+fields, `{"t":{`+fields+`}}`)
	}
	header("a tensor that comes twice", "{"+one+","+one+"}")
	header("a tensor that comes twice, escaped", "{"+one+`,"\u0074":{"dtype":"F32","shape":[0],"data_offsets":[16,16]}}`)
	for _, metadata := range []string{ // metadata
		`null`, `1`, `"x"`, `[]`, `{"a":1}`, `{"a":null}`, `{"a":{}}`, `{"a":["b"]}`, `{"a":true}`, `{"a":"b","a":"c"}`, `{"a":"b",}`, `{"a"}`, `{"a":"b"`, `{"a":"\ud800"}`,
		`{"a":"\udc00\ud800"}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"` + "\n" + `"}`, `{"\u00`, `{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}`,
		`{"a":"\ud83d\u0041"}`, `{"a":"\`, `{"a":"\u`, `{"a":"b"},"__metadata__":{"a":"b"}`,
	} {
		header("the metadata "+metadata, `{"__metadata__":`+metadata+","+one+"}")
	}
	return all
}

// Every hostile file is refused with an error that names it and its kind, and without much memory.
func TestHostileHeadersAreRefused(t *testing.T) {
	all := hostiles()
	distinct := map[string]bool{}
	dir := t.TempDir()
	for _, h := range all {
		if distinct[string(h.file)] {
			continue
		}
		distinct[string(h.file)] = true
		before := testkit.Allocated()
		_, err := parse("evil", h.file)
		took := testkit.Allocated() - before
		var format *FormatError
		switch {
		case err == nil:
			t.Errorf("%s: accepted: %.200q", h.what, h.file)
			continue
		case !errors.Is(err, ErrFormat) || !errors.As(err, &format) || format.Path != "evil" || !strings.Contains(err.Error(), "evil: "):
			t.Errorf("%s: %v", h.what, err)
		case len(err.Error()) > 1000:
			t.Errorf("%s: an error of %d bytes", h.what, len(err.Error()))
		}
		if took > 64<<10+64*uint64(len(h.file)) {
			t.Errorf("%s: %d bytes allocated for a file of %d", h.what, took, len(h.file))
		}
	}
	if len(distinct) < 1000 {
		t.Errorf("%d distinct files, want at least 1000", len(distinct))
	}
	t.Logf("%d distinct hostile files", len(distinct))
	for i := 0; i < len(all); i += 50 { // and as files
		if _, err := Open(put(t, dir, "evil", all[i].file), Options{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", all[i].what, err)
		}
	}
	if _, err := parse("good", raw(good, make([]byte, 16))); err != nil {
		t.Errorf("and what they are made of is good: %v", err)
	}
}

// Of the texts that number returns, the same ones are numbers as for Go's decoder.
func TestIsNumber(t *testing.T) {
	const letters = "x-+.eE019"
	for n := range 9 * 9 * 9 * 9 * 9 { // texts of up to five letters
		var text []byte
		for ; n > 0; n /= len(letters) {
			text = append(text, letters[n%len(letters)])
		}
		if got, want := isNumber(string(text)), json.Valid(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Errors name the file, the tensor and both numbers.
func TestErrorsSayWhatIsWrong(t *testing.T) {
	data := make([]byte, 16)
	for text, want := range map[string]string{
		`{"a.b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,16]}}`:               `f.safetensors: tensor "a.b": F32[2 3] takes 24 bytes, and data_offsets [0, 16] are 16`,
		`{"t":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}`:                   `tensor "t": it begins at byte 8, and the bytes of those before it end at 0: a gap`,
		`{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`:                    `the tensors end at byte 8 of the data, of which the file has 16`,
		`{"t":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}`:                   `tensor "t": it ends at byte 24 of the data, of which the file has 16`,
		`{"t":{"dtype":"F32","shape":[-6],"data_offsets":[0,24]}}`:                  `tensor "t": byte 31 of the JSON: -6 is negative`,
		`{"t":{"dtype":"F32","shape":[6],"data_offsets":[24,0]}}`:                   `data_offsets [24, 0] end before they begin`,
		`{"t":{"dtype":"f32","shape":[6],"data_offsets":[24,0]}}`:                   `"f32" is not an element type of the format`,
		`{"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`:                     `F4[3] takes 12 bits, which is not a whole number of bytes`,
		`{"t":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`: `the shape [4294967296 4294967296] has more elements than`,
	} {
		if _, err := parse("f.safetensors", raw(text, data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// Indexes that lie, or lead out of their directory.
func TestHostileIndexesAreRefused(t *testing.T) {
	dir := t.TempDir()
	outside := put(t, dir, "out.safetensors", raw(good, make([]byte, 16)))
	sub := filepath.Join(dir, "sub")
	testkit.Must(t, os.Mkdir(sub, 0o700))
	put(t, sub, "a.safetensors", raw(good, make([]byte, 16)))
	put(t, sub, "bad.safetensors", raw("{", nil))
	index := func(text string) string { return put(t, sub, "model.safetensors.index.json", []byte(text)) }
	ok := `{"metadata":{"total_size":16,"other":{"a":[1.5e3,0,-0,-0.5,10,true,null,"x"]}},"weight_map":{"t":"a.safetensors"},"more":[]}`
	s, err := OpenSharded(index(ok), Options{})
	testkit.Must(t, err)
	testkit.Must(t, s.Close())

	shards := []string{
		"../out.safetensors", "..\\out.safetensors", outside, "./a.safetensors", "sub/../a.safetensors", "/etc/passwd", "", ".", "..", "a.safetensors/",
		"a.safetensors\x00", "C:a.safetensors", "a.safetensors:stream", "\\\\host\\share", "//host/share", "~/a.safetensors/..",
	}
	for _, shard := range shards {
		text := `{"weight_map":{"t":` + string(appendString(nil, shard)) + `}}`
		if _, err := OpenSharded(index(text), Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "not a plain name") {
			t.Errorf("a shard %q: %v", shard, err)
		}
	}
	for text, want := range map[string]string{
		``:                       "want '{', found the end",
		`[]`:                     "want '{', and it begins with '['",
		`x`:                      "want '{', and it begins with 'x'",
		`{}`:                     "no weight_map",
		`{"weight_map":{}}x`:     "want the end",
		`{"weight_map":[]}`:      "want '{'",
		`{"weight_map":{"t":1}}`: "want '\"'",
		`{"weight_map":{"t":"a.safetensors","t":"a.safetensors"}}`:                  "is duplicate",
		`{"weight_map":{"t":"a.safetensors"},"weight_map":{}}`:                      "is duplicate",
		`{"weight_map":{"t":"a.safetensors","u":"a.safetensors"}}`:                  `tensor "u": the index says that it is in "a.safetensors", but it is not`,
		`{"weight_map":{"u":"a.safetensors"}}`:                                      `tensor "t": it is in the file "a.safetensors", and the index does not have it`,
		`{"weight_map":{"t":"bad.safetensors"}}`:                                    "bad.safetensors: the header",
		`{"metadata":{"total_size":17},"weight_map":{"t":"a.safetensors"}}`:         "total_size is 17, but the tensors have 16 bytes",
		`{"metadata":{"total_size":-1},"weight_map":{"t":"a.safetensors"}}`:         "not a number of bytes",
		`{"metadata":{"total_size":1.5},"weight_map":{"t":"a.safetensors"}}`:        "not a number of bytes",
		`{"metadata":{"total_size":1e300},"weight_map":{"t":"a.safetensors"}}`:      "not a number of bytes",
		`{"metadata":{"total_size":"16"},"weight_map":{"t":"a.safetensors"}}`:       "want a number",
		`{"weight_map":{"t":"a.safetensors"},"x":` + strings.Repeat("[", 1e6) + `}`: "nest deeper",
		`{"weight_map":{"t":"a.safetensors"},"x":01}`:                               "not a number",
		`{"weight_map":{"t":"a.safetensors"},"x":nul}`:                              "want a value",
		`{"weight_map":{"t":"a.safetensors"},"x":"` + "\xff" + `"}`:                 "not UTF-8",
	} {
		if _, err := OpenSharded(index(text), Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q in it", text, err, want)
		}
	}
	if _, err := OpenSharded(index(`{"weight_map":{"t":"none.safetensors"}}`), Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.safetensors") {
		t.Errorf("a shard that is missing: %v", err)
	}
}

// FuzzHeader checks parse's guarantees on every header that it accepts.
func FuzzHeader(f *testing.F) {
	for i, h := range hostiles() {
		if i%20 == 0 && len(h.file) < 1000 {
			f.Add(h.file)
		}
	}
	f.Add(raw(good, make([]byte, 16)))
	f.Add(raw(`{"__metadata__":{"a\u00e9":"\ud83d\ude00"},"x":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]} }  `, make([]byte, 3)))
	f.Fuzz(func(t *testing.T, file []byte) {
		var h *header
		var err error
		testkit.AllocatesAtMost(t, len(file), 200, 1<<20, func() { h, err = parse("x", file) })
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%v", err)
			}
			return
		}
		covered := make([]bool, int64(len(file))-h.data)
		for _, e := range h.entries {
			for i := e.begin; i < e.begin+e.Size; i++ {
				if covered[i] {
					t.Fatalf("byte %d is two tensors'", i)
				}
				covered[i] = true
			}
		}
		for i, is := range covered {
			if !is {
				t.Fatalf("byte %d is no tensor's", i)
			}
		}
	})
}
