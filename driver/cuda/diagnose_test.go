//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/nvml"
	"github.com/ashlar-go/ashlar/internal/dl"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ebitengine/purego"
)

// TestWhatIsNotThere: each thing that can be missing has an error of its own, from Open and Devices alike, and a
// finding that says what to do.
func TestWhatIsNotThere(t *testing.T) {
	noNodes := func(string) bool { return false }
	for _, c := range []struct {
		what   string
		opts   fakecuda.Options
		change func(*cudaDriver)
		code   error
		says   []string // in the error
		broken string   // the finding
	}{
		{
			what: "no library, no device",
			change: func(c *cudaDriver) {
				c.exists = noNodes
				c.load = func() (*cu.Lib, dl.Tries, error) {
					_, tries, err := dl.Open("libnone.so.1", "/none/libnone.so.1")
					return nil, tries, err
				}
			},
			code: driver.ErrAbsent, says: []string{"libnone.so.1", "/none/libnone.so.1", "host or sim"}, broken: "libcuda",
		},
		{
			what: "no library, though the kernel has the driver",
			change: func(c *cudaDriver) {
				c.load = func() (*cu.Lib, dl.Tries, error) {
					_, tries, err := dl.Open("libnone.so.1")
					return nil, tries, err
				}
			},
			code: driver.ErrAbsent, says: []string{"libnone.so.1", "install it", "--gpus all"}, broken: "libcuda",
		},
		{
			what: "a driver that is too old", opts: fakecuda.Options{Version: 11080},
			code: driver.ErrUnsupported, says: []string{"11.8", "12.0"}, broken: "version",
		},
		{
			what: "a container without the device", opts: fakecuda.Options{Init: fakecuda.Unknown},
			change: func(c *cudaDriver) { c.exists = noNodes },
			code:   driver.ErrAbsent, says: []string{"/dev/nvidiactl", "--gpus all", "CUDA_ERROR_UNKNOWN"}, broken: "device nodes",
		},
		{
			what: "no device", opts: fakecuda.Options{Init: fakecuda.NoDevice},
			code: driver.ErrAbsent, says: []string{"CUDA_VISIBLE_DEVICES"}, broken: "initialisation",
		},
		{
			what: "a library of another version than the kernel's driver", opts: fakecuda.Options{Init: fakecuda.SystemDriverMismatch},
			code: driver.ErrAbsent, says: []string{"restart"}, broken: "initialisation",
		},
		{
			what: "no fabric manager", opts: fakecuda.Options{Init: fakecuda.SystemNotReady},
			code: driver.ErrAbsent, says: []string{"nvidia-fabricmanager"}, broken: "initialisation",
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := driverOf(newMachine(t, c.opts))
			if c.change != nil {
				c.change(d)
			}
			_, err := d.Open("")
			wantErr(t, "Open", err, c.code, c.says...)
			_, err = d.Devices()
			wantErr(t, "Devices", err, c.code, c.says...)
			found := d.Diagnose()
			i := slices.IndexFunc(found, func(f driver.Finding) bool {
				return f.State == driver.Broken && strings.Contains(f.What, c.broken)
			})
			if i < 0 || found[i].Do == "" {
				t.Errorf("no finding says that %q is broken and what to do: %+v", c.broken, found)
			}
		})
	}
}

func TestDiagnoseOfAGoodMachine(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Missing: []string{"cuFuncGetParamInfo"}})
	var lacking []string
	for _, f := range driverOf(m).Diagnose() {
		switch f.State {
		case driver.Broken:
			t.Errorf("broken: %+v", f)
		case driver.Lacking:
			lacking = append(lacking, f.What)
		}
	}
	if !slices.Equal(lacking, []string{"functions of libcuda", "the library NVML"}) {
		t.Errorf("lacking: %q", lacking)
	}
}

// withNVML gives the driver an NVML that shows these processes, at most four.
func withNVML(c *cudaDriver, holders ...nvml.Process) {
	functions := map[string]uintptr{}
	for name, f := range map[string]any{
		"nvmlInit_v2":                func() int32 { return 0 },
		"nvmlSystemGetDriverVersion": func(text *[4]byte, n uintptr) int32 { copy(text[:], "580"); return 0 },
		"nvmlDeviceGetHandleByUUID":  func(uuid uintptr, handle *uint64) int32 { *handle = 77; return 0 },
		"nvmlDeviceGetMemoryInfo":    func(device uintptr, m *[3]uint64) int32 { m[1] = 40 << 20; return 0 },
		"nvmlDeviceGetComputeRunningProcesses_v3": func(device uintptr, n *uint32, infos *[12]uint64) int32 {
			*n = uint32(len(holders))
			for i, p := range holders {
				infos[3*i], infos[3*i+1] = uint64(p.PID), uint64(p.Used)
			}
			return 0
		},
	} {
		functions[name] = purego.NewCallback(f)
	}
	watch := nvml.New(func(symbol string) (uintptr, error) { return functions[symbol], nil })
	c.nvml = func() (*nvml.Lib, dl.Tries, error) { return watch, dl.Tries{{Name: "libnvidia-ml.so.1"}}, nil }
}

// TestNVMLTellsWhoHoldsMemory, and how much is free without a context.
func TestNVMLTellsWhoHoldsMemory(t *testing.T) {
	c := driverOf(newMachine(t, fakecuda.Options{Devices: 1}))
	withNVML(c, nvml.Process{PID: 1234, Used: 1 << 30})
	all, err := c.Devices()
	if err != nil || len(all) != 1 || all[0].Free != 40<<20 {
		t.Errorf("Devices: %+v, %v", all, err)
	}
	found := c.Diagnose()
	if last := found[len(found)-1]; last.Found != "process 1234: 1.00GiB" || last.State != driver.Good {
		t.Errorf("the last finding is %+v", last)
	}
	if f := found[len(found)-2]; !strings.Contains(f.Found, "driver 580") || f.State != driver.Good {
		t.Errorf("NVML: %+v", f)
	}
}

// TestProcesses: only NVML reports them.
func TestProcesses(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Devices: 1})
	_, err := openOn(t, m, "").Processes()
	wantErr(t, "Processes without NVML", err, driver.ErrUnsupported, "NVML")

	c := driverOf(m)
	withNVML(c)
	d, err := c.Open("")
	testkit.Must(t, err)
	_, err = d.Processes()
	wantErr(t, "Processes of an NVML that shows no process", err, driver.ErrUnsupported)
	testkit.Must(t, d.Close())

	withNVML(c, nvml.Process{PID: 1234, Used: 1 << 30}, nvml.Process{PID: os.Getpid(), Used: 5}, nvml.Process{PID: 8, Used: -1})
	d, err = c.Open("")
	testkit.Must(t, err)
	got, err := d.Processes()
	testkit.Must(t, err)
	want := []driver.ProcessMemory{{PID: 1234, Bytes: 1 << 30}, {PID: os.Getpid(), Self: true, Bytes: 5}, {PID: 8, Bytes: -1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	testkit.Must(t, d.Close())
	_, err = d.Processes()
	wantErr(t, "Processes of a closed device", err, driver.ErrClosed)

	c.nvml = func() (*nvml.Lib, dl.Tries, error) {
		denied := nvml.New(func(string) (uintptr, error) { return 0, errors.New("no permission") })
		return denied, nil, nil
	}
	d, err = c.Open("")
	testkit.Must(t, err)
	_, err = d.Processes()
	wantErr(t, "Processes that NVML denies", err, driver.ErrUnsupported, "no permission")
	testkit.Must(t, d.Close())
}

// TestMissingSymbols takes every symbol away in turn: whatever needs it says so by name, and the rest works. Nothing
// crashes.
func TestMissingSymbols(t *testing.T) {
	var symbols []string
	cu.New(func(symbol string) (uintptr, error) {
		symbols = append(symbols, symbol)
		return 0, errors.New("none")
	})
	if len(symbols) < 80 {
		t.Fatalf("%d symbols", len(symbols))
	}
	for _, symbol := range symbols {
		t.Run(symbol, func(t *testing.T) {
			m := fakecuda.New(fakecuda.Options{Missing: []string{symbol}, Granularity: 64 << 10})
			defer m.Close()
			missing := len(cu.New(m.Lookup).Missing()) > 0
			failed := exercise(m)
			for _, err := range failed {
				if !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrAbsent) || !strings.Contains(err.Error(), symbol) {
					t.Errorf("%v: want ErrUnsupported that names %s", err, symbol)
				}
			}
			if len(failed) > 0 && !missing {
				t.Errorf("%v, though an older function serves", failed)
			}
		})
	}
}

// TestEveryCallCanFail makes each call of a history fail in turn: the error says it, and closing the device gives all
// back.
func TestEveryCallCanFail(t *testing.T) {
	calls := map[string]int{}
	func() {
		m := fakecuda.New(fakecuda.Options{Granularity: 64 << 10})
		defer m.Close()
		if failed := exercise(m); len(failed) > 0 {
			t.Fatal(errors.Join(failed...))
		}
		for _, c := range m.Log() {
			calls[c.Symbol]++
		}
	}()
	for symbol, n := range calls {
		if symbol == "cuGetErrorName" || symbol == "cuGetErrorString" {
			continue
		}
		for nth := range n {
			m := fakecuda.New(fakecuda.Options{Granularity: 64 << 10})
			m.Fail(symbol, nth+1, fakecuda.OutOfMemory)
			if failed := exercise(m); len(failed) == 0 && !mayFail[symbol] {
				t.Errorf("call %d of %s failed without a finding", nth+1, symbol)
			}
			if got := m.Used(0); got != 0 && !givesBack[symbol] {
				t.Errorf("call %d of %s failed, and %d bytes stay in use after Close", nth+1, symbol, got)
			}
			m.Close()
		}
	}
}

// mayFail are the functions whose failure costs nothing but a figure, or speed: copies go without page-locked memory.
var mayFail = map[string]bool{
	"cuMemHostAlloc": true, "cuEventCreate": true, "cuEventRecord": true, "cuCtxPushCurrent_v2": true,
	"cuDeviceGetAttribute": true, "cuDeviceGetUuid_v2": true, "cuDeviceGetPCIBusId": true, "cuCtxGetStreamPriorityRange": true,
	"cuMemGetAllocationGranularity": true, "cuCtxPopCurrent_v2": true, "cuThreadExchangeStreamCaptureMode": true,
}

// givesBack are the functions that free memory: memory that they fail to free stays allocated.
var givesBack = map[string]bool{
	"cuMemFree_v2": true, "cuMemRelease": true, "cuMemUnmap": true, "cuDevicePrimaryCtxRelease_v2": true, "cuStreamSynchronize": true,
}

// exercise does everything once on the first device, goes on after errors, and returns them.
func exercise(m *fakecuda.Machine) (failed []error) {
	note := func(err error) bool {
		if err != nil {
			failed = append(failed, err)
		}
		return err == nil
	}
	d, err := driverOf(m).Open("")
	if !note(err) {
		return failed
	}
	defer func() { note(d.Close()) }()
	_, _, err = d.Available()
	note(err)
	s, err := d.NewStream(driver.StreamOptions{})
	if !note(err) {
		return failed
	}
	p, err := d.Alloc(8192)
	if !note(err) {
		return failed
	}
	note(s.Fill(p, 1, 4096))
	note(s.Copy(p+4096, p, 4096))
	note(s.CopyIn(p, make([]byte, 100)))
	note(s.CopyOut(make([]byte, 100), p))
	mark, err := s.Mark()
	if note(err) {
		_, err = s.Reached(mark)
		note(err)
		note(d.DefaultStream().WaitFor(s, mark))
	}
	note(s.Sync(background()))
	if f, err := d.NewStream(driver.StreamOptions{Foreign: uintptr(s.(*stream).handle)}); note(err) {
		_, err := f.Mark()
		note(err)
		note(f.Close())
	}
	if vm := d.VirtualMemory(); vm != nil {
		note(exerciseVirtual(d, vm))
	}
	note(s.Close())
	note(d.Free(p))
	return failed
}

func exerciseVirtual(d driver.Device, vm driver.VirtualMemory) error {
	g := d.Info().Granularity
	at, err := vm.Reserve(4 * g)
	if err != nil {
		return err
	}
	a, err := vm.Create(g)
	if err != nil {
		return err
	}
	b, err := vm.Create(2 * g)
	if err != nil {
		return errors.Join(err, vm.Drop(a))
	}
	if err := vm.Map(at, a, b, a); err != nil {
		// None is mapped, so that it can be done again.
		if again := vm.Map(at, a, b, a); again != nil && again.Error() != err.Error() {
			return fmt.Errorf("%w; and then %w", err, again)
		}
		return errors.Join(err, vm.Drop(a), vm.Drop(b))
	}
	if err := errors.Join(d.DefaultStream().Fill(at, 1, 4*g), d.DefaultStream().Sync(background())); err != nil {
		return err // the work may still be under way: unmapping now would be a bug
	}
	return errors.Join(vm.Unmap(at, 4*g), vm.Drop(a), vm.Drop(b), vm.Release(at, 4*g))
}
