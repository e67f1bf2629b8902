package drivertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testRandom runs random histories on the device and on a model of byte arrays, and compares what can be read.
func testRandom(t *testing.T, open openFunc) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			h := &history{t: t, d: open(t), rng: rand.New(rand.NewPCG(seed, 1))}
			h.kernels, h.pinned, h.graphs = goKernels(t, h.d), h.d.Pinned(), h.d.Graphs()
			h.streams = []driver.Stream{h.d.DefaultStream()}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d: the history was\n%s", seed, strings.Join(h.log, "\n"))
				}
			}()
			for range 600 {
				h.step()
			}
			h.finish()
		})
	}
}

// A history is a device, and what the model knows of it.
type history struct {
	t       *testing.T
	d       driver.Device
	kernels driver.Kernels // nil if it runs no Go functions
	pinned  driver.Pinned  // nil if it has none
	graphs  driver.Graphs  // nil if it has none
	staged  staging
	rng     *rand.Rand
	log     []string
	streams []driver.Stream // [0] is the default stream
	places  []place
	pages   []driver.Page // created and not dropped, with their bytes in cells
	cells   map[uint64]*cell
}

// A cell is the bytes of a block, or of the start of a page, as they will be once all queued work is done.
type cell struct {
	bytes []byte
	last  driver.Stream // the last to use it, or nil: nothing queued uses it
}

// A place is an address where a cell can be seen. The cells of pages may have several, or none.
type place struct {
	ptr  driver.Pointer
	cell *cell
	page *driver.Page // nil: a block from Alloc
}

// A staging is page-locked memory and the last stream to use it, or nil.
type staging struct {
	bytes []byte
	last  driver.Stream
}

const (
	stagedBytes = 8000

	maxPlaces  = 24
	maxPages   = 6
	maxStreams = 5
	cellBytes  = 3000 // of a page, only so many are used
)

// step does one random thing.
func (h *history) step() {
	h.t.Helper()
	switch h.rng.IntN(19) {
	case 0, 1:
		h.alloc()
	case 2:
		h.free()
	case 3:
		h.openOrCloseStream()
	case 4:
		h.createPage()
	case 5:
		h.mapPage()
	case 6:
		h.dropPage()
	case 7:
		h.sync()
	case 8, 9:
		h.copyIn()
	case 10, 11:
		h.copy()
	case 12:
		h.fill()
	case 13:
		h.launch()
	case 14:
		h.copyInPinned()
	case 15:
		h.copyOutPinned()
	case 16:
		h.launchGraph()
	default:
		h.read()
	}
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// use orders what s does next with c after all that was queued before.
func (h *history) use(c *cell, s driver.Stream) {
	h.t.Helper()
	if c.last != nil && c.last != s {
		if h.rng.IntN(4) == 0 {
			h.note("sync s%d", c.last.ID())
			syncAll(h.t, c.last)
		} else {
			h.note("s%d waits for s%d", s.ID(), c.last.ID())
			testkit.Must(h.t, s.WaitFor(c.last, mustMark(h.t, c.last)))
		}
	}
	c.last = s
}

func (h *history) stream() driver.Stream { return h.streams[h.rng.IntN(len(h.streams))] }

// pick chooses a place and a range of at least one byte in it.
func (h *history) pick() (pl place, at, n int, ok bool) {
	if len(h.places) == 0 {
		return place{}, 0, 0, false
	}
	pl = h.places[h.rng.IntN(len(h.places))]
	size := len(pl.cell.bytes)
	at = h.rng.IntN(size)
	n = 1 + h.rng.IntN(size-at)
	if h.rng.IntN(4) == 0 {
		at, n = 0, size
	}
	return pl, at, n, true
}

// finish reads everything once more, and gives it back.
func (h *history) finish() {
	s := h.streams[0]
	for _, pl := range h.places {
		h.use(pl.cell, s)
		wantBytes(h.t, s, pl.ptr, pl.cell.bytes)
	}
	for _, pl := range h.places {
		h.discard(pl)
	}
	if h.staged.bytes != nil {
		testkit.Must(h.t, h.pinned.FreeHost(h.staged.bytes))
	}
	for _, page := range h.pages {
		testkit.Must(h.t, h.d.VirtualMemory().Drop(page))
	}
	for _, s := range h.streams[1:] {
		testkit.Must(h.t, s.Close())
	}
}
