package memtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// An expandable allocator has pages that other devices and processes can use.
type expandable struct{ *caching.Allocator }

func newExpandable(t testing.TB, dev driver.Device) expandable {
	cfg, _, err := caching.ParseConfig("expandable_segments:True")
	testkit.Must(t, err)
	a, err := caching.New(dev, cfg)
	testkit.Must(t, err)
	return expandable{a}
}

// A loner lets no other device use its pages.
type loner struct{ expandable }

func (loner) AddPeer(driver.Device) error { return nil }

// A misexporter exports its pages in another order.
type misexporter struct{ expandable }

func (m misexporter) ExportPages(p driver.Pointer, size int64) (driver.Pointer, []driver.PageFile, error) {
	base, pages, err := m.expandable.ExportPages(p, size)
	pages = slices.Clone(pages)
	slices.Reverse(pages)
	return base, pages, err
}

// Memory that others cannot use, or that is other memory, is found.
func TestWrongSharing(t *testing.T) {
	sound := func(a expandable) mem.Allocator { return a }
	for name, tt := range map[string]struct {
		check, want string // want is part of the report
		wrap        func(expandable) mem.Allocator
	}{
		"peers":       {"Peers", "", sound},
		"pages":       {"Pages", "", sound},
		"no peer":     {"Peers", "CopyOut", func(a expandable) mem.Allocator { return loner{a} }},
		"wrong order": {"Pages", "its pages have other bytes", func(a expandable) mem.Allocator { return misexporter{a} }},
	} {
		t.Run(name, func(t *testing.T) {
			found := reportOf(t, tt.check, Config{
				Device: On("host:total=256MiB"),
				New:    func(t testing.TB, dev driver.Device) mem.Allocator { return tt.wrap(newExpandable(t, dev)) },
			}.complete())
			if tt.want == "" && found != "" || !strings.Contains(found, tt.want) {
				t.Errorf("want a report with %q, got:\n%s", tt.want, found)
			}
		})
	}
}
