package pack_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/fit/pack"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func instance(t testing.TB, name string) []pack.Buffer {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buffers, offsets, err := pack.ReadCSV(f)
	if err != nil || offsets != nil {
		t.Fatal(offsets, err)
	}
	return buffers
}

func TestReadCSVTakesColumnsByName(t *testing.T) {
	buffers, offsets, err := pack.ReadCSV(strings.NewReader("size,offset,upper,note,id,lower\n4,8,2,new,a,-1\n5,0,3,,b,1\n"))
	if err != nil || !slices.Equal(buffers, []pack.Buffer{{"a", -1, 2, 4}, {"b", 1, 3, 5}}) || !slices.Equal(offsets, []int64{8, 0}) {
		t.Errorf("%v %v %v", buffers, offsets, err)
	}
	// As spreadsheets and people write it.
	buffers, _, err = pack.ReadCSV(strings.NewReader("\ufeff\"id\", lower, upper, size\r\n\"a,\"\"b\", -4, -2, 5\r\n"))
	if err != nil || !slices.Equal(buffers, []pack.Buffer{{`a,"b`, -4, -2, 5}}) {
		t.Errorf("%v %v", buffers, err)
	}
	buffers, offsets, err = pack.ReadCSV(strings.NewReader("id,lower,upper,size"))
	if len(buffers) != 0 || offsets != nil || err != nil {
		t.Errorf("only a header: %v %v %v", buffers, offsets, err)
	}
	_, offsets, err = pack.ReadCSV(strings.NewReader("id,lower,upper,size,offset\n"))
	if offsets == nil || err != nil {
		t.Errorf("no rows of a solution: %v %v", offsets, err)
	}
}

func TestDefect24_ErrorsOfTablesNameLineAndColumn(t *testing.T) {
	for text, want := range map[string]string{
		"":                                               "pack: line 1, column 1: no header",
		"id,lower,upper\n":                               `pack: line 1, column 1: no column "size" in the header`,
		"id,lower,upper,size,id\n":                       `line 1, column 21: two columns are named "id"`,
		"id,lower,upper,size\na,0,1,1\nb,0,1":            "line 3, column 5: wrong number of fields: there are 3, but the header has 4",
		"id,lower,upper,size\na,0,1,1,7,8":               "line 2, column 9: wrong number of fields: there are 6, but the header has 4",
		"id,lower,upper,size\n\na,0,x,1\n":               `line 3, column 5: buffer "a": upper: "x": want a whole number of 64 bits: invalid syntax`,
		"id,lower,upper,size\na,0,1,1\nb,2,2,1":          `line 3, column 5: buffer "b": lifetime [2,2) is empty`,
		"size,id,lower,upper\n1,a,2,1":                   `line 2, column 7: buffer "a": lifetime [2,1) is empty`,
		"id,lower,upper,size\na,0,1,-4":                  `line 2, column 7: buffer "a": size -4`,
		"id,lower,upper,size,offset\na,0,1,4,":           `line 2, column 9: buffer "a": offset: ""`,
		"id,lower,upper,size\na,0,1,9223372036854775808": `line 2, column 7: buffer "a": size: "9223372036854775808": want a whole number of 64 bits: value out of range`,
		"id,lower,upper,size\n\"a\nb\",0,1,c":            `line 3, column 8: buffer "a\nb": size: "c"`,
		"id,lower,upper,size\na\"b,0,1,1":                "line 2, column 2: bare \" in non-quoted-field",
		"id,lower,upper,size\n\"a,0,1,1\n":               "line 2, column 10: extraneous or missing \" in quoted-field",
	} {
		_, _, err := pack.ReadCSV(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// endless is a file of zeros, which counts how many of them are read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	clear(b)
	e.read += len(b)
	return len(b), nil
}

// A file that is no table is not read into memory before that is found out.
func TestDefect07_RowsThatDoNotEndAreRefused(t *testing.T) {
	for name, begin := range map[string]string{
		"header": "", "row": "id,lower,upper,size\na,0,1,1\nb,", "quoted": "id,lower,upper,size\n\"b\n",
	} {
		zeros := &endless{}
		_, _, err := pack.ReadCSV(io.MultiReader(strings.NewReader(begin), zeros))
		if err == nil || !strings.Contains(err.Error(), "a row of more than 1048576 bytes") || zeros.read > 2<<20 {
			t.Errorf("%s: %v, after %d bytes", name, err, zeros.read)
		}
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteCSVReturnsTheWritersError(t *testing.T) {
	if err := pack.WriteCSV(full{}, instance(t, "A.1048576"), nil); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add([]byte("id,lower,upper,size\n0,1,2,3\n"))
	f.Add([]byte("size,offset,upper,note,id,lower\n4,8,2,\"a\nb\",\"x,y\",-1\n"))
	f.Add([]byte("id,lower,upper,size,offset\n\"\",0,1,1,-5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var buffers []pack.Buffer
		var offsets []int64
		var err error
		testkit.AllocatesAtMost(t, len(text), 100, 1<<20, func() { buffers, offsets, err = pack.ReadCSV(bytes.NewReader(text)) })
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := pack.WriteCSV(&out, buffers, offsets); err != nil {
			t.Fatal(err)
		}
		again, at, err := pack.ReadCSV(&out)
		if err != nil || !slices.Equal(again, buffers) || !slices.Equal(at, offsets) || (at == nil) != (offsets == nil) {
			t.Fatalf("%q: %v %v, then %v %v, %v", text, buffers, offsets, again, at, err)
		}
	})
}
