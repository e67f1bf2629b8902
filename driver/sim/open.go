package sim

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

func init() { driver.Register("sim", simulator{}) }

type simulator struct{}

// Open opens a device from a list of settings, in any order: "total=140GiB,seed=7,random". Sizes are as package
// bytesize reads them.
//
//	total=SIZE         memory of the device
//	granularity=SIZE   of virtual memory
//	alignment=SIZE     of Alloc
//	base=ADDRESS       lowest address, such as 0x7f0000000000
//	seed=N             of the noise in fresh memory, and of random
//	pinned=SIZE        of host memory that may be page-locked
//	cost=h200|none     the cost model, or
//	cost=PATH          a file for ReadCostModel; the path must not contain a comma
//	ordinal=N          the device's number, for programs that open several
//	random             work completes at later calls, chosen at random
//	held               work completes on demand
//	unchecked          no race detector
//	reportonly         races do not make calls fail
//	novm               no virtual memory
//
// The error is a *driver.Error that matches driver.ErrInvalid and names the setting.
func (simulator) Open(args string) (driver.Device, error) {
	opts, err := parseOptions(args)
	if err == nil {
		err = opts.complete()
	}
	if err != nil {
		return nil, &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf("sim:%s: %v", args, err)}
	}
	return New(opts), nil
}

func parseOptions(args string) (Options, error) {
	var o Options
	if strings.TrimSpace(args) == "" {
		return o, nil
	}
	for setting := range strings.SplitSeq(args, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(setting), "=")
		if err := o.set(name, value, given); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *Options) set(name, value string, given bool) error {
	size := func(to *int64) (err error) {
		if *to, err = bytesize.Parse(value); err == nil && *to == 0 {
			err = fmt.Errorf("want more than 0")
		}
		return err
	}
	flags := map[string]func(){
		"random":     func() { o.Completion = AtRandom },
		"held":       func() { o.Completion = OnDemand },
		"unchecked":  func() { o.Unchecked = true },
		"reportonly": func() { o.ReportOnly = true },
		"novm":       func() { o.NoVirtualMemory = true },
	}
	if set := flags[name]; set != nil {
		if given {
			return fmt.Errorf("setting %q takes no value", name)
		}
		set()
		return nil
	}
	var err error
	switch name {
	case "total":
		err = size(&o.Total)
	case "granularity":
		err = size(&o.Granularity)
	case "alignment":
		err = size(&o.Alignment)
	case "base":
		var n uint64
		n, err = number(value)
		o.Base = driver.Pointer(n)
	case "seed":
		o.Seed, err = number(value)
	case "pinned":
		err = size(&o.Pinned)
	case "ordinal":
		if o.Ordinal, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
			err = fmt.Errorf("want a number from 0")
		}
	case "cost":
		o.Cost, err = costModel(value)
	default:
		scratch := *o
		if key, after, ok := strings.Cut(name, ":"); ok && scratch.set(key, after, true) == nil {
			return fmt.Errorf("unknown setting %q; write %s=%s, with an equals sign", name, key, after)
		}
		return fmt.Errorf("unknown setting %q; want total, granularity, alignment, base, seed, pinned, ordinal, "+
			"cost, random, held, unchecked, reportonly or novm", name)
	}
	if err != nil {
		return fmt.Errorf("setting %s=%s: %w", name, value, err)
	}
	return nil
}

// number reads a number of 64 bits, such as 7 or 0x7f0000000000.
func number(value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("want a whole number from 0 to %d", uint64(math.MaxUint64))
	}
	return n, nil
}

// costModel returns the model with a name, or that in a file.
func costModel(name string) (*CostModel, error) {
	switch name {
	case "h200":
		return H200(), nil
	case "none":
		return &CostModel{}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; want h200, none or a file", err)
	}
	defer f.Close()
	return ReadCostModel(f)
}

// Devices lists the device that Open makes without arguments.
func (simulator) Devices() ([]driver.Listing, error) {
	d := New(Options{})
	defer d.Close()
	return []driver.Listing{{Spec: "sim", Info: d.Info(), Free: d.Info().TotalMemory}}, nil
}

// Diagnose returns no findings, since the driver needs nothing of the machine.
func (simulator) Diagnose() []driver.Finding { return nil }
