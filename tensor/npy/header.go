package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/dtype"
)

const (
	magic = "\x93NUMPY"
	// maxText is the largest header in bytes. NumPy itself reads at most 10,000 by default.
	maxText = 64 << 10
	// maxAxes is NumPy's limit; the lower limit of tensors is checked when one is made.
	maxAxes = 64
)

// checkStart checks the first bytes of a file.
func checkStart(start []byte) error {
	if first := string(start[:min(len(start), len(magic))]); first != magic {
		return wrong("it begins with %q, want %q", first, magic)
	}
	return nil
}

// readHeader reads everything before the elements.
func readHeader(r io.Reader) (Info, error) {
	var n Info
	var start [12]byte
	if _, err := io.ReadFull(r, start[:10]); err != nil {
		return n, short(err, "the file ends before the header")
	}
	if err := checkStart(start[:10]); err != nil {
		return n, err
	}
	size := uint64(binary.LittleEndian.Uint16(start[8:10]))
	switch start[6] {
	case 1:
	case 2, 3:
		if _, err := io.ReadFull(r, start[10:12]); err != nil {
			return n, short(err, "the file ends before the header")
		}
		size = uint64(binary.LittleEndian.Uint32(start[8:12]))
	default:
		return n, wrong("version %d.%d of the format, want 1.0, 2.0 or 3.0", start[6], start[7])
	}
	if size > maxText {
		return n, wrong("a header of %d bytes exceeds the limit of %d", size, maxText)
	}
	text := make([]byte, size)
	if got, err := io.ReadFull(r, text); err != nil {
		return n, short(err, "a header of %d bytes, of which there are %d", size, got)
	}
	if err := (&literal{text: string(text)}).dict(&n); err != nil {
		return n, err
	}
	return n, n.measure()
}

// short converts the end of a file into a FormatError.
func short(err error, format string, args ...any) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return wrong(format, args...)
	}
	return err
}

// A literal parses the dictionary of a header: three keys, with a string, a bool and a tuple of integers. It refuses
// any other Python.
type literal struct {
	text string
	at   int
}

func (l *literal) wrong(format string, args ...any) error {
	return wrong("byte %d of the header: %s", l.at, fmt.Sprintf(format, args...))
}

// rest returns the remaining text, without leading white space.
func (l *literal) rest() string {
	trimmed := strings.TrimLeft(l.text[l.at:], " \t\n\r")
	l.at = len(l.text) - len(trimmed)
	return trimmed
}

// took consumes a word if it is next.
func (l *literal) took(word string) bool {
	if strings.HasPrefix(l.rest(), word) {
		l.at += len(word)
		return true
	}
	return false
}

func (l *literal) want(word string) error {
	if !l.took(word) {
		return l.wrong("want %q, found %.20q", word, l.rest())
	}
	return nil
}

// dict reads the header.
func (l *literal) dict(n *Info) error {
	if err := l.want("{"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for !l.took("}") {
		if len(seen) > 0 {
			if err := l.want(","); err != nil {
				return err
			}
			if l.took("}") {
				break
			}
		}
		key, err := l.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return l.wrong("the key %.100q is duplicate", key)
		}
		seen[key] = true
		if err := l.want(":"); err != nil {
			return err
		}
		switch key {
		case "descr":
			err = l.descr(n)
		case "fortran_order":
			err = l.fortran(n)
		case "shape":
			err = l.shape(n)
		default:
			err = l.wrong("unknown key %.100q", key)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return l.wrong("the key %q is missing", key)
		}
	}
	if rest := l.rest(); rest != "" {
		return l.wrong("want the end, found %.20q", rest)
	}
	return nil
}

// str reads a quoted string. Escapes are refused: no key and no type needs any.
func (l *literal) str() (string, error) {
	rest := l.rest()
	if rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return "", l.wrong("want a string, found %.20q", rest)
	}
	end := strings.IndexByte(rest[1:], rest[0])
	if end < 0 || strings.ContainsAny(rest[1:1+end], "\\\n") {
		return "", l.wrong("a string without an end, or with an escape")
	}
	l.at += end + 2
	return rest[1 : 1+end], nil
}

// descr reads the type.
func (l *literal) descr(n *Info) error {
	if rest := l.rest(); rest != "" && (rest[0] == '[' || rest[0] == '(') {
		return fmt.Errorf("its elements are structures (descr %.60q), which have no dtype: %w", rest,
			errors.ErrUnsupported)
	}
	descr, err := l.str()
	if err != nil {
		return err
	}
	n.Descr = descr
	n.DType, n.BigEndian, err = dtype.ParseNumPy(descr)
	if err == nil {
		return nil
	}
	code := strings.TrimLeft(descr, "<>|=")
	what := ""
	switch {
	case code == "":
	case code[0] == 'O':
		what = "Python objects, which are pickled code and are never read"
	case strings.ContainsRune("USa", rune(code[0])):
		what = "texts"
	case code[0] == 'M' || code[0] == 'm':
		what = "times"
	case code == "V1" || code == "V2":
		what = "bytes without a type, as NumPy writes bfloat16 and 8-bit floats; save them as safetensors"
	case code[0] == 'V':
		what = "bytes without a type"
	case code == "f16" || code == "c32" || code == "f12" || code == "c24" || code == "g" || code == "G":
		what = "long doubles"
	}
	if what == "" {
		return l.wrong("%v", err)
	}
	return fmt.Errorf("its elements (descr %.20q) are %s: %w", descr, what, errors.ErrUnsupported)
}

func (l *literal) fortran(n *Info) error {
	switch {
	case l.took("True"):
		n.Fortran = true
	case l.took("False"):
	default:
		return l.wrong("want True or False, found %.20q", l.rest())
	}
	return nil
}

// shape reads a tuple of integers: (), (3,), (3, 4).
func (l *literal) shape(n *Info) error {
	if err := l.want("("); err != nil {
		return err
	}
	n.Shape = []int{}
	for comma := true; !l.took(")"); comma = l.took(",") {
		if !comma {
			return l.wrong("want ',' or ')', found %.20q", l.rest())
		}
		rest := l.rest()
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		length, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case digits == "":
			return l.wrong("want a length, found %.20q", rest)
		case err != nil || length > math.MaxInt:
			return l.wrong("a length of %.40s exceeds the limit of %d", digits, math.MaxInt)
		case len(digits) > 1 && digits[0] == '0':
			return l.wrong("a length that begins with 0: %.20q", rest)
		case len(n.Shape) == maxAxes:
			return l.wrong("more than %d axes", maxAxes)
		}
		n.Shape = append(n.Shape, int(length))
		l.at += len(digits)
		if l.at < len(l.text) && l.text[l.at] == 'L' { // as Python 2 wrote long integers
			l.at++
		}
		if next := l.rest(); len(n.Shape) == 1 && strings.HasPrefix(next, ")") {
			return l.wrong("a number in brackets is not a tuple: want a comma after it")
		}
	}
	return nil
}

// header returns everything before the elements, in the form that NumPy has written since 1.23: with room for the
// longest length of the growing axis, padded to a multiple of 64 bytes.
func header(descr string, shape []int, fortran bool) []byte {
	var b strings.Builder
	order := "False"
	if fortran {
		order = "True"
	}
	fmt.Fprintf(&b, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr, order)
	for i, length := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(length))
	}
	if len(shape) == 1 {
		b.WriteByte(',')
	}
	b.WriteString("), }")
	if len(shape) > 0 {
		growing := shape[0]
		if fortran {
			growing = shape[len(shape)-1]
		}
		const room = 21
		b.WriteString(strings.Repeat(" ", room-len(strconv.Itoa(growing))))
	}
	before := len(magic) + 4
	b.WriteString(strings.Repeat(" ", 64-(before+b.Len()+1)%64))
	b.WriteByte('\n')
	out := append([]byte(magic), 1, 0)
	out = binary.LittleEndian.AppendUint16(out, uint16(b.Len()))
	return append(out, b.String()...)
}
