package estimate

import (
	"fmt"
	"strconv"
	"strings"
)

// A Factor is a number in a formula, with its meaning: 12 layers. Without a meaning it is a plain number.
type Factor struct {
	N    int64
	Unit string
}

// A Formula is a sum of products.
type Formula [][]Factor

// Bytes is the value of the formula.
func (f Formula) Bytes() int64 {
	sum := int64(0)
	for _, product := range f {
		n := int64(1)
		for _, factor := range product {
			n *= factor.N
		}
		sum += n
	}
	return sum
}

// String writes a formula: "2 × 12 layers × 1,024 tokens × 2 bytes".
func (f Formula) String() string {
	var products []string
	for _, product := range f {
		var factors []string
		for _, factor := range product {
			factors = append(factors, factor.String())
		}
		products = append(products, strings.Join(factors, " × "))
	}
	return strings.Join(products, " + ")
}

func (f Factor) String() string {
	if f.Unit == "" {
		return grouped(f.N)
	}
	unit := f.Unit
	if f.N != 1 && !strings.HasSuffix(unit, "s") && !strings.Contains(unit, " ") {
		unit += "s"
	}
	return fmt.Sprintf("%s %s", grouped(f.N), unit)
}

// grouped writes n with a comma between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// product is a formula of one product.
func product(factors ...Factor) Formula { return Formula{factors} }

// plus adds a number of bytes that is not worth a formula, with its meaning.
func (f Formula) plus(bytes int64, meaning string) Formula {
	if bytes == 0 {
		return f
	}
	return append(f, []Factor{{bytes, "bytes " + meaning}})
}
