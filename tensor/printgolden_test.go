package tensor

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
)

// printPlace is a place on a device for tests that only print: it neither allocates nor computes.
func printPlace(d driver.Device, s driver.Stream) *Place {
	return NewPlace(Config{Device: d, Allocator: struct{ mem.Allocator }{}, Backend: struct{ backend.Backend }{}, Stream: s})
}

// printHost is printPlace of the host.
func printHost(t testing.TB) *Place {
	d := drivertest.OpenDevice(t, "host")
	return printPlace(d, nil)
}

// printOver is a tensor on bytes.
func printOver(t testing.TB, p *Place, data []byte, d dtype.DType, offset int, shape, strides []int) *Tensor {
	t.Helper()
	s, err := FromBytes(p, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := FromStorage(p, s, d, offset, shape, strides)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	return v
}

// printCase is a line that testdata/print/make.py wrote.
type printCase struct {
	DType   dtype.DType
	Bits    string
	Shape   *[]int
	Strides []int
	Offset  int
	Options struct {
		Precision, Threshold, EdgeItems, LineWidth *int
		SciMode                                    *bool `json:"sci_mode"`
	}
	Torch, NumPy *string
}

func (c *printCase) options(s Style) PrintOptions {
	o := s.Options()
	for to, from := range map[*int]*int{
		&o.Precision: c.Options.Precision, &o.Threshold: c.Options.Threshold,
		&o.EdgeItems: c.Options.EdgeItems, &o.LineWidth: c.Options.LineWidth,
	} {
		if from != nil {
			*to = *from
		}
	}
	if sci := c.Options.SciMode; sci != nil {
		o.SciMode = SciNever
		if *sci {
			o.SciMode = SciAlways
		}
	}
	return o
}

// The exact output of numpy and PyTorch. The file names the versions; make.py explains how to use others.
func TestPrintAsOthers(t *testing.T) {
	file, err := os.ReadFile("testdata/print/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	p := printHost(t)
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 1<<20)
	lines.Scan() // versions
	cases := map[Style]map[dtype.DType]int{PyTorchStyle: {}, NumPyStyle: {}}
	for n := 2; lines.Scan(); n++ {
		var c printCase
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		data, err := hex.DecodeString(c.Bits)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if c.Shape == nil {
			c.Shape = &[]int{len(data) / c.DType.Size()}
		}
		v := printOver(t, p, data, c.DType, c.Offset, *c.Shape, c.Strides)
		for style, want := range map[Style]*string{PyTorchStyle: c.Torch, NumPyStyle: c.NumPy} {
			if want == nil {
				continue
			}
			cases[style][c.DType]++
			got, err := v.Text(c.options(style))
			if err != nil || got != *want {
				t.Errorf("line %d: %s, style %d, %s: %v\n%s\nwant\n%s", n, v.Brief(), style, lines.Bytes()[:min(200, len(lines.Bytes()))], err, got, *want)
			}
		}
		v.Release()
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for style, least := range map[Style]int{PyTorchStyle: 12, NumPyStyle: 14} { // types that every version knows
		if len(cases[style]) < least {
			t.Errorf("style %d: cases of %d types, want at least %d", style, len(cases[style]), least)
		}
		for d, n := range cases[style] {
			if n < 12 {
				t.Errorf("style %d: %d cases of %v", style, n, d)
			}
		}
	}
}
