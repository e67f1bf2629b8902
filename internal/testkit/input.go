package testkit

import (
	"encoding/binary"
	"math"
)

// An Input turns the bytes of a fuzz target into the values that a grammar chooses from. After the last byte, every
// value is zero, so that an input ends what is made from it.
type Input struct{ Rest []byte }

// More reports whether bytes are left.
func (in *Input) More() bool { return len(in.Rest) > 0 }

// Bytes returns the next n bytes.
func (in *Input) Bytes(n int) []byte {
	b := make([]byte, n)
	copy(b, in.Rest)
	in.Rest = in.Rest[min(n, len(in.Rest)):]
	return b
}

// Byte returns the next byte.
func (in *Input) Byte() byte { return in.Bytes(1)[0] }

// Uint64 returns a number of eight bytes.
func (in *Input) Uint64() uint64 { return binary.LittleEndian.Uint64(in.Bytes(8)) }

// N returns a number from 0 to n-1; n is at most 256.
func (in *Input) N(n int) int { return int(in.Byte()) % n }

// Odd returns a number at which programs err: the ends of the ranges of integers, and what is next to them.
func (in *Input) Odd() int64 {
	at := []int64{
		0, math.MinInt64, math.MinInt32, math.MaxInt32, math.MaxUint32, 1 << 53, math.MaxInt64 - 512, math.MaxInt64,
	}
	return at[in.N(len(at))] + int64(in.N(3)) - 1 // overflow is wanted
}

// Damage changes some bytes in place, each by two of the input's, to its end.
func (in *Input) Damage(b []byte) {
	for len(b) > 0 && in.More() {
		b[int(binary.LittleEndian.Uint16(in.Bytes(2)))%len(b)] ^= in.Byte()
	}
}

// Choose returns one of the values.
func Choose[T any](in *Input, of ...T) T { return of[in.N(len(of))] }
