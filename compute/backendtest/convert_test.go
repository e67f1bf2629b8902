package backendtest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// TestConvert: the suite's conversions, which are written from the rules, are those of package dtype.
func TestConvert(t *testing.T) {
	s := &suite{TB: t, rng: rand.New(rand.NewPCG(*seed, 1))}
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			for _, make := range []maker{s.anything(from), s.spread(from)} {
				for i := range 800 {
					b, want := append([]byte{}, garbage(s.rng, from.Size())...), garbage(s.rng, to.Size())
					make(i, b)
					dtype.Convert(want, to, b, from)
					if got := convert(to, from, b); !bytes.Equal(got, want) {
						t.Fatalf("seed %d: %s of %v to %v is %s, dtype says %s", *seed, text(from, b), from, to, text(to, got), text(to, want))
					}
				}
			}
		}
	}
}

// TestPhilox: the known answers that come with Random123, the paper's own code.
func TestPhilox(t *testing.T) {
	const ones = 0xffffffff
	for _, c := range []struct {
		counter, want [4]uint64
		key           [2]uint64
	}{
		{want: [4]uint64{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint64{ones, ones, ones, ones}, [4]uint64{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, [2]uint64{ones, ones}},
		{
			[4]uint64{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint64{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
			[2]uint64{0xa4093822, 0x299f31d0},
		},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox of %x with the key %x is %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}
