//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"runtime"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// TestGPUCallsLeaveTheThreadsContexts needs two devices for a thread that works on another one; with one device that
// device is opened twice.
func TestGPUCallsLeaveTheThreadsContexts(t *testing.T) {
	c := driver.Lookup("cuda").(*cudaDriver)
	all, err := c.Devices()
	testkit.Must(t, err)
	for _, x := range threads {
		second := "1"
		if len(all) == 1 {
			if second = "0"; len(x.current) > 0 && x.current[0] == 1 || len(x.current) > 1 {
				continue
			}
		}
		t.Run(x.name, func(t *testing.T) {
			o := &tour{second: second, long: 9 << 20}
			for _, what := range tourOn(c, o, x.current) {
				t.Error(what)
			}
			for _, err := range o.failed {
				t.Logf("left out: %v", err) // containers may deny some
			}
			if o.p == 0 {
				t.Error("no memory was allocated: nothing was shown")
			}
		})
	}
}

// TestGPUCapturesOfOthersComeThrough what this driver does on other threads, and on the thread of the capture.
func TestGPUCapturesOfOthersComeThrough(t *testing.T) {
	c := driver.Lookup("cuda").(*cudaDriver)
	lib, _, err := c.load()
	testkit.Must(t, err)
	duringCapture(t, lib, func() {
		o := &tour{second: "0", long: 9 << 20}
		for _, what := range tourOn(c, o, nil) {
			t.Error(what)
		}
		for _, err := range o.failed {
			if errors.Is(err, driver.ErrCapturing) {
				t.Error(err)
			} else {
				t.Logf("left out: %v", err)
			}
		}
	})
	for _, mode := range []cu.CaptureMode{cu.CaptureGlobal, cu.CaptureThreadLocal, cu.CaptureRelaxed} {
		workWhileCapturing(t, c, mode)
	}
}

// workWhileCapturing makes calls on the thread of a capture.
func workWhileCapturing(t *testing.T, c *cudaDriver, mode cu.CaptureMode) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	opened, err := c.Open("0")
	testkit.Must(t, err)
	d := opened.(*device)
	s := newTestStream(t, d)
	other := beginOther(t, d.lib, mode)
	p := alloc(t, d, 64)
	testkit.Must(t, s.Fill(p, 1, 64))
	reached(t, s, markOf(t, s))
	syncOf(t, s)
	testkit.Must(t, d.Free(p))
	other.end(t)
	testkit.Must(t, d.Close())
}
