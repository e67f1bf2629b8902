package timeline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// longestName is the number of bytes of a name that are kept.
const longestName = 512

// cut shortens s to at most size bytes of whole runes, an ellipsis included.
func cut(s string, size int) string {
	const ellipsis = "…"
	if len(s) <= size {
		return s
	}
	end := size - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// A charset is the set of characters that text may hold.
type charset bool

const (
	ascii   charset = false
	anyRune charset = true
)

// visible returns s with invisible characters (control characters, marks of direction, broken UTF-8) escaped as in Go
// strings.
func (set charset) visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unicode.IsPrint(r), set == ascii && r > unicode.MaxASCII:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// name returns s visible, in at most width characters.
func (set charset) name(s string, width int) string {
	s = set.visible(s)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	ellipsis := "…"
	if set == ascii {
		ellipsis = ".."
	}
	keep := max(0, width-utf8.RuneCountInString(ellipsis))
	return string([]rune(s)[:keep]) + ellipsis
}

// millis returns a time in milliseconds, to the microsecond.
func millis(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond)) }

// quantity returns the value of a counter.
func quantity(v int64, bytes bool) string {
	if bytes && v >= 0 {
		return bytesize.Format(v)
	}
	return strconv.FormatInt(v, 10)
}

// threeDigits returns v with three significant digits.
func threeDigits(v float64) string {
	decimals := 3
	for limit := 1.0; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
