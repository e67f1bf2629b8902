//go:build linux && (amd64 || arm64) && !nocuda

package nvml

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// withFunctions is a Lib of just these functions.
func withFunctions(functions map[string]any) *Lib {
	addresses := map[string]uintptr{}
	for name, f := range functions {
		addresses[name] = purego.NewCallback(f)
	}
	return New(func(symbol string) (uintptr, error) {
		if a := addresses[symbol]; a != 0 {
			return a, nil
		}
		return 0, errors.New("no symbol " + symbol)
	})
}

func TestProcesses(t *testing.T) {
	if n := unsafe.Sizeof(processInfo{}); n != 24 {
		t.Errorf("nvmlProcessInfo_t has 24 bytes, processInfo %d", n)
	}
	const holders = 100 // more than fit at first
	l := withFunctions(map[string]any{
		"nvmlInit_v2": func() int32 { return 0 },
		"nvmlDeviceGetHandleByUUID": func(uuid *[4]byte, handle *uint64) int32 {
			if string(uuid[:]) != "GPU\x00" {
				return 6
			}
			*handle = 77
			return 0
		},
		"nvmlDeviceGetMemoryInfo": func(device uintptr, m *[3]uint64) int32 { *m = [3]uint64{100, 40, 60}; return 0 },
		"nvmlDeviceGetComputeRunningProcesses_v3": func(device uintptr, n *uint32, infos *[1 << 10]processInfo) int32 {
			if room := *n; room < holders || device != 77 {
				*n = holders
				return insufficientSize
			}
			*n = holders
			for i := range holders {
				infos[i] = processInfo{pid: uint32(i), used: uint64(i) << 20}
			}
			infos[1].used = ^uint64(0)
			return 0
		},
	})
	all, err := l.Processes("GPU")
	if err != nil || len(all) != holders || all[99] != (Process{99, 99 << 20}) || all[1].Used != -1 {
		t.Errorf("%d processes, %v", len(all), err)
	}
	if free, err := l.Free("GPU"); free != 40 || err != nil {
		t.Errorf("Free: %d, %v", free, err)
	}
	if _, err := l.Processes("MIG"); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetHandleByUUID") {
		t.Errorf("an unknown device: %v", err)
	}
	if _, err := l.Version(); err == nil || !strings.Contains(err.Error(), "nvmlSystemGetDriverVersion") {
		t.Errorf("a function that is not there: %v", err)
	}
}

func TestWithoutNVML(t *testing.T) {
	var l *Lib
	if _, err := l.Free("GPU"); !errors.Is(err, ErrAbsent) {
		t.Errorf("Free: %v", err)
	}
	if _, err := l.Processes("GPU"); !errors.Is(err, ErrAbsent) {
		t.Errorf("Processes: %v", err)
	}
	denied := withFunctions(map[string]any{"nvmlInit_v2": func() int32 { return 4 }})
	if _, err := denied.Version(); err == nil || !strings.Contains(err.Error(), "4") {
		t.Errorf("denied: %v", err)
	}
}
