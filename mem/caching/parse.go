package caching

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseConfig reads settings in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as
//
//	max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]
//
// on top of the defaults. White space does not matter, and booleans are exactly True or False. Besides PyTorch's keys
// there is pytorch-exact (see Config.PyTorchExact) and limit (bytes, as in 18.2GiB). Keys of PyTorch's that mean nothing
// to this allocator are checked as there and accepted; notes says which, one sentence each. An unknown key or a bad
// value is an error that names it and its position.
func ParseConfig(settings string) (cfg Config, notes []string, err error) {
	cfg = Default()
	if notes, err = cfg.parse(settings); err != nil {
		return Config{}, nil, err
	}
	return cfg, notes, cfg.Validate()
}

// ParseConfigure is Configure with settings as in ParseConfig. As in PyTorch, each call starts with the split limit, the
// round-ups and garbage collection at their defaults, and the non-split rounding at the large segment size; the other
// settings stay unless they are named.
func (a *Allocator) ParseConfigure(settings string) (notes []string, err error) {
	err = a.update(func(c *Config) error {
		notes, err = c.parse(settings)
		return err
	})
	return notes, err
}

// parse changes the settings that a string names, and those that every string sets anew, as PyTorch's parseArgs does
// (c10/core/AllocatorConfig.cpp).
func (c *Config) parse(settings string) (notes []string, err error) {
	p := &parser{cfg: *c, tokens: lex(settings)}
	p.cfg.MaxSplitSize = Unlimited
	p.cfg.RoundupDivisions = [16]int64{}
	p.cfg.GarbageCollectionThreshold = 0
	p.cfg.MaxNonSplitRounding = 0
	for len(p.tokens) > 0 {
		key := p.tokens[0]
		parse := settingParsers[key.text]
		if parse == nil {
			return nil, fmt.Errorf("caching: settings, at %d: unknown key %q; known are %s",
				key.at, key.text, strings.Join(settingKeys(), ", "))
		}
		p.key, p.tokens = key, p.tokens[1:]
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		if err := parse(p); err != nil {
			return nil, err
		}
		if len(p.tokens) == 0 {
			break
		}
		if err := p.expect(","); err != nil {
			return nil, err
		}
		if len(p.tokens) == 0 {
			return nil, fmt.Errorf("caching: settings: a key has to follow the last comma")
		}
	}
	for _, check := range p.atEnd {
		if err := check(); err != nil {
			return nil, err
		}
	}
	*c = p.cfg
	return p.notes, nil
}

// A token is a delimiter or what stands between delimiters.
type token struct {
	text string
	at   int // byte offset in the settings
}

func lex(s string) []token {
	var tokens []token
	start := -1
	flush := func(end int) {
		if start >= 0 {
			text := strings.Map(func(r rune) rune {
				if r == ' ' || r == '\t' || r == '\n' {
					return -1
				}
				return r
			}, s[start:end])
			tokens = append(tokens, token{text, start})
			start = -1
		}
	}
	for i := range len(s) {
		switch s[i] {
		case ',', ':', '[', ']':
			flush(i)
			tokens = append(tokens, token{s[i : i+1], i})
		case ' ', '\t', '\n':
		default:
			if start < 0 {
				start = i
			}
		}
	}
	flush(len(s))
	return tokens
}

type parser struct {
	cfg    Config
	notes  []string
	key    token // whose value is being read
	tokens []token
	atEnd  []func() error // checks of values against others, whatever the order of the keys
}

func (p *parser) errorf(t token, format string, args ...any) error {
	return fmt.Errorf("caching: settings, at %d: %s: %s", t.at, p.key.text, fmt.Sprintf(format, args...))
}

func (p *parser) next() (token, error) {
	if len(p.tokens) == 0 {
		return token{}, p.errorf(p.key, "the value is missing")
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t, nil
}

func (p *parser) expect(delimiter string) error {
	t, err := p.next()
	if err != nil {
		return err
	}
	if t.text != delimiter {
		return p.errorf(t, "want %q, got %q", delimiter, t.text)
	}
	return nil
}

func (p *parser) integer() (int64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil || n < 0 {
		return 0, t, p.errorf(t, "want a whole number, got %q", t.text)
	}
	return n, t, nil
}

// mebibytes reads a number of MiB and returns bytes, cut to what an int64 holds.
func (p *parser) mebibytes() (int64, token, error) {
	n, t, err := p.integer()
	return min(n, 1<<43-1) << 20, t, err
}

func (p *parser) float() (float64, token, error) {
	t, err := p.next()
	if err != nil {
		return 0, t, err
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		return 0, t, p.errorf(t, "want a number, got %q", t.text)
	}
	return f, t, nil
}

// atLeastLargeSegment reads a size in MiB that may not be less than the large segment size.
func (p *parser) atLeastLargeSegment(to *int64) error {
	n, t, err := p.mebibytes()
	*to = n
	key := p.key
	p.atEnd = append(p.atEnd, func() error {
		if n < p.cfg.LargeSegmentSize {
			p.key = key
			return p.errorf(t, "want at least the large segment size, %d", p.cfg.LargeSegmentSize>>20)
		}
		return nil
	})
	return err
}

func (p *parser) boolean(to *bool) error {
	t, err := p.next()
	if err != nil {
		return err
	}
	switch t.text {
	case "True":
		*to = true
	case "False":
		*to = false
	default:
		return p.errorf(t, "want True or False, got %q", t.text)
	}
	return nil
}

func (p *parser) note(why string) {
	p.notes = append(p.notes, p.key.text+" has no effect: "+why)
}

// skipList passes over [name:value,...].
func (p *parser) skipList() error {
	if err := p.expect("["); err != nil {
		return err
	}
	for {
		t, err := p.next()
		if err != nil {
			return err
		}
		if t.text == "]" {
			return nil
		}
	}
}
