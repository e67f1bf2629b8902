package sim

import (
	_ "embed"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A CostModel gives the time that each call takes its caller, including waits for work that the driver does at once.
// The zero model costs nothing. A model must not change while a device uses it. The time of a kernel itself is not
// modelled: a launch costs its queueing only.
//
// Curves are over bytes, except those of Graphs.End, Graph.Launch and Graph.Close, which are over the pieces of work in
// the graph. Those of VirtualMemory.Map and Unmap are for the first page of a call, by its size; Map's includes giving
// the device access to the page, which takes most of that time. A launch of a graph costs, besides its curve, the time
// that the bytes of its copies and fills take. A captured call costs as much as the same call for 0 bytes.
type CostModel struct {
	About     string // what was measured, and how
	Calls     [NumCalls]Curve
	MapNext   time.Duration // Map: each further page of the same call
	UnmapNext time.Duration // Unmap: each further page of the same call
}

// A Curve is a cost by size: straight lines between its points, the first point's cost below them, and the slope of the
// last two points beyond them. Sizes ascend, and the last cost is not below the one before it. No points cost nothing.
type Curve []Point

// A Point is the cost of a call of one size.
type Point struct {
	Size int64 // bytes, or pieces of work
	Cost time.Duration
}

// longest is the maximum cost of a call, so that no sum of costs overflows.
const longest = time.Hour

// At returns the cost of a call of a size. It is never more than an hour.
func (c Curve) At(size int64) time.Duration {
	i := sort.Search(len(c), func(i int) bool { return c[i].Size > size })
	switch {
	case len(c) == 0:
		return 0
	case i == 0 || len(c) == 1:
		return c[0].Cost
	}
	from := c[i-1]
	a, b := from, c[min(i, len(c)-1)]
	if i == len(c) {
		a = c[i-2]
	}
	rise := float64(b.Cost-a.Cost) / float64(b.Size-a.Size) * float64(size-from.Size)
	if rise >= float64(longest-from.Cost) {
		return longest
	}
	return from.Cost + time.Duration(rise)
}

// check returns an error for an invalid curve.
func (c Curve) check() error {
	for i, p := range c {
		switch {
		case p.Size < 0:
			return fmt.Errorf("point %d has the size %d: negative", i+1, p.Size)
		case p.Cost < 0 || p.Cost > longest:
			return fmt.Errorf("point %d costs %d ns: want 0 to %d, which is an hour", i+1, p.Cost, longest)
		case i > 0 && p.Size <= c[i-1].Size:
			return fmt.Errorf("point %d has the size %d, after %d: sizes must ascend", i+1, p.Size, c[i-1].Size)
		}
	}
	if n := len(c); n > 1 && c[n-1].Cost < c[n-2].Cost {
		return fmt.Errorf("the last point costs %d ns, less than the %d of the one before: larger sizes would "+
			"cost less than nothing", c[n-1].Cost, c[n-2].Cost)
	}
	return nil
}

// check returns an error for an invalid model.
func (m *CostModel) check() error {
	for c, curve := range m.Calls {
		if err := curve.check(); err != nil {
			return fmt.Errorf("cost of %v: %w", Call(c), err)
		}
	}
	for name, cost := range map[string]time.Duration{"map_next_ns": m.MapNext, "unmap_next_ns": m.UnmapNext} {
		if cost < 0 || cost > longest {
			return fmt.Errorf("%s is %d: want 0 to %d, which is an hour", name, cost, longest)
		}
	}
	return nil
}

// Map returns the cost of mapping pages of these sizes by one call, access included.
func (m *CostModel) Map(pages ...driver.Page) time.Duration {
	if len(pages) == 0 {
		return 0
	}
	return m.Calls[CallMap].At(pages[0].Size) + time.Duration(len(pages)-1)*m.MapNext
}

// Unmap returns the cost of unmapping n pages of size bytes each by one call.
func (m *CostModel) Unmap(n int, size int64) time.Duration {
	if n <= 0 {
		return 0
	}
	return m.Calls[CallUnmap].At(size) + time.Duration(n-1)*m.UnmapNext
}

// carried returns the time that moving size bytes takes, without that of queueing the call.
func (m *CostModel) carried(c Call, size int64) time.Duration {
	return max(0, m.Calls[c].At(size)-m.Calls[c].At(0))
}

//go:embed h200.json
var h200File string

// standard is the model of h200.json, which must not be changed.
var standard = sync.OnceValue(func() *CostModel {
	m, err := ReadCostModel(strings.NewReader(h200File))
	if err != nil {
		panic("driver/sim: h200.json: " + err.Error())
	}
	return m
})

// H200 returns the cost of calls on an NVIDIA H200, the default model. It is the file h200.json in this package, whose
// About says how it was measured. The caller may change it.
func H200() *CostModel {
	m := *standard()
	for c := range m.Calls {
		m.Calls[c] = slices.Clone(m.Calls[c])
	}
	return &m
}
