package safetensors

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON of a known form: the caller requests the values in order. It reads the text once, without
// recursion except in skip, and allocates only the strings and numbers that it returns. Unlike encoding/json it refuses
// duplicate keys, unpaired surrogates, and integers written as 1.0 or 1e3, as the reference does. The caller has
// checked that the text is valid UTF-8.
type scanner struct {
	text []byte
	at   int
}

// maxDepth is the maximum nesting of skipped values.
const maxDepth = 100

// wrong returns an error with the scanner's position.
func (s *scanner) wrong(format string, args ...any) error {
	return fmt.Errorf("byte %d of the JSON: %s", s.at, fmt.Sprintf(format, args...))
}

// next skips white space and returns the next byte without consuming it, or 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// found describes the next byte, for messages.
func (s *scanner) found() string {
	if s.next() == 0 && s.at >= len(s.text) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(s.text[s.at:])
	return strconv.QuoteRune(r)
}

// take consumes the byte c, after white space.
func (s *scanner) take(c byte) error {
	if s.next() != c || s.at >= len(s.text) {
		return s.wrong("want %q, found %s", c, s.found())
	}
	s.at++
	return nil
}

// end returns an error unless only white space is left.
func (s *scanner) end() error {
	if s.next(); s.at < len(s.text) {
		return s.wrong("want the end, found %s", s.found())
	}
	return nil
}

// object reads an object. It calls member after each key to read the value, and refuses duplicate keys.
func (s *scanner) object(member func(key string) error) error {
	if err := s.take('{'); err != nil {
		return err
	}
	seen := map[string]struct{}{}
	return s.list('}', func() error {
		key, err := s.str()
		if err != nil {
			return err
		}
		if _, twice := seen[key]; twice {
			return s.wrong("the key %s is duplicate", quoted(key))
		}
		seen[key] = struct{}{}
		if err := s.take(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// array reads an array. It calls element to read each value.
func (s *scanner) array(element func() error) error {
	if err := s.take('['); err != nil {
		return err
	}
	return s.list(']', element)
}

// list reads items separated by commas, up to the closing byte.
func (s *scanner) list(closing byte, item func() error) error {
	if s.next() == closing {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.next() {
		case closing:
			s.at++
			return nil
		case ',':
			s.at++
		default:
			return s.wrong("want ',' or %q, found %s", closing, s.found())
		}
	}
}

// str reads a string.
func (s *scanner) str() (string, error) {
	if err := s.take('"'); err != nil {
		return "", err
	}
	start := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return string(s.text[start : s.at-1]), nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", s.wrong("a control character in a string")
		}
		s.at++
	}
	return "", s.wrong("a string without an end")
}

// escaped reads the rest of a string that began at start and continues with a backslash.
func (s *scanner) escaped(start int) (string, error) {
	var b strings.Builder
	b.Write(s.text[start:s.at])
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '"':
			s.at++
			return b.String(), nil
		case c < ' ':
			return "", s.wrong("a control character in a string")
		case c != '\\':
			b.WriteByte(c)
			s.at++
		default:
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		}
	}
	return "", s.wrong("a string without an end")
}

const shortEscapes = `"\/bfnrt`

// escape reads an escape sequence and returns its character.
func (s *scanner) escape() (rune, error) {
	if s.at+1 >= len(s.text) {
		return 0, s.wrong("a string without an end")
	}
	if s.text[s.at+1] == 'u' {
		r, err := s.hex()
		switch {
		case err != nil || !utf16.IsSurrogate(r):
			return r, err
		case s.at+1 < len(s.text) && s.text[s.at] == '\\' && s.text[s.at+1] == 'u':
			second, err := s.hex()
			if err != nil {
				return 0, err
			}
			if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
				return r, nil
			}
		}
		return 0, s.wrong("half of a surrogate pair")
	}
	i := strings.IndexByte(shortEscapes, s.text[s.at+1])
	if i < 0 {
		return 0, s.wrong("an unknown escape")
	}
	s.at += 2
	return rune("\"\\/\b\f\n\r\t"[i]), nil
}

// hex reads \uXXXX.
func (s *scanner) hex() (rune, error) {
	if s.at+6 > len(s.text) {
		return 0, s.wrong("\\u without four digits")
	}
	var r rune
	for _, c := range s.text[s.at+2 : s.at+6] {
		i := strings.IndexByte("0123456789abcdef", c|0x20) // lower case; digits have that bit set
		if i < 0 || c < '0' {
			return 0, s.wrong("\\u without four digits")
		}
		r = r<<4 | rune(i)
	}
	s.at += 6
	return r, nil
}

// number returns the text of a number.
func (s *scanner) number() (string, error) {
	if c := s.next(); c != '-' && (c < '0' || c > '9') {
		return "", s.wrong("want a number, found %s", s.found())
	}
	start := s.at
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[s.at]) >= 0 {
		s.at++
	}
	return string(s.text[start:s.at]), nil
}

// natural reads an integer from 0 to the largest int64.
func (s *scanner) natural() (int64, error) {
	start := s.at
	text, err := s.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 63)
	switch {
	case err == nil && (text == "0" || text[0] != '0'):
		return int64(n), nil
	case errors.Is(err, strconv.ErrRange):
		err = s.wrong("%s is more than %d", shortened(text), int64(math.MaxInt64))
	case text[0] == '-':
		err = s.wrong("%s is negative, or not an integer as JSON writes it", shortened(text))
	default:
		err = s.wrong("%s is not an integer as JSON writes it", shortened(text))
	}
	s.at = start
	return 0, err
}

// skip reads any value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.wrong("values nest deeper than %d", maxDepth)
	}
	switch c := s.next(); {
	case c == '{':
		return s.object(func(string) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		text, err := s.number()
		if err == nil && !isNumber(text) {
			err = s.wrong("%s is not a number", shortened(text))
		}
		return err
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(string(s.text[s.at:min(s.at+5, len(s.text))]), word) {
			s.at += len(word)
			return nil
		}
	}
	return s.wrong("want a value, found %s", s.found())
}

// isNumber reports whether text, which number returned, is a valid JSON number.
func isNumber(text string) bool {
	digits := func() bool {
		rest := strings.TrimLeft(text, "0123456789")
		some := len(rest) < len(text)
		text = rest
		return some
	}
	text = strings.TrimPrefix(text, "-")
	if len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' || !digits() {
		return false
	}
	if fraction, ok := strings.CutPrefix(text, "."); ok {
		if text = fraction; !digits() {
			return false
		}
	}
	if text != "" && text[0]|0x20 == 'e' {
		if text = text[1:]; text != "" && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		if !digits() {
			return false
		}
	}
	return text == ""
}

// quoted returns a name for messages, with a limited length.
func quoted(name string) string { return strconv.Quote(shortened(name)) }

// shortened returns text for messages, with its middle removed if it is long.
func shortened(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
