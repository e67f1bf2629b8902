package paged_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/paged"
)

// Neighbours share a page. Its descriptor is open until both exports have ended, and the memory can be paused then.
func TestEndExport(t *testing.T) {
	dev, err := driver.Open("host:total=64MiB")
	testkit.Must(t, err)
	a, err := paged.New(dev, paged.Config{})
	testkit.Must(t, err)
	s := dev.DefaultStream()
	x, err := a.Alloc(s, 3<<20)
	testkit.Must(t, err)
	y, err := a.Alloc(s, 4096)
	testkit.Must(t, err)
	_, ofX, err := a.ExportPages(x.Ptr, x.Size)
	testkit.Must(t, err)
	_, ofY, err := a.ExportPages(y.Ptr, y.Size)
	testkit.Must(t, err)
	if last := ofX[len(ofX)-1]; last != ofY[0] {
		t.Fatal("the blocks share no page: the test shows nothing")
	}
	a.EndExport(x.Ptr, x.Size)
	if _, err := ofY[0].File.Stat(); err != nil {
		t.Errorf("the descriptor of the other block: %v", err)
	}
	if err := a.Pause(paged.PauseOptions{Discard: true}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Pause with an exported block: %v", err)
	}
	a.EndExport(y.Ptr, y.Size)
	if _, err := ofY[0].File.Stat(); err == nil {
		t.Error("the descriptor is still open")
	}
	testkit.Must(t, a.Pause(paged.PauseOptions{Discard: true}))
	if _, pages, err := a.ExportPages(x.Ptr, x.Size); !errors.Is(err, paged.ErrPaused) {
		t.Errorf("an export of a paused block: %d pages, %v", len(pages), err)
	}
	testkit.Must(t, a.Resume())
	a.Free(x)
	a.Free(y)
	testkit.Must(t, a.Close())
	testkit.Must(t, dev.Close())
}
