// Package parquettest reads the tables of package export with an independent implementation of Parquet. It is a
// separate module, so that no other module depends on it:
//
//	cd holders/export/parquettest && go test ./...
package parquettest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/holders/export"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
	"github.com/parquet-go/parquet-go"
)

// A row is a block, as other programs see it.
type row struct {
	Device     int32   `parquet:"device"`
	Address    uint64  `parquet:"address"`
	Stream     uint64  `parquet:"stream"`
	Bytes      int64   `parquet:"bytes"`
	AllocEvent *int64  `parquet:"alloc_event,optional"`
	FreeEvent  *int64  `parquet:"free_event,optional"`
	EndEvent   *int64  `parquet:"end_event,optional"`
	AllocTime  *int64  `parquet:"alloc_time,optional"`
	FreeTime   *int64  `parquet:"free_time,optional"`
	EndTime    *int64  `parquet:"end_time,optional"`
	Active     bool    `parquet:"active"`
	FreedSoon  bool    `parquet:"freed_soon"`
	Pool       string  `parquet:"pool"`
	Category   string  `parquet:"category"`
	Tag        *string `parquet:"tag,optional"`
	Line       string  `parquet:"line"`
	Function   string  `parquet:"function"`
	Module     string  `parquet:"module"`
	Stack      *string `parquet:"stack,optional"`
}

// read writes the views as a table and reads it.
func read(t *testing.T, views ...*holders.View) ([]row, *parquet.File) {
	t.Helper()
	var b bytes.Buffer
	if err := export.WriteParquet(&b, views...); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	r := parquet.NewGenericReader[row](f)
	rows := make([]row, f.NumRows())
	n, err := r.Read(rows)
	if err != nil && !errors.Is(err, io.EOF) || int64(n) != f.NumRows() {
		t.Fatalf("%d of %d rows, %v", n, f.NumRows(), err)
	}
	return rows, f
}

func viewOf(t *testing.T, s *snapshot.Snapshot, moment string) *holders.View {
	t.Helper()
	h, err := holders.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Moment(moment)
	if err != nil {
		t.Fatal(err)
	}
	return h.At(m)
}

func recorded(t *testing.T, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile("../../../testdata/traces/" + name + ".pickle.zst")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The active rows add up to the requested peak, also by line and at each event around it.
func TestRowsAddUpToThePeak(t *testing.T) {
	for name, peak := range map[string]int64{
		"unet.stacks": 8442335024, "gpt2": 19210829128, "streams": 693346392,
	} {
		view := viewOf(t, recorded(t, name), "peak")
		rows, _ := read(t, view)
		var active, at int64
		lines := map[string]int64{}
		event := int64(view.Moment.Event)
		for _, r := range rows {
			if r.Active {
				active += r.Bytes
				lines[r.Line] += r.Bytes
			}
			if (r.AllocEvent == nil || *r.AllocEvent <= event) && (r.EndEvent == nil || *r.EndEvent > event) {
				at += r.Bytes
			}
		}
		if active != peak || at != peak {
			t.Errorf("%s: active %d, by events %d, want %d", name, active, at, peak)
		}
		for _, x := range view.By() {
			if lines[x.Label] != x.Bytes {
				t.Errorf("%s: %s has %d bytes, want %d", name, x.Label, lines[x.Label], x.Bytes)
			}
		}
		if len(rows) != view.History().NumBlocks() {
			t.Errorf("%s: %d rows for %d blocks", name, len(rows), view.History().NumBlocks())
		}
	}
}

// Every value of a row is that of its block, over several groups of rows.
func TestRowsAreBlocks(t *testing.T) {
	const n = 300_000
	stacks := &trace.Stacks{Frames: []trace.Frame{
		{Name: "linear", Filename: "/v/site-packages/torch/nn/functional.py", Line: 7},
		{Name: "forward\xff", Filename: "/u/model.py", Line: 10},
		{Name: "<module>", Filename: "/u/train.py", Line: 3},
	}}
	stack := stacks.Add([]uint32{0, 1, 2})
	tr := &trace.Trace{
		Streams: []uint64{0, 1 << 63}, Metadata: []string{"", "layer 1"}, Stacks: stacks,
		Pools: []mem.PoolID{{}, {1, 2}}, PoolsKnown: true,
	}
	for i := range n {
		e := trace.Event{TimeUS: int64(i + 1), Ptr: 1 << 63, Size: int64(i), Action: mem.ActionAlloc}
		if i%2 == 1 {
			e.Stack, e.Metadata, e.Stream, e.Pool = stack, 1, 1, 1
		}
		tr.Events = append(tr.Events, e)
		e.Action = mem.ActionFreeCompleted
		tr.Events = append(tr.Events, e)
	}
	s := &snapshot.Snapshot{Stacks: stacks, Traces: []*trace.Trace{tr}, Segments: []snapshot.Segment{{
		Ptr: 0x1000, TotalSize: 0x1000, Blocks: []snapshot.Block{{Ptr: 0x1000, Size: 77, State: mem.ActiveAllocated}},
	}}}
	view := viewOf(t, s, "end")
	blocks := view.History().Blocks() // for the categories, which are inferred
	rows, f := read(t, view)
	if len(rows) != n+1 || len(f.RowGroups()) != 3 {
		t.Fatalf("%d rows in %d groups", len(rows), len(f.RowGroups()))
	}
	want := "0 1000 0 77 - - - - - - true false default unknown - (before the recording) (before the recording) " +
		"(before the recording) -"
	if got := text(&rows[0]); got != want {
		t.Errorf("the old block: %s\nwant %s", got, want)
	}
	for i := range n {
		want := fmt.Sprintf("0 8000000000000000 0 %d %d %d %d %d %d %d false false default %s - (no stack) (no stack) "+
			"(no stack) -", i, 2*i, 2*i+1, 2*i+1, i+1, i+1, i+1, blocks[i+1].Category)
		if i%2 == 1 {
			want = fmt.Sprintf("0 8000000000000000 8000000000000000 %d %d %d %d %d %d %d false false (1, 2) %s layer 1 "+
				"model.py:10 forward\ufffd model.py forward\ufffd model.py model.py:10 forward\ufffd\ntrain.py:3 <module>",
				i, 2*i, 2*i+1, 2*i+1, i+1, i+1, i+1, blocks[i+1].Category)
		}
		if got := text(&rows[i+1]); got != want {
			t.Fatalf("row %d: %s\nwant %s", i+1, got, want)
		}
	}
}

func text(r *row) string {
	var parts []string
	add := func(format string, x any) { parts = append(parts, fmt.Sprintf(format, x)) }
	add("%d", r.Device)
	add("%x", r.Address)
	add("%x", r.Stream)
	add("%d", r.Bytes)
	for _, x := range []*int64{r.AllocEvent, r.FreeEvent, r.EndEvent, r.AllocTime, r.FreeTime, r.EndTime} {
		if x == nil {
			add("%s", "-")
		} else {
			add("%d", *x)
		}
	}
	add("%v", r.Active)
	add("%v", r.FreedSoon)
	none := "-"
	if r.Tag == nil {
		r.Tag = &none
	}
	if r.Stack == nil {
		r.Stack = &none
	}
	return strings.Join(append(parts, r.Pool, r.Category, *r.Tag, r.Line, r.Function, r.Module, *r.Stack), " ")
}

// The columns have the types that other programs expect, and the file says which moment it shows.
func TestTypes(t *testing.T) {
	_, f := read(t, viewOf(t, recorded(t, "streams"), "peak"))
	for name, want := range map[string]string{
		"bytes": "INT64", "address": "INT(64,false)", "stack": "STRING", "alloc_time": "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)",
		"active": "BOOLEAN",
	} {
		column, ok := f.Schema().Lookup(name)
		if !ok || column.Node.Type().String() != want {
			t.Errorf("%s is %v, want %s", name, column.Node, want)
		}
	}
	if moment, ok := f.Lookup("ashlar.device.0"); !ok || !strings.HasPrefix(moment, "the peak, ") {
		t.Errorf("the moment is %q", moment)
	}
}

// A table without rows is a table.
func TestNoRows(t *testing.T) {
	if rows, _ := read(t); len(rows) != 0 {
		t.Errorf("%d rows", len(rows))
	}
}
