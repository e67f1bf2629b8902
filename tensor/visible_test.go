package tensor_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
)

// A blind device fails to show its memory.
type blind struct{ driver.Device }

var errBlind = errors.New("blind")

func (blind) Visible() driver.Visible { return blind{} }

func (blind) Bytes(driver.Pointer, int64) ([]byte, error) { return nil, errBlind }

// A storage whose memory the device fails to show is an error, and takes no memory.
func TestMemoryThatIsNotShown(t *testing.T) {
	dev := blind{drivertest.OpenDevice(t, "host:total=64MiB")}
	alloc, err := caching.New(dev, caching.Default())
	testkit.Must(t, err)
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: alloc, Backend: noBackend{}})
	if _, err := p.Alloc(100); !errors.Is(err, errBlind) {
		t.Errorf("Alloc: %v", err)
	}
	testkit.Equal(t, "bytes in use", alloc.Stats().AllocatedBytes.All.Current, 0)
	testkit.Must(t, p.Close())
}
