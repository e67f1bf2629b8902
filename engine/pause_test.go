package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/paged"
	"github.com/ashlar-go/ashlar/tensor"
)

// While a device is paused it has nothing allocated; afterwards its tensors have their values again, also those that
// sessions had just queued work for.
func TestPauseAndResumeOfADevice(t *testing.T) {
	for name, c := range map[string]DeviceConfig{
		"paged": {Allocator: "paged"}, "limit": {Allocator: "paged", MemoryLimit: 32 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			e, devs := simulated(t, 1, Config{Devices: []DeviceConfig{c}})
			s := session(t, e)
			values := make([]float32, 1<<20)
			for i := range values {
				values[i] = float32(i)
			}
			x, err := tensor.FromSlice(s.Place(), values)
			testkit.Must(t, err)
			released := floats(t, s.Place(), 1<<20)
			before, total, err := devs[0].Available()
			testkit.Must(t, err)
			testkit.Must(t, e.Pause(0, paged.PauseOptions{}))
			during, _, err := devs[0].Available()
			testkit.Must(t, err)
			if during-before < 8<<20 {
				t.Errorf("of %d bytes %d were free, and while paused %d", total, before, during)
			}
			if _, err := tensor.FromSlice(s.Place(), values); !errors.Is(err, paged.ErrPaused) {
				t.Errorf("a new tensor on a paused device: %v", err)
			}
			released.Release()
			testkit.Must(t, e.Resume(0))
			got, err := tensor.ToSlice[float32](x)
			testkit.Must(t, err)
			if !slices.Equal(got, values) {
				t.Error("a tensor has other values after Resume")
			}
		})
	}
}

// A device whose memory went to others stays paused until there is room.
func TestResumeOfADeviceWithoutMemory(t *testing.T) {
	e, devs := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "paged"}}})
	s := session(t, e)
	floats(t, s.Place(), 1<<20)
	testkit.Must(t, e.Pause(0, paged.PauseOptions{}))
	other, err := devs[0].Alloc(62 << 20)
	testkit.Must(t, err)
	var oom *mem.OutOfMemory
	if err := e.Resume(0); !errors.As(err, &oom) {
		t.Errorf("Resume without memory: %v", err)
	}
	testkit.Must(t, devs[0].Free(other))
	testkit.Must(t, e.Resume(0))
	floats(t, s.Place(), 10)
}

// An engine can be closed while a device is paused.
func TestCloseOfAPausedDevice(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "paged"}}})
	s := session(t, e)
	floats(t, s.Place(), 1<<20)
	testkit.Must(t, e.Pause(0, paged.PauseOptions{}))
	testkit.Must(t, s.Close())
}

// Only paged memory can be paused, and only in an open engine.
func TestPauseRefused(t *testing.T) {
	e, _ := simulated(t, 1, Config{Devices: []DeviceConfig{{Allocator: "caching"}}})
	for name, err := range map[string]error{
		"Pause": e.Pause(0, paged.PauseOptions{}), "Resume": e.Resume(0),
	} {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s with mem/caching: %v", name, err)
		}
	}
	testkit.Must(t, e.Close(t.Context()))
	if err := e.Pause(0, paged.PauseOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Pause of a closed engine: %v", err)
	}
}
