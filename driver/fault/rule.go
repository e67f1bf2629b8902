package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/intercept"
)

// needsMemory are the kinds whose error is driver.ErrNoMemory if a rule has no code.
var needsMemory = []intercept.Kind{
	intercept.Alloc, intercept.NewStream, intercept.Reserve, intercept.Create, intercept.Map, intercept.Load,
	intercept.AllocHost, intercept.Register, intercept.Stamp, intercept.End, intercept.Import, intercept.CreateShared,
	intercept.ImportPage,
	intercept.NewEvent, intercept.OpenEvent,
}

// A Rule says which calls fail. The zero Rule is every call; each field that is set narrows it.
type Rule struct {
	Kind    intercept.Kind // calls of this kind only; "": of all kinds
	Nth     int64          // only the nth of them since the rules were set, from 1; 0: all
	Onwards bool           // with Nth: that one and all after it
	Rate    float64        // each of them with this probability, from a generator of the rule's own; 0: always
	Seed    uint64         // of that generator

	// Code is what the error matches. nil is driver.ErrNoMemory for what needs memory (Alloc, NewStream, Reserve,
	// Create, Map, Load, AllocHost, Register, Stamp, End, Import, CreateShared, ImportPage, NewEvent, OpenEvent) and
	// driver.ErrLost for the rest.
	Code error
}

// A rule is a Rule with its own counts.
type rule struct {
	Rule
	seen int64
	rng  *rand.Rand
}

// matches counts a call and reports whether it fails.
func (r *rule) matches(k intercept.Kind) bool {
	if r.Kind != "" && r.Kind != k {
		return false
	}
	r.seen++
	if r.Nth != 0 && r.seen != r.Nth && (!r.Onwards || r.seen < r.Nth) {
		return false
	}
	return r.Rate == 0 || r.rng.Float64() < r.Rate
}

func (r *rule) code(k intercept.Kind) error {
	if r.Code != nil {
		return r.Code
	}
	if slices.Contains(needsMemory, k) {
		return driver.ErrNoMemory
	}
	return driver.ErrLost
}

// codes are the names that ParseRules has for errors.
var codes = map[string]error{
	"nomemory":    driver.ErrNoMemory,
	"invalid":     driver.ErrInvalid,
	"unsupported": driver.ErrUnsupported,
	"closed":      driver.ErrClosed,
	"lost":        driver.ErrLost,
	"notready":    driver.ErrNotReady,
	"capturing":   driver.ErrCapturing,
	"absent":      driver.ErrAbsent,
}

// codeNames lists the names in the order of the alphabet, for messages.
func codeNames() string { return strings.Join(slices.Sorted(maps.Keys(codes)), ", ") }

// ParseRules reads rules from text: fields key=value with commas between them, semicolons between rules. The keys are
// kind, nth, onwards (no value), rate (0 to 1), seed, and code (nomemory, invalid, unsupported, closed, lost, notready,
// capturing, absent). "all" is the rule that every call fails; nothing at all is no rule.
func ParseRules(text string) ([]Rule, error) {
	var rules []Rule
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		var r Rule
		for field := range strings.SplitSeq(part, ",") {
			if err := r.set(strings.TrimSpace(field)); err != nil {
				return nil, &driver.Error{
					Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf("fault rule %q: %v", field, err),
				}
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func (r *Rule) set(field string) error {
	key, value, _ := strings.Cut(field, "=")
	var err error
	switch key {
	case "all":
	case "kind":
		if r.Kind = intercept.Kind(value); !slices.Contains(intercept.Kinds(), r.Kind) {
			err = fmt.Errorf("the kinds are %v", intercept.Kinds())
		}
	case "nth":
		if r.Nth, err = strconv.ParseInt(value, 10, 64); err != nil || r.Nth < 1 {
			err = fmt.Errorf("want a number from 1")
		}
	case "onwards":
		r.Onwards = true
	case "rate":
		if r.Rate, err = strconv.ParseFloat(value, 64); err != nil || !(r.Rate > 0 && r.Rate <= 1) {
			err = fmt.Errorf("want a number above 0, up to 1")
		}
	case "seed":
		if r.Seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			err = fmt.Errorf("want a number")
		}
	case "code":
		if r.Code = codes[value]; r.Code == nil {
			err = fmt.Errorf("the codes are %s", codeNames())
		}
	default:
		err = fmt.Errorf("the keys are all, kind, nth, onwards, rate, seed, code")
	}
	return err
}

type faultDriver struct{}

func init() { driver.Register("fault", faultDriver{}) }

// Devices lists none: every device can be wrapped, and is listed by its own driver.
func (faultDriver) Devices() ([]driver.Listing, error) { return nil, nil }

// Diagnose finds nothing: it needs nothing of the machine.
func (faultDriver) Diagnose() []driver.Finding { return nil }

// Open reads "RULES/SPEC".
func (faultDriver) Open(args string) (driver.Device, error) {
	text, spec, ok := strings.Cut(args, "/")
	if !ok || spec == "" {
		return nil, &driver.Error{
			Call: "Open", Code: driver.ErrInvalid,
			Detail: fmt.Sprintf("fault:%s: want fault:RULES/SPEC, such as fault:kind=Alloc,nth=3/host", args),
		}
	}
	rules, err := ParseRules(text)
	if err != nil {
		return nil, err
	}
	inner, err := driver.Open(spec)
	if err != nil {
		return nil, err
	}
	return Wrap(inner, rules...), nil
}
