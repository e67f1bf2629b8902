// Package allocconf parses settings in the syntax of PyTorch's PYTORCH_ALLOC_CONF, for the device's allocator
// (mem/caching) and for the allocator of page-locked host memory (mem/pinned):
//
//	max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]
package allocconf

import (
	"fmt"
	"slices"
	"strings"
)

// A Value is the checked value of a key. The field for the key's kind is set. Sizes are bytes.
type Value struct {
	Bool      bool
	Int       int64 // a size, or a count
	Float     float64
	Word      string
	Divisions [16]int64          // by size: from 1, 2, 4, ... MiB on
	Reserve   Reserve            // the zero Reserve: the text's value is ignored
	Classes   map[string]Reserve // by the class of a stream
}

// A Reserve is a size in bytes, or a part of the device's memory. One of the two is set.
type Reserve struct {
	Bytes    int64
	Fraction float64
}

// Parse parses a text as PyTorch does (c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp), and calls set
// with each key and its value, in order. If a key has no effect, set returns the reason. White space is ignored,
// booleans are exactly True or False, and a comma may follow the last value. Where PyTorch reads text differently from
// how it is written, so does Parse: it ignores characters after a number, accepts another delimiter in place of the
// expected one, and ignores an invalid reserve. The notes report these cases, and keys without effect, one sentence
// each.
//
// large is the size of large segments before the call, in bytes. Two keys may not be less than it, or than the value
// that the text sets anywhere. The error begins with pkg, the caller's name, and names the key and its position, in
// bytes from 0; set may have been called before.
func Parse(pkg, text string, large int64, set func(key string, v Value) (unused string)) (notes []string, err error) {
	p := &parser{pkg: pkg, tokens: lex(text), large: large}
	for len(p.tokens) > 0 {
		p.key, p.tokens = p.tokens[0], p.tokens[1:]
		read := readers[p.key.text]
		if read == nil {
			return nil, fmt.Errorf("%s: settings, at %d: unknown key %q; %s", pkg, p.key.at, p.key.text,
				hint(p.key.text))
		}
		if err := p.delimiter(":"); err != nil {
			return nil, err
		}
		v, err := read(p)
		if err != nil {
			return nil, err
		}
		if why := set(p.key.text, v); why != "" {
			p.note("has no effect: %s", why)
		}
		if len(p.tokens) > 0 {
			if err := p.delimiter(","); err != nil {
				return nil, err
			}
		}
	}
	return p.notes, p.checkLeast()
}

// hint returns advice for an unknown key.
func hint(text string) string {
	if key, value, ok := strings.Cut(text, "="); ok && readers[key] != nil {
		return fmt.Sprintf("write %s:%s, with a colon", key, value)
	}
	return "known are " + strings.Join(keys(), ", ")
}

func keys() []string {
	all := make([]string, 0, len(readers))
	for key := range readers {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

// A token is a delimiter, or the text between delimiters without white space.
type token struct {
	text string
	at   int // byte offset in the settings
}

const (
	delimiters = ",:[]"
	space      = " \t\n\v\f\r" // std::isspace
)

func (t token) isDelimiter() bool { return len(t.text) == 1 && strings.Contains(delimiters, t.text) }

func lex(s string) []token {
	var tokens []token
	var word []byte
	start := 0
	flush := func() {
		if len(word) > 0 {
			tokens = append(tokens, token{string(word), start})
			word = word[:0]
		}
	}
	for i := range len(s) {
		switch c := s[i]; {
		case strings.IndexByte(delimiters, c) >= 0:
			flush()
			tokens = append(tokens, token{s[i : i+1], i})
		case strings.IndexByte(space, c) >= 0:
		default:
			if len(word) == 0 {
				start = i
			}
			word = append(word, c)
		}
	}
	flush()
	return tokens
}

// Split splits a text into settings, at the commas outside of lists, so that the settings after an invalid one can
// still be parsed.
func Split(text string) []string {
	var parts []string
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}
	return append(parts, text[from:])
}
