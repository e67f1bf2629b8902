package export_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// A box of a flame graph.
type box struct {
	name        string
	left, width float64
	y           int
}

// readFlames returns the boxes of a flame graph, and checks that it is well-formed XML.
func readFlames(t *testing.T, views ...*holders.View) (boxes []box, text string) {
	t.Helper()
	var b bytes.Buffer
	testkit.Must(t, export.WriteFlameGraph(&b, views...))
	text = b.String()
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return boxes, text
		}
		testkit.Must(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attrs := map[string]string{}
		for _, a := range e.Attr {
			attrs[a.Name.Local] = a.Value
		}
		switch {
		case attrs["class"] == "f":
			left, err := strconv.ParseFloat(attrs["data-x"], 64)
			testkit.Must(t, err)
			width, err := strconv.ParseFloat(attrs["data-w"], 64)
			testkit.Must(t, err)
			boxes = append(boxes, box{name: attrs["data-n"], left: left, width: width})
		case e.Name.Local == "rect" && len(boxes) > 0:
			y, err := strconv.Atoi(attrs["y"])
			testkit.Must(t, err)
			boxes[len(boxes)-1].y = y
		}
	}
}

// The widths of boxes are the parts of the memory that their frames hold, and each lies above the box below it.
func TestFlameGraph(t *testing.T) {
	view := views(t, recorded(t, "unet.stacks"), "peak")[0]
	boxes, text := readFlames(t, view)
	testkit.Contains(t, text, "the peak, 3.952s after the start, with 7.86GiB requested",
		"<title>train.py:166 &lt;module&gt;: 7.83GiB in 355 blocks, 99.6 %</title>")
	lines := map[string]float64{}
	for i, x := range boxes {
		if x.left < 0 || x.left+x.width > 1200.001 || x.y < 60 {
			t.Errorf("outside of the picture: %+v", x)
		}
		lines[x.name] += x.width
		below := 0
		for _, other := range boxes[:i] {
			if other.y == x.y+18 && other.left <= x.left+0.002 && x.left+x.width <= other.left+other.width+0.002 {
				below++
			}
			if other.y == x.y && x.left < other.left+other.width-0.002 && other.left < x.left+x.width-0.002 {
				t.Errorf("%+v overlaps %+v", x, other)
			}
		}
		if i > 0 && below != 1 {
			t.Errorf("%d boxes below %+v", below, x)
		}
	}
	for _, x := range view.By(holders.ByLine)[:3] {
		got, want := lines[x.Label], 1200*float64(x.Bytes)/float64(view.Bytes)
		if x.Label == "train.py:92 forward" { // it also calls others
			continue
		}
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%s is %.3f wide, want %.3f", x.Label, got, want)
		}
	}
	view.History().Frames.Fold(holders.FoldNone)
	_, text = readFlames(t, view)
	testkit.Contains(t, text, "torch/nn/modules/conv.py:548 _conv_forward")
}

// Several devices stand beside each other, with the moment of each.
func TestFlameGraphOfSeveralDevices(t *testing.T) {
	boxes, text := readFlames(t, views(t, small(), "end")...)
	testkit.Contains(t, text, "Device 0: the end", "Device 2: the end")
	names := map[string]int{}
	for _, x := range boxes {
		names[x.name]++
	}
	if boxes[0].name != "all devices" || names["device 2"] != 1 || names["(before the recording)"] != 1 {
		t.Errorf("%+v", boxes)
	}
}

// Names from a file cannot break the picture, however odd or long they are, nor can a stack that is too deep.
func TestFlameGraphOfOddNames(t *testing.T) {
	odd := "\"]]></script>\x00\xff'&" + strings.Repeat("w", 5000)
	stacks := &trace.Stacks{Frames: []trace.Frame{{Name: odd, Filename: odd + ".py", Line: 1}}}
	for i := range 1000 {
		stacks.Frames = append(stacks.Frames, trace.Frame{Name: fmt.Sprint(i), Filename: "deep.py"})
	}
	deep := make([]uint32, len(stacks.Frames))
	for i := range deep {
		deep[i] = uint32(len(deep) - 1 - i) // the odd frame is the outermost
	}
	s := &snapshot.Snapshot{Stacks: stacks, Segments: []snapshot.Segment{{
		TotalSize: 4096, Blocks: []snapshot.Block{{Size: 4096, State: mem.ActiveAllocated, Stack: stacks.Add(deep)}},
	}}}
	boxes, text := readFlames(t, views(t, s, "end")...)
	testkit.Equal(t, "boxes", len(boxes), 257)
	testkit.Equal(t, "scripts", strings.Count(text, "</script>"), 1)
}

// Without blocks there is one empty box at most.
func TestFlameGraphOfNothing(t *testing.T) {
	boxes, text := readFlames(t)
	testkit.Equal(t, "boxes", len(boxes), 0)
	testkit.Contains(t, text, "</svg>")
}

// Errors of the writer are returned.
func TestWriteErrors(t *testing.T) {
	view := views(t, recorded(t, "unet.stacks"), "peak")[0]
	for name, write := range map[string]func(io.Writer, ...*holders.View) error{
		"profile": export.WriteProfile, "flame graph": export.WriteFlameGraph, "table": export.WriteParquet,
	} {
		if err := write(fullWriter{}, view); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errFull = errors.New("full")

// A fullWriter accepts nothing.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }
