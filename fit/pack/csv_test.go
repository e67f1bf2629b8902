package pack_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/fit/pack"
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

func TestReadCSVNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                               "line 1: no header",
		"id,lower,upper\n":                               `line 1: no column "size"`,
		"id,lower,upper,size,id\n":                       `line 1: two columns are named "id"`,
		"id,lower,upper,size\na,0,1,1\nb,0,1":            "line 3: wrong number of fields",
		"id,lower,upper,size\n\na,0,x,1\n":               `line 3: buffer "a"`,
		"id,lower,upper,size\na,0,1,1\nb,2,2,1":          `line 3: buffer "b": lifetime [2,2) is empty`,
		"id,lower,upper,size\na,0,1,-4":                  `line 2: buffer "a": size -4`,
		"id,lower,upper,size,offset\na,0,1,4,":           `line 2: buffer "a"`,
		"id,lower,upper,size\na,0,1,9223372036854775808": "out of range",
	} {
		_, _, err := pack.ReadCSV(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
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
		buffers, offsets, err := pack.ReadCSV(bytes.NewReader(text))
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
