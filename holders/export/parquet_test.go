package export_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// The separate module parquettest reads the values. Here are the rules that need no reader.

// The same views make the same file.
func TestParquetIsDeterministic(t *testing.T) {
	var first, second bytes.Buffer
	testkit.Must(t, export.WriteParquet(&first, views(t, small(), "peak")...))
	testkit.Must(t, export.WriteParquet(&second, views(t, small(), "peak")...))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two files of one snapshot differ")
	}
	b := first.Bytes()
	if !bytes.HasPrefix(b, []byte("PAR1")) || !bytes.HasSuffix(b, []byte("PAR1")) {
		t.Errorf("%q", b)
	}
}

// Deep stacks that share their frames take little room in a snapshot, but as texts they could fill the memory.
func TestParquetRefusesTextsThatAreTooLarge(t *testing.T) {
	stacks := &trace.Stacks{Frames: []trace.Frame{{Name: strings.Repeat("f", 1000), Filename: "train.py"}, {Name: "g"}}}
	s := &snapshot.Snapshot{Stacks: stacks, Segments: []snapshot.Segment{{TotalSize: 512}}}
	deep := make([]uint32, 1000)
	for i := range 4 {
		s.Segments[0].Blocks = append(s.Segments[0].Blocks, snapshot.Block{
			Ptr: driver.Pointer(i), Size: 1, State: mem.ActiveAllocated, Stack: stacks.Add(deep[:1000-i]),
		})
	}
	view := views(t, s, "end")[0]
	testkit.Must(t, export.WriteParquet(io.Discard, view))
	t.Cleanup(export.SetMaxTexts(500_000))
	err := export.WriteParquet(io.Discard, view)
	if err == nil {
		t.Fatal("no error")
	}
	testkit.Contains(t, err.Error(), "export: the stacks and tags", "pprof")
	view.History().Frames.Fold(holders.FoldNone)
	if err := export.WriteParquet(io.Discard, view); err == nil {
		t.Error("no error with all frames")
	}
}
