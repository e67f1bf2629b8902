package backend

// Philox returns the four words of one block of Philox4x32-10 (Salmon and others, see Random): counter is in the low
// two of its four words, the others are 0.
func Philox(counter, key uint64) [4]uint32 {
	return philox4x32([4]uint32{uint32(counter), uint32(counter >> 32)}, [2]uint32{uint32(key), uint32(key >> 32)})
}

// The multipliers of a round, and the constants added to the key after each: the golden ratio and the square root of 3.
const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
	philoxRounds       = 10
)

func philox4x32(c [4]uint32, k [2]uint32) [4]uint32 {
	c0, c1, c2, c3 := c[0], c[1], c[2], c[3]
	k0, k1 := k[0], k[1]
	for range philoxRounds {
		p0, p1 := philoxM0*uint64(c0), philoxM1*uint64(c2)
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0 += philoxW0
		k1 += philoxW1
	}
	return [4]uint32{c0, c1, c2, c3}
}
