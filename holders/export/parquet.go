package export

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/trace"
	"github.com/klauspost/compress/zstd"
)

const (
	parquetMagic = "PAR1"
	rowsOfGroup  = 128 << 10
)

// maxTexts is the maximum number of bytes of distinct texts in the rows of one group.
var maxTexts = 256 << 20

// WriteParquet writes the blocks of views, each of another device, as a table in the format of Apache Parquet, for
// DuckDB, Polars, Spark and others. A row is a block of the history, with these columns:
//
//	device                           int32      ordinal
//	address, stream                  uint64     the handle of the stream
//	bytes                            int64      requested
//	alloc_event, free_event,         int64      indices of the events that allocated the block, requested its free,
//	end_event                                   and made its memory available again; null if there is none
//	alloc_time, free_time, end_time  timestamp  their times; null also if events have no times
//	active, freed_soon               boolean    at the moment of the view: see holders.View
//	pool, category                   string     as holders.ByPool and ByCategory
//	tag                              string     the user's text; null without one
//	line, function, module           string     as holders.ByLine, ByFunction and ByModule
//	stack                            string     the frames from line on, innermost first, one a line; null without one
//
// So the bytes of the rows that are active add up to those of the views. The rows are compressed with zstd.
//
// It is an error if the distinct texts of 131,072 rows take more than 256 MiB. Otherwise the error is that of w.
func WriteParquet(w io.Writer, views ...*holders.View) error {
	x, err := newParquet(w)
	if err != nil {
		return err
	}
	for _, v := range views {
		if err := x.view(v); err != nil {
			return err
		}
		x.about(fmt.Sprintf("ashlar.device.%d", v.Device()), v.Moment.String())
	}
	return x.close()
}

// A parquet writes a file.
type parquet struct {
	w       *bufio.Writer // keeps the first error
	offset  int64         // bytes written
	zstd    *zstd.Encoder
	columns []*column
	byName  map[string]*column
	groups  []*thrift
	facts   []*thrift // KeyValue
	rows    int64
}

func newParquet(w io.Writer) (*parquet, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	x := &parquet{w: bufio.NewWriter(w), zstd: encoder, byName: map[string]*column{}}
	for _, c := range []*column{
		{name: "device", kind: columnInt32},
		{name: "address", kind: columnUint64},
		{name: "stream", kind: columnUint64},
		{name: "bytes", kind: columnInt64},
		{name: "alloc_event", kind: columnInt64, nullable: true},
		{name: "free_event", kind: columnInt64, nullable: true},
		{name: "end_event", kind: columnInt64, nullable: true},
		{name: "alloc_time", kind: columnTime, nullable: true},
		{name: "free_time", kind: columnTime, nullable: true},
		{name: "end_time", kind: columnTime, nullable: true},
		{name: "active", kind: columnBool},
		{name: "freed_soon", kind: columnBool},
		{name: "pool", kind: columnText},
		{name: "category", kind: columnText},
		{name: "tag", kind: columnText, nullable: true},
		{name: "line", kind: columnText},
		{name: "function", kind: columnText},
		{name: "module", kind: columnText},
		{name: "stack", kind: columnText, nullable: true},
	} {
		x.columns = append(x.columns, c)
		x.byName[c.name] = c
	}
	x.write([]byte(parquetMagic))
	return x, nil
}

func (x *parquet) write(b []byte) {
	n, _ := x.w.Write(b)
	x.offset += int64(n)
}

// about records a fact about the file.
func (x *parquet) about(key, value string) {
	fact := &thrift{}
	fact.text(1, key)
	fact.text(2, value)
	x.facts = append(x.facts, fact)
}

// view appends the blocks of a device.
func (x *parquet) view(v *holders.View) error {
	h, soon := v.History(), v.FreedSoon()
	stacks := stackTexts{h: h, known: map[trace.StackID]string{}}
	labels := map[string]func(*holders.Block) string{
		"pool": h.Labeller(holders.ByPool), "category": h.Labeller(holders.ByCategory), "tag": h.TagOf,
		"line": h.Labeller(holders.ByLine), "function": h.Labeller(holders.ByFunction),
		"module": h.Labeller(holders.ByModule), "stack": stacks.of,
	}
	for i := range h.NumBlocks() {
		b := h.Block(i)
		x.byName["device"].number(int64(v.Device()), true)
		x.byName["address"].number(int64(b.Ptr), true)
		x.byName["stream"].number(int64(h.Streams[b.Stream]), true)
		x.byName["bytes"].number(b.Size, true)
		x.event(h, "alloc", b.Start, b.Recorded)
		x.event(h, "free", b.Freed, int(b.Freed) < h.Trace.Len())
		x.event(h, "end", b.End, int(b.End) < h.Trace.Len())
		active := b.ActiveAt(v.Moment.Event)
		x.byName["active"].flag(active)
		x.byName["freed_soon"].flag(active && int(b.End) <= soon)
		texts := 0
		for _, c := range x.columns {
			if label := labels[c.name]; label != nil {
				c.text(label(&b))
				texts += c.bytes
			}
		}
		if max(texts, stacks.bytes) > maxTexts {
			return fmt.Errorf("export: the stacks and tags of %d blocks take more than %d MiB as text; "+
				"the formats pprof and flamegraph do not repeat them", rowsOfGroup, maxTexts>>20)
		}
		if x.columns[0].rows() == rowsOfGroup {
			x.group()
			stacks.reset()
		}
	}
	return nil
}

// event appends the index and the time of an event.
func (x *parquet) event(h *holders.History, name string, event int32, present bool) {
	present = present && event >= 0
	x.byName[name+"_event"].number(int64(event), present)
	us := int64(0)
	if present {
		us = h.Trace.TimeUS(int(event))
	}
	x.byName[name+"_time"].number(us, us != 0)
}

// stackTexts are the texts of stacks.
type stackTexts struct {
	h     *holders.History
	known map[trace.StackID]string
	bytes int
}

func (s *stackTexts) reset() {
	clear(s.known)
	s.bytes = 0
}

func (s *stackTexts) of(b *holders.Block) string {
	text, ok := s.known[b.Stack]
	if !ok && s.bytes <= maxTexts {
		var out strings.Builder
		for i, f := range s.h.Frames.Outward(b.Stack) {
			if i > 0 {
				out.WriteByte('\n')
			}
			if out.WriteString(s.h.Frames.Label(f)); s.bytes+out.Len() > maxTexts {
				break // which view reports
			}
		}
		text = out.String()
		s.known[b.Stack] = text
		s.bytes += len(text)
	}
	return text
}

// group writes the rows so far.
func (x *parquet) group() {
	rows := x.columns[0].rows()
	if rows == 0 {
		return
	}
	g := &thrift{}
	var chunks []*thrift
	var size int64
	for _, c := range x.columns {
		chunk, n := x.chunk(c, rows)
		chunks = append(chunks, chunk)
		size += n
		c.reset()
	}
	g.structs(1, chunks)
	g.i64(2, size)
	g.i64(3, int64(rows))
	x.groups = append(x.groups, g)
	x.rows += int64(rows)
}

// chunk writes the values of a column, and returns its ColumnChunk and its size before compression.
func (x *parquet) chunk(c *column, rows int) (chunk *thrift, plainSize int64) {
	begin, encoding, encodings := x.offset, int32(plain), []int32{plain, rle}
	if c.kind == columnText {
		encoding, encodings = rleDictionary, []int32{plain, rle, rleDictionary}
		header := &thrift{}
		header.i32(1, int32(len(c.texts)))
		header.i32(2, plain)
		plainSize += x.page(dictionaryPage, 7, header, c.dictionary())
	}
	data := x.offset
	header := &thrift{}
	header.i32(1, int32(rows))
	header.i32(2, encoding)
	header.i32(3, rle)
	header.i32(4, rle)
	plainSize += x.page(dataPage, 5, header, c.data())

	m := &thrift{}
	m.i32(1, c.physical())
	m.list(2, thriftI32, len(encodings))
	for _, e := range encodings {
		m.out = binary.AppendVarint(m.out, int64(e))
	}
	m.list(3, thriftBinary, 1)
	m.string(c.name)
	m.i32(4, codecZstd)
	m.i64(5, int64(rows))
	m.i64(6, plainSize)
	m.i64(7, x.offset-begin)
	m.i64(9, data)
	if c.kind == columnText {
		m.i64(11, begin)
	}
	chunk = &thrift{}
	chunk.i64(2, begin)
	chunk.embed(3, m)
	return chunk, plainSize
}

// page writes a page with its header, and returns their size before compression. The kind's own header is the field
// number of PageHeader.
func (x *parquet) page(kind int32, number int, own *thrift, content []byte) (plainSize int64) {
	packed := x.zstd.EncodeAll(content, nil)
	header := &thrift{}
	header.i32(1, kind)
	header.i32(2, int32(len(content)))
	header.i32(3, int32(len(packed)))
	header.embed(number, own)
	head := append(header.out, 0)
	x.write(head)
	x.write(packed)
	return int64(len(head) + len(content))
}

// close writes the last rows and the metadata.
func (x *parquet) close() error {
	x.group()
	root := &thrift{}
	root.text(4, "blocks")
	root.i32(5, int32(len(x.columns)))
	schema := []*thrift{root}
	for _, c := range x.columns {
		schema = append(schema, c.schema())
	}
	m := &thrift{}
	m.i32(1, 1)
	m.structs(2, schema)
	m.i64(3, x.rows)
	m.structs(4, x.groups)
	if len(x.facts) > 0 {
		m.structs(5, x.facts)
	}
	m.text(6, "ashlar")
	footer := append(m.out, 0)
	x.write(footer)
	x.write(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))))
	x.write([]byte(parquetMagic))
	return x.w.Flush()
}
