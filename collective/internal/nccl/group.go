package nccl

import (
	"fmt"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// numbers are NCCL's numbers of the types that it can reduce (nccl.h: ncclDataType_t).
var numbers = map[dtype.DType]uintptr{
	dtype.Int8:         0,
	dtype.Uint8:        1,
	dtype.Int32:        2,
	dtype.Uint32:       3,
	dtype.Int64:        4,
	dtype.Uint64:       5,
	dtype.Float16:      6,
	dtype.Float32:      7,
	dtype.Float64:      8,
	dtype.BFloat16:     9,
	dtype.Float8E4M3FN: 10,
	dtype.Float8E5M2:   11,
}

// asBytes is the type for calls that only move data. NCCL moves bytes whatever the type, so these calls support every
// type.
const asBytes = 1

// A piece is one call of a group, without the last two arguments, the communicator and the stream.
type piece struct {
	symbol symbol
	args   [7]uintptr
	n      int // number of arguments
}

// A group holds the calls of one Queue.
type group struct {
	pieces        []piece
	reads, writes []driver.Range
}

// plan makes a group of calls. It omits calls without elements. The error matches driver.ErrUnsupported if NCCL cannot
// reduce a type, or lacks a function.
func (t *transport) plan(calls []comm.Call) (*group, error) {
	g := &group{pieces: make([]piece, 0, len(calls))}
	for i := range calls {
		c := &calls[i]
		if c.N == 0 {
			continue
		}
		part := int64(c.N) * int64(c.Type.Size())
		all := part * int64(t.size)
		reads := driver.Range{Ptr: c.Src.Ptr, Size: part}
		writes := driver.Range{Ptr: c.Dst.Ptr, Size: part}
		dst, src, bytes, peer := uintptr(c.Dst.Ptr), uintptr(c.Src.Ptr), uintptr(part), uintptr(c.Peer)
		var number uintptr
		var err error
		switch c.Kind {
		case comm.AllReduce:
			if number, err = t.number(c); err == nil {
				err = g.add(t.lib, allReduce, src, dst, uintptr(c.N), number, uintptr(c.Op))
			}
		case comm.ReduceScatter:
			if number, err = t.number(c); err == nil {
				err = g.add(t.lib, reduceScatter, src, dst, uintptr(c.N), number, uintptr(c.Op))
			}
			reads.Size = all
		case comm.Broadcast:
			err = g.add(t.lib, broadcast, src, dst, bytes, asBytes, peer)
			if c.Peer != t.rank { // Src is not used there
				reads.Size = 0
			}
		case comm.AllGather:
			err = g.add(t.lib, allGather, src, dst, bytes, asBytes)
			writes.Size = all
		case comm.Send:
			err = g.add(t.lib, send, src, bytes, asBytes, peer)
			writes.Size = 0
		case comm.Recv:
			err = g.add(t.lib, recv, dst, bytes, asBytes, peer)
			reads.Size = 0
		default:
			panic(fmt.Sprintf("nccl: a call of kind %d", c.Kind))
		}
		if reads.Size > 0 {
			g.reads = append(g.reads, reads)
		}
		if writes.Size > 0 {
			g.writes = append(g.writes, writes)
		}
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

// add adds a call of s. It returns an error if the library lacks the function.
func (g *group) add(l *library, s symbol, args ...uintptr) error {
	p := piece{symbol: s}
	p.n = copy(p.args[:], args)
	g.pieces = append(g.pieces, p)
	return l.has(s)
}

// number returns NCCL's number of the type of a reduction. NCCL reduces 8-bit floats on GPUs of compute capability 9.0
// and later (its message: "FP8 reduction support begins with sm90 capable devices").
func (t *transport) number(c *comm.Call) (uintptr, error) {
	number, ok := numbers[c.Type]
	detail := ""
	switch float8 := c.Type == dtype.Float8E4M3FN || c.Type == dtype.Float8E5M2; {
	case !ok:
		detail = "NCCL does not support the type"
	case float8 && t.lib.version < withFloat8:
		detail = fmt.Sprintf("NCCL %s is older than %s", versionText(t.lib.version), versionText(withFloat8))
	case float8 && t.capability > 0 && t.capability < 90:
		detail = fmt.Sprintf("NCCL wants compute capability 9.0, the device has %d.%d", t.capability/10,
			t.capability%10)
	default:
		return number, nil
	}
	detail = fmt.Sprintf("%v of %v: %s", c.Kind, c.Type, detail)
	return 0, &driver.Error{Call: "nccl", Code: driver.ErrUnsupported, Detail: detail}
}
