package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// devices decodes the lines of --json.
func devices(t *testing.T, out string) []deviceLine {
	t.Helper()
	var lines []deviceLine
	for line := range strings.Lines(out) {
		var l deviceLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// Every driver lists its devices, or explains why it has none. There is always host memory and a simulated device.
func TestDevicesOfAllDrivers(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range devices(t, ok(t, "devices", "--json")) {
		seen[l.Driver] = true
		if l.Spec == "" {
			if l.Error == "" {
				t.Errorf("%+v: neither a device nor an error", l)
			}
			continue
		}
		d, err := driver.Open(l.Spec)
		if err != nil {
			t.Errorf("%s is listed and cannot be opened: %v", l.Spec, err)
			continue
		}
		if info := d.Info(); info.Name != l.Name || info.TotalMemory != l.TotalMemory || info.Granularity != l.Granularity {
			t.Errorf("%s is listed as %+v and is %+v", l.Spec, l, info)
		}
		if has := slices.Contains(l.Abilities, "pages"); has != (d.VirtualMemory() != nil) {
			t.Errorf("%s: pages %t", l.Spec, has)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if !seen["host"] || !seen["sim"] {
		t.Errorf("drivers with a line: %v", seen)
	}
	has(t, ok(t, "devices"), "simulated NVIDIA H200", bytesize.Format(150_109_880_320))
}

// A driver that is broken in the way its findings describe.
type brokenDriver struct{}

func (brokenDriver) Open(string) (driver.Device, error) { return nil, noCard }

func (brokenDriver) Devices() ([]driver.Listing, error) { return nil, noCard }

func (brokenDriver) Diagnose() []driver.Finding {
	return []driver.Finding{
		{What: "a library", Where: "libx.so", Found: "version 3", State: driver.Good},
		{What: "telemetry", Found: "no permission", State: driver.Lacking, Do: "ask for it"},
		{What: "a card", Found: "none", State: driver.Broken, Do: "put one in"},
	}
}

var noCard = &driver.Error{Call: "Open", Code: driver.ErrAbsent, Detail: "no card"}

func init() { driver.Register("broken", brokenDriver{}) }

func TestDoctorSaysWhatToDo(t *testing.T) {
	got := ashlar(t, nil, "doctor", "broken")
	if got.code != exitDiffers {
		t.Errorf("exit code %d", got.code)
	}
	has(t, got.out, "good a library: version 3 (libx.so)", "lacking telemetry: no permission", "to do: ask for it",
		"broken a card: none", "to do: put one in")
	var f findingLine
	if err := json.Unmarshal([]byte(strings.SplitAfter(ashlar(t, nil, "doctor", "--json", "broken").out, "\n")[2]), &f); err != nil ||
		f != (findingLine{Driver: "broken", What: "a card", State: "broken", Found: "none", Do: "put one in"}) {
		t.Errorf("%+v, %v", f, err)
	}
	all := ashlar(t, nil, "doctor") // of all drivers: what is broken is news, not a failure
	if all.code != exitOK {
		t.Errorf("exit code %d of a look at all drivers", all.code)
	}
	has(t, all.out, "host", "sim good needs nothing", "broken a card: none")
	has(t, ok(t, "devices"), `broken: no device: driver: Open: no such device (no card). "ashlar doctor broken" prints details.`)
	if got := ashlar(t, nil, "doctor", "nonesuch"); got.code != exitUsage {
		t.Errorf("exit code %d of an unknown driver", got.code)
	}
}

// A device on which segments have the same memory, of a driver that lists none.
type sameMemory struct {
	driver.Device
	first driver.Pointer
	size  int64
}

func (d *sameMemory) Alloc(size int64) (driver.Pointer, error) {
	p, err := d.Device.Alloc(size)
	if d.first == 0 {
		d.first, d.size = p, size
	}
	if size <= d.size {
		return d.first, err
	}
	return p, err
}

// Kernels is nil: contents are compared by copies.
func (*sameMemory) Kernels() driver.Kernels { return nil }

type sameDriver struct{}

func (sameDriver) Devices() ([]driver.Listing, error) { return nil, nil }
func (sameDriver) Diagnose() []driver.Finding         { return nil }
func (sameDriver) Open(string) (driver.Device, error) {
	inner, err := driver.Open("sim")
	return &sameMemory{Device: inner}, err
}

func init() { driver.Register("same", sameDriver{}) }

// Real memory behind the addresses: its figures and its errors.
func TestVerifyOnADevice(t *testing.T) {
	path := "../../replay/verify/testdata/graphtrees.pickle.zst"
	has(t, ok(t, "verify", "--device", "host", "../../replay/verify/testdata/nosplit.expandable.pickle.zst"),
		"peaks equal; 480 blocks of 474.67MiB written and found unchanged")
	has(t, ok(t, "verify", "--json", "--device", "host", path), `"exact":true,"blocks_checked":359,"bytes_checked":994371072`)
	lacks(t, ok(t, "verify", "--json", path), "checked")

	got := ashlar(t, nil, "verify", "--device", "same:", path)
	if got.code != exitDiffers || got.out != "" {
		t.Errorf("exit code %d, %s", got.code, got.out)
	}
	has(t, got.err, path+": device 0: replay: op ", "its memory was given to another block")

	for spec, want := range map[string]struct {
		code int
		err  string
	}{
		"sim:total=1GiB":  {exitUsage, `--device "sim:total=1GiB": want sim, host or a device of "ashlar devices"`},
		"nonsense":        {exitUsage, `--device "nonsense": want`},
		"broken:7":        {exitInput, "no card"},
		"host:total=8MiB": {exitNoRoom, path + ": device 0: check contents: allocate "},
		"host:what=8MiB":  {exitUsage, `unknown setting "what`},
	} {
		for _, command := range []string{"verify", "replay"} {
			got := ashlar(t, nil, command, "--device", spec, path)
			if got.code != want.code || got.out != "" {
				t.Errorf("%s --device %s: exit code %d, %s", command, spec, got.code, got.out)
			}
			if command == "verify" || want.code == exitUsage {
				has(t, got.err, want.err)
			}
		}
	}
}

// The output for devices that cannot be opened, and for drivers without devices.
func TestDevicesThatCannotBeOpened(t *testing.T) {
	has(t, ok(t, "devices"), `same: no device: none was found. "ashlar doctor same" prints details.`)
	has(t, ok(t, "devices", "--json"), `{"driver":"same","ordinal":0,"error":"none was found"}`)
	free := int64(1 << 30)
	lines := []deviceLine{
		{Driver: "x", Spec: "x:0", Name: "good card", TotalMemory: 2 << 30, FreeMemory: &free, Abilities: []string{"pages", "graphs"}, Peers: []string{"x:1"}},
		{Driver: "x", Spec: "x:1", Name: "bad card", TotalMemory: 2 << 30, Error: "it is taken", PCI: "0000:1b:00.0", Compute: 90},
	}
	write := func(width int) string {
		var b strings.Builder
		writeDevices(&page{w: &b, width: width}, lines)
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns of %d: %s", n, width, line)
			}
		}
		return b.String()
	}
	wide := write(100)
	has(t, wide, "x:0 good card 2.00GiB 1.00GiB yes - - - yes - -", "x:1 bad card 2.00GiB ? ? ? ? ? ? ? ?",
		"x:0: reaches x:1.", "x:1: could not be opened: it is taken, compute capability 9.0, PCI 0000:1b:00.0.")
	for width := minWidth; width < 100; width++ {
		if out := write(width); !strings.Contains(out, "x:0  good card") || !strings.Contains(out, "memory") {
			t.Errorf("in %d columns:\n%s", width, out)
		}
	}
}
