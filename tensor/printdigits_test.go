package tensor

import (
	"math"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
)

// Digits that are asked for beyond the fewest never make another number of it: below a power of two the numbers of a type
// lie closer together than above it.
func TestFurtherDigitsStillIdentifyTheNumber(t *testing.T) {
	for _, d := range []dtype.DType{dtype.BFloat16, dtype.Float16, dtype.Float32} {
		lowest := map[dtype.DType]int{dtype.BFloat16: -126, dtype.Float16: -14, dtype.Float32: -126}[d]
		for exponent := lowest; exponent <= 15; exponent++ {
			for least := range 8 {
				x := -math.Ldexp(1, exponent)
				whole, fraction, e := scientific(x, d, least, -1)
				if text := whole + "." + fraction + "e" + e; len(fraction) < least || !identifies(text, x, d) {
					t.Errorf("%v 2^%d with %d digits: %s", d, exponent, least, text)
				}
			}
		}
	}
}
