package driver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// recorder is a driver that opens nothing and records the arguments of Open.
type recorder struct{ args []string }

var errRecorded = errors.New("recorded")

func (r *recorder) Open(args string) (driver.Device, error) {
	r.args = append(r.args, args)
	return nil, errRecorded
}

func (r *recorder) Devices() ([]driver.Listing, error) { return nil, errRecorded }
func (r *recorder) Diagnose() []driver.Finding         { return nil }

var theRecorder = &recorder{}

func init() {
	driver.Register("zeta", &recorder{})
	driver.Register("recorder", theRecorder)
}

func TestOpenPassesWhatFollowsTheFirstColon(t *testing.T) {
	theRecorder.args = nil
	for _, c := range []struct{ spec, args string }{
		{"recorder", ""},
		{"recorder:", ""},
		{"recorder:0", "0"},
		{"recorder:total=1GiB,seed=7", "total=1GiB,seed=7"},
		{"recorder:nth=1/sim:total=1k", "nth=1/sim:total=1k"},
	} {
		if _, err := driver.Open(c.spec); !errors.Is(err, errRecorded) {
			t.Errorf("Open(%q): %v, want the driver's own error", c.spec, err)
		}
		if got := theRecorder.args[len(theRecorder.args)-1]; got != c.args {
			t.Errorf("Open(%q) passed %q, want %q", c.spec, got, c.args)
		}
	}
}

func TestOpenOfAnUnknownDriverSaysWhichThereAre(t *testing.T) {
	for _, spec := range []string{"", ":recorder", "none", "none:recorder", "Recorder"} {
		d, err := driver.Open(spec)
		if d != nil || !errors.Is(err, driver.ErrUnknown) || !strings.Contains(err.Error(), "recorder, zeta") {
			t.Errorf("Open(%q): %v, want ErrUnknown and the drivers", spec, err)
		}
	}
}

func TestDriversAreSorted(t *testing.T) {
	names := driver.Drivers()
	if !slices.IsSorted(names) || !slices.Contains(names, "recorder") || !slices.Contains(names, "zeta") {
		t.Errorf("Drivers() = %q", names)
	}
	names[0] = "changed"
	if slices.Contains(driver.Drivers(), "changed") {
		t.Error("Drivers returned the registry's own memory")
	}
}

func TestRegisterPanics(t *testing.T) {
	for what, register := range map[string]func(){
		"no name":       func() { driver.Register("", &recorder{}) },
		"a colon":       func() { driver.Register("a:b", &recorder{}) },
		"no driver":     func() { driver.Register("nil", nil) },
		"a name in use": func() { driver.Register("recorder", &recorder{}) },
	} {
		testkit.WantPanic(t, what, "driver: Register", register)
	}
	if _, err := driver.Open("nil"); !errors.Is(err, driver.ErrUnknown) {
		t.Errorf("a driver that was refused is registered: %v", err)
	}
}

func TestError(t *testing.T) {
	own := errors.New("a driver's own code")
	for _, c := range []struct {
		err  *driver.Error
		want string
	}{
		{&driver.Error{Call: "Alloc", Code: driver.ErrNoMemory}, "driver: Alloc: out of device memory"},
		{
			&driver.Error{Call: "VirtualMemory.Map", Code: own, Detail: "page 3 at 0x10"},
			"driver: VirtualMemory.Map: a driver's own code (page 3 at 0x10)",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		wrapped := fmt.Errorf("map pages: %w", c.err)
		if e := (*driver.Error)(nil); !errors.Is(wrapped, c.err.Code) || !errors.As(wrapped, &e) || e != c.err {
			t.Errorf("%v does not match its code or is not found", wrapped)
		}
		if errors.Is(wrapped, driver.ErrLost) {
			t.Errorf("%v matches another code", wrapped)
		}
	}
}
