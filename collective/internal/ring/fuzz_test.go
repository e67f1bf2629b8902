package ring

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func FuzzFrame(f *testing.F) {
	f.Add(frame{typ: callFrame, channels: 5, call: Call{Number: 7, Kind: comm.Recv, Type: dtype.Int8, N: 4, Peer: 3}}.append(nil))
	f.Add(frame{typ: dataFrame, length: pieceBytes}.append(nil))
	f.Add(frame{typ: mismatchFrame, length: mismatchBytes}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameBytes {
			return
		}
		var x frame
		var err error
		testkit.AllocatesAtMost(t, len(b), 10, 1<<20, func() { x, err = parseFrame(b) })
		if err != nil {
			return
		}
		if x.length > pieceBytes {
			t.Errorf("%+v claims %d bytes", x, x.length)
		}
		_ = x.call.String()
		if again, err := parseFrame(x.append(nil)); err != nil || again != x {
			t.Errorf("%+v, again %+v, %v", x, again, err)
		}
	})
}

// frames makes the bytes of some frames. Most are right for a rank of two that adds N bytes: a byte of the input selects
// what is changed.
func frames(in *testkit.Input, n int) []byte {
	var all []byte
	for steps := 0; in.More() && steps < 32; steps++ {
		x := frame{typ: frameType(1 + in.Byte()%5), call: Call{Number: 1, Type: dtype.Int8, N: n}}
		change := in.Byte()
		if x.typ == dataFrame {
			x.length = n / 2
		}
		if change&1 != 0 {
			x.call.Number = uint64(in.Byte())
		}
		if change&2 != 0 {
			x.call.Kind, x.call.Peer = comm.Kind(in.Byte()%8), int(in.Byte()%4)
		}
		if change&4 != 0 {
			x.call.N, x.length = int(in.Byte()), int(in.Byte())
		}
		if change&8 != 0 {
			x.channels = channelSet(in.Byte())
		}
		payload := in.Bytes(x.length)
		if x.typ == mismatchFrame && x.length == 0 {
			x.length = mismatchBytes
			payload = appendMismatch(nil, &MismatchError{Rank: 1, Call: x.call, PeerCall: Call{N: int(in.Byte())}})
		}
		b := x.append(nil)
		if change&16 != 0 {
			b[int(in.Byte())%len(b)] ^= in.Byte()
		}
		if change&32 != 0 {
			binary.LittleEndian.PutUint32(b[8:], uint32(in.Byte())<<24)
		}
		all = append(append(all, b...), payload...)
	}
	return all
}

// FuzzLink lets a rank add numbers with one that sends the frames of an input and ends. Whatever they are, the rank's
// work ends, memory beside its own is not written, and it closes.
func FuzzLink(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 1, 2, 1, 0, 3, 4, 2, 0}) // a call, its data, the end
	f.Add([]byte{0, 0, 1, 4, 4, 3, 1, 2, 3})
	f.Add([]byte{0, 0, 3, 0, 0, 0, 4, 16, 30, 77})
	f.Add([]byte{0, 2, 4, 1, 0, 2, 5, 1, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 32, 255})
	const size, around = 4, 32
	f.Fuzz(func(t *testing.T, input []byte) {
		mine, other := net.Pipe()
		n := start(t, 2, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
			return []comm.Transport{New(devs[0], 0, 2, []net.Conn{nil, mine}), idle{}}
		})[0]
		canary := bytes.Repeat([]byte{0xca}, around)
		whole := n.memory(append(append(bytes.Clone(canary), 1, 2, 3, 4), canary...))
		part := n.operand(whole.Ptr+around, size)
		sent := frames(&testkit.Input{Rest: input}, size)
		var err error
		testkit.AllocatesAtMost(t, len(sent), 100, 1<<20, func() {
			go func() {
				other.Write(sent)
				other.Close()
			}()
			go io.Copy(io.Discard, other)
			err = n.do(comm.Call{Kind: comm.AllReduce, Type: dtype.Int8, N: size, Src: part, Dst: part})
		})
		if got := n.read(whole, 2*around+size); !bytes.Equal(got[:around], canary) || !bytes.Equal(got[around+size:], canary) {
			t.Errorf("memory beside the operand was written: %x, %v", got, err)
		}
		n.free(whole)
	})
}
