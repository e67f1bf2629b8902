//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
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
