package allocconf

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

type parser struct {
	pkg       string
	tokens    []token
	key       token // whose value is being read
	notes     []string
	divisions [16]int64
	large     int64   // the size of large segments
	least     []bound // sizes that may not be less than it
}

// A bound is a size that is checked when the whole text is known.
type bound struct {
	key, value token
	size       int64
}

func (p *parser) errorf(t token, format string, args ...any) error {
	return fmt.Errorf("%s: settings, at %d: %s: %s", p.pkg, t.at, p.key.text, fmt.Sprintf(format, args...))
}

// note says what is odd about the key that is being read.
func (p *parser) note(format string, args ...any) {
	p.notes = append(p.notes, p.key.text+" "+fmt.Sprintf(format, args...))
}

func (p *parser) next() (token, error) {
	if len(p.tokens) == 0 {
		return token{}, p.errorf(p.key, "the value is missing")
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t, nil
}

func (p *parser) nextIs(delimiter string) bool {
	return len(p.tokens) > 0 && p.tokens[0].text == delimiter
}

// delimiter passes over one. PyTorch (2.9 and later) looks whether it is the right one, and goes on if it is not.
func (p *parser) delimiter(want string) error {
	t, err := p.next()
	switch {
	case err != nil:
		return err
	case !t.isDelimiter():
		return p.errorf(t, "want %q, got %q", want, t.text)
	case t.text != want:
		p.note("is read as if the %q at %d were %q, as by PyTorch", t.text, t.at, want)
	}
	return nil
}

// prefix notes that only the beginning of a word was read.
func (p *parser) prefix(t token, n int) {
	if n < len(t.text) {
		p.note("is read as %s, as by PyTorch: the text says %s", t.text[:n], t.text)
	}
}

// whole reads a whole number, and passes over what follows its digits, as std::stoull does.
func (p *parser) whole() (uint64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	start := len(t.text) - len(strings.TrimPrefix(t.text, "+"))
	end := start
	for end < len(t.text) && t.text[end] >= '0' && t.text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(t.text[start:end], 10, 64)
	if err != nil {
		return 0, t, p.errorf(t, "want a whole number, got %q", t.text)
	}
	p.prefix(t, end)
	return n, t, nil
}

// mebibytes reads a number of MiB and returns bytes, cut to what an int64 holds.
func (p *parser) mebibytes() (int64, token, error) {
	n, t, err := p.whole()
	return int64(min(n, 1<<43-1) << 20), t, err
}

// float reads a number, and passes over what follows it, as std::stod does.
func (p *parser) float() (float64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	for end := len(t.text); end > 0; end-- {
		f, err := strconv.ParseFloat(t.text[:end], 64)
		if err == nil {
			p.prefix(t, end)
			return f, t, nil
		}
		if errors.Is(err, strconv.ErrRange) {
			break
		}
	}
	return 0, t, p.errorf(t, "want a number, got %q", t.text)
}

// part reads a number that has to be within bounds.
func (p *parser) part(within func(float64) bool, want string) (Value, error) {
	f, t, err := p.float()
	if err == nil && !within(f) {
		err = p.errorf(t, "want it %s, got %v", want, f)
	}
	return Value{Float: f}, err
}

func (p *parser) boolean() (Value, error) {
	t, err := p.next()
	if err == nil && t.text != "True" && t.text != "False" {
		err = p.errorf(t, "want True or False, got %q", t.text)
	}
	return Value{Bool: t.text == "True"}, err
}

// atLeastLarge reads a size in MiB that may not be less than that of large segments.
func (p *parser) atLeastLarge() (Value, error) {
	n, t, err := p.mebibytes()
	p.least = append(p.least, bound{p.key, t, n})
	return Value{Int: n}, err
}

func (p *parser) checkLeast() error {
	for _, b := range p.least {
		if b.size < p.large {
			p.key = b.key
			return p.errorf(b.value, "want at least the large segment size, %d", p.large>>20)
		}
	}
	return nil
}

// reserve reads a part of the device's memory, or a number of GiB: 0.5, 40G. PyTorch warns of anything else and ignores
// it.
func (p *parser) reserve() (Reserve, error) {
	t, err := p.next()
	if err != nil {
		return Reserve{}, err
	}
	digits, gibibytes := t.text, false
	if n := len(t.text) - 1; t.text[n] == 'G' || t.text[n] == 'g' {
		digits, gibibytes = t.text[:n], true
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(f > 0) || strings.Trim(digits, "0123456789.eE+-") != "" {
		p.note("%s is ignored, as by PyTorch: want a part of the device's memory, such as 0.5, or GiB, such as 40G",
			t.text)
		return Reserve{}, nil
	}
	if !gibibytes {
		return Reserve{Fraction: f}, nil
	}
	return Reserve{Bytes: max(int64(min(f, 1<<32)*(1<<30)), 1)}, nil
}

// classes reads a list of reserves: [serving:0.25,training:40G]. Those that are ignored are not in the map.
func (p *parser) classes() (Value, error) {
	all := map[string]Reserve{}
	if err := p.delimiter("["); err != nil {
		return Value{}, err
	}
	for !p.nextIs("]") {
		name, err := p.next()
		if err != nil {
			return Value{}, err
		}
		if err := p.delimiter(":"); err != nil {
			return Value{}, err
		}
		r, err := p.reserve()
		if err != nil {
			return Value{}, err
		}
		if r != (Reserve{}) {
			all[name.text] = r
		}
		if p.nextIs(",") {
			_, _ = p.next()
		}
	}
	_, err := p.next()
	return Value{Classes: all}, err
}

// roundups reads one number for all sizes, or a list of intervals: [256:1,512:2,>:4], where a key is the size in MiB
// from which on its value counts. The first value also counts below its key, and > sets all intervals above the last.
func (p *parser) roundups() (Value, error) {
	if !p.nextIs("[") {
		n, t, err := p.whole()
		if err == nil && !powerOfTwo(n) {
			err = p.errorf(t, "want a power of two, got %d", n)
		}
		for i := range p.divisions {
			p.divisions[i] = int64(n)
		}
		return Value{Divisions: p.divisions}, err
	}
	_, _ = p.next()
	last := -1
	for !p.nextIs("]") {
		var err error
		if last, err = p.interval(last); err != nil {
			return Value{}, err
		}
		if !p.nextIs("]") {
			if err := p.delimiter(","); err != nil {
				return Value{}, err
			}
		}
	}
	_, err := p.next()
	return Value{Divisions: p.divisions}, err
}

// interval reads one interval of a list. last is the index of that before, and is returned for this one.
func (p *parser) interval(last int) (int, error) {
	above := p.nextIs(">")
	var mb uint64
	var key token
	var err error
	if above {
		_, err = p.next()
	} else {
		mb, key, err = p.whole()
	}
	if err != nil {
		return last, err
	}
	if err := p.delimiter(":"); err != nil {
		return last, err
	}
	n, t, err := p.whole()
	switch {
	case err != nil:
		return last, err
	case n != 0 && !powerOfTwo(n):
		return last, p.errorf(t, "want a power of two, or 0 for none, got %d", n)
	case above:
		for i := max(last, 0) + 1; i < len(p.divisions); i++ {
			p.divisions[i] = int64(n)
		}
		return last, nil
	case !powerOfTwo(mb):
		return last, p.errorf(key, "want intervals that start at a power of two of MiB, or >, got %q", key.text)
	}
	at := min(bits.TrailingZeros64(mb), len(p.divisions)-1)
	if last < 0 {
		for i := range at {
			p.divisions[i] = int64(n)
		}
	}
	p.divisions[at] = int64(n)
	return at, nil
}

func powerOfTwo(n uint64) bool { return n != 0 && n&(n-1) == 0 }
