package ring

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/dtype"
)

// A frame is a header of 36 bytes and a payload. Numbers are little-endian:
//
//	 0  magic "ASHR"
//	 4  type
//	 5  the channels of the group that the call is part of, one bit each
//	 6  two zero bytes
//	 8  length of what follows
//	12  the call: number (8), elements (8), peer (4), kind, operation, element type, a zero byte
//
// No memory is allocated by a declared length: data must have the length that the pass expects, and other payloads are
// bounded.
type frame struct {
	typ      frameType
	channels channelSet
	length   int
	call     Call
}

type frameType uint8

const (
	callFrame     frameType = 1 + iota // the sender makes the call
	dataFrame                          // its next bytes
	byeFrame                           // the sender closes; nothing follows
	lostFrame                          // the sender failed because of rank call.Peer: a text follows
	mismatchFrame                      // the sender failed because calls differ: two ranks with their calls follow
)

const (
	frameMagic    = "ASHR"
	frameBytes    = 12 + callBytes
	callBytes     = 24
	textBytes     = 512
	mismatchBytes = 2 * (4 + callBytes)
	pieceBytes    = 512 << 10 // maximum data of a frame; a multiple of every element's size
)

// A channel is a sequence of calls between two ranks. The calls of one channel come one after another.
type channel uint8

const (
	collective channel = iota
	sending
	receiving
	channelCount
)

// channelOf returns the channel on the side of the rank that makes the call.
func channelOf(k comm.Kind) channel {
	switch k {
	case comm.Send:
		return sending
	case comm.Recv:
		return receiving
	case comm.AllReduce, comm.Broadcast, comm.AllGather, comm.ReduceScatter:
	}
	return collective
}

// other returns the other rank's channel that corresponds to l.
func (l channel) other() channel {
	switch l {
	case sending:
		return receiving
	case receiving:
		return sending
	case collective, channelCount:
	}
	return collective
}

// A channelSet is a set of channels.
type channelSet uint8

func (s channelSet) has(l channel) bool { return s&(1<<l) != 0 }

func (f frame) append(b []byte) []byte {
	b = append(b, frameMagic...)
	b = append(b, byte(f.typ), byte(f.channels), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.length))
	return f.call.append(b)
}

func (c Call) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Number)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.N))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Peer))
	return append(b, byte(c.Kind), byte(c.Op), byte(c.Type), 0)
}

// parseFrame reads the first 36 bytes of a frame.
func parseFrame(b []byte) (frame, error) {
	if string(b[:4]) != frameMagic {
		return frame{}, fmt.Errorf("%x is not the start of a frame", b[:4])
	}
	f := frame{typ: frameType(b[4]), channels: channelSet(b[5]), length: int(binary.LittleEndian.Uint32(b[8:]))}
	least, most := 0, 0
	switch f.typ {
	case callFrame, byeFrame:
	case dataFrame:
		most = pieceBytes
	case lostFrame:
		most = textBytes
	case mismatchFrame:
		least, most = mismatchBytes, mismatchBytes
	default:
		return frame{}, fmt.Errorf("a frame of the unknown type %d", b[4])
	}
	if f.length < least || f.length > most {
		return frame{}, fmt.Errorf("a frame of type %d with %d bytes: want %d to %d", f.typ, f.length, least, most)
	}
	if f.channels >= 1<<channelCount || b[6] != 0 || b[7] != 0 {
		return frame{}, fmt.Errorf("a frame of type %d with the flags %x", f.typ, b[5:8])
	}
	if f.typ == byeFrame || f.typ == mismatchFrame {
		return f, nil
	}
	var err error
	f.call, err = parseCall(b[12:])
	return f, err
}

func parseCall(b []byte) (Call, error) {
	n, peer := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	c := Call{
		Number: binary.LittleEndian.Uint64(b), N: int(n), Peer: int(peer),
		Kind: comm.Kind(b[20]), Op: comm.Op(b[21]), Type: dtype.DType(b[22]),
	}
	if n > math.MaxInt || peer > math.MaxInt32 || c.Kind > comm.Recv || c.Op > comm.Avg || b[23] != 0 {
		return Call{}, fmt.Errorf("a frame with an invalid call: %x", b[:callBytes])
	}
	return c, nil
}

// appendMismatch appends the payload of a mismatchFrame.
func appendMismatch(b []byte, e *MismatchError) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Rank))
	b = e.Call.append(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Peer))
	return e.PeerCall.append(b)
}

func parseMismatch(b []byte) (*MismatchError, error) {
	call, err := parseCall(b[4:])
	if err != nil {
		return nil, err
	}
	peerCall, err := parseCall(b[8+callBytes:])
	if err != nil {
		return nil, err
	}
	return &MismatchError{
		Rank: int(binary.LittleEndian.Uint32(b)), Call: call,
		Peer: int(binary.LittleEndian.Uint32(b[4+callBytes:])), PeerCall: peerCall,
	}, nil
}
