package export

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// A columnKind is the type of a column, as Parquet has it.
type columnKind uint8

const (
	columnBool columnKind = iota
	columnInt32
	columnInt64
	columnUint64
	columnTime // microseconds since 1970
	columnText // with a dictionary
)

// Numbers of Parquet: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
const (
	parquetBool, parquetInt32, parquetInt64, parquetBytes = 0, 1, 2, 6
	convertedUTF8, convertedTime, convertedUint64         = 0, 10, 14
	required, optional                                    = 0, 1
	plain, rle, rleDictionary                             = 0, 3, 8
	codecZstd                                             = 6
	dataPage, dictionaryPage                              = 0, 2
)

// A column holds the values of one row group.
type column struct {
	name     string
	kind     columnKind
	nullable bool

	present []bool   // of a nullable column: the row has a value
	numbers []int64  // values; of text: indices into the dictionary
	texts   []string // the dictionary
	index   map[string]int64
	bytes   int // of the dictionary
}

func (c *column) reset() {
	c.present, c.numbers, c.texts, c.bytes = c.present[:0], c.numbers[:0], c.texts[:0], 0
	clear(c.index)
}

// number appends a value, or null if it is absent.
func (c *column) number(x int64, present bool) {
	if c.nullable {
		c.present = append(c.present, present)
	}
	if present || !c.nullable {
		c.numbers = append(c.numbers, x)
	}
}

func (c *column) flag(x bool) {
	n := int64(0)
	if x {
		n = 1
	}
	c.number(n, true)
}

// text appends a text, or null if it is empty and the column may have nulls.
func (c *column) text(s string) {
	if s == "" && c.nullable {
		c.number(0, false)
		return
	}
	n, ok := c.index[s]
	if !ok {
		if c.index == nil {
			c.index = map[string]int64{}
		}
		n = int64(len(c.texts))
		valid := strings.ToValidUTF8(s, "\ufffd")
		c.index[s] = n
		c.texts = append(c.texts, valid)
		c.bytes += len(valid) + 4
	}
	c.number(n, true)
}

// physical returns the type of the values as Parquet stores them.
func (c *column) physical() int32 {
	switch c.kind {
	case columnBool:
		return parquetBool
	case columnInt32:
		return parquetInt32
	case columnText:
		return parquetBytes
	}
	return parquetInt64
}

// schema returns the SchemaElement.
func (c *column) schema() *thrift {
	x := &thrift{}
	x.i32(1, c.physical())
	repetition := int32(required)
	if c.nullable {
		repetition = optional
	}
	x.i32(3, repetition)
	x.text(4, c.name)
	switch c.kind {
	case columnText:
		x.i32(6, convertedUTF8)
	case columnTime:
		x.i32(6, convertedTime)
	case columnUint64:
		x.i32(6, convertedUint64)
	}
	return x
}

// dictionary returns the content of the dictionary page.
func (c *column) dictionary() (page []byte) {
	for _, s := range c.texts {
		page = binary.LittleEndian.AppendUint32(page, uint32(len(s)))
		page = append(page, s...)
	}
	return page
}

// data returns the content of the data page: definition levels if there may be nulls, then the values.
func (c *column) data() (page []byte) {
	if c.nullable {
		levels := make([]int64, len(c.present))
		for i, p := range c.present {
			if p {
				levels[i] = 1
			}
		}
		packed := appendHybrid(nil, levels, 1)
		page = binary.LittleEndian.AppendUint32(page, uint32(len(packed)))
		page = append(page, packed...)
	}
	switch c.kind {
	case columnText:
		width := max(bits.Len(uint(max(len(c.texts)-1, 0))), 1)
		return appendHybrid(append(page, byte(width)), c.numbers, width)
	case columnBool:
		return appendPacked(page, c.numbers, 1)
	case columnInt32:
		for _, x := range c.numbers {
			page = binary.LittleEndian.AppendUint32(page, uint32(x))
		}
	default:
		for _, x := range c.numbers {
			page = binary.LittleEndian.AppendUint64(page, uint64(x))
		}
	}
	return page
}

// rows returns the number of rows.
func (c *column) rows() int {
	if c.nullable {
		return len(c.present)
	}
	return len(c.numbers)
}

// appendHybrid appends numbers of width bits in Parquet's hybrid of run lengths and packed bits: one packed run of
// groups of eight.
func appendHybrid(b []byte, numbers []int64, width int) []byte {
	groups := (len(numbers) + 7) / 8
	b = binary.AppendUvarint(b, uint64(groups)<<1|1)
	end := len(b) + groups*width
	b = appendPacked(b, numbers, width)
	for len(b) < end {
		b = append(b, 0)
	}
	return b
}

// appendPacked appends numbers of width bits, the lowest bits first.
func appendPacked(b []byte, numbers []int64, width int) []byte {
	var pending uint64
	n := 0
	for _, x := range numbers {
		pending |= uint64(x) << n
		for n += width; n >= 8; n -= 8 {
			b = append(b, byte(pending))
			pending >>= 8
		}
	}
	if n > 0 {
		b = append(b, byte(pending))
	}
	return b
}
