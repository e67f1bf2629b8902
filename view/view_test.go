package view

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// recorded returns the first recording of a file of testdata/traces.
func recorded(t *testing.T, name string) *Recording {
	t.Helper()
	s, err := snapshot.ReadFile(filepath.Join("../testdata/traces", name+".pickle.zst"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := newRecordings(s)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// traces are recordings with different properties: failures, stacks, streams, expandable segments.
var traces = []string{"gpt2.oom", "unet.stacks", "streams", "unet.expandable"}

// eachTrace runs a test for all traces.
func eachTrace(t *testing.T, test func(t *testing.T, r *Recording)) {
	for _, name := range traces {
		t.Run(name, func(t *testing.T) { test(t, recorded(t, name)) })
	}
}

// A decoded is a container as the page reads it.
type decoded struct {
	header map[string]any
	bytes  []byte
	arrays map[string]arrayPlace
}

func decode(t *testing.T, c *container) *decoded {
	t.Helper()
	b := c.encode()
	if string(b[:4]) != containerMagic || binary.LittleEndian.Uint32(b[4:]) != containerVersion {
		t.Fatalf("the container begins with %q", b[:8])
	}
	d := &decoded{bytes: b}
	text := b[containerHead : containerHead+binary.LittleEndian.Uint32(b[8:])]
	var arrays struct{ Arrays map[string]arrayPlace }
	for _, into := range []any{&d.header, &arrays} {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	d.arrays = arrays.Arrays
	return d
}

// array returns an array as numbers.
func (d *decoded) array(t *testing.T, name string) []float64 {
	t.Helper()
	p, ok := d.arrays[name]
	if !ok {
		t.Fatalf("the container has no array %q", name)
	}
	if p.Offset%8 != 0 {
		t.Fatalf("array %q is at %d, which is no multiple of 8", name, p.Offset)
	}
	list := make([]float64, p.Length)
	for i := range list {
		switch b := d.bytes[p.Offset:]; p.Type {
		case "u8":
			list[i] = float64(b[i])
		case "u16":
			list[i] = float64(binary.LittleEndian.Uint16(b[2*i:]))
		case "u32":
			list[i] = float64(binary.LittleEndian.Uint32(b[4*i:]))
		case "u64":
			list[i] = float64(binary.LittleEndian.Uint64(b[8*i:]))
		case "f64":
			list[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		default:
			t.Fatalf("array %q has the type %q", name, p.Type)
		}
	}
	return list
}

// windows are parts of a recording, at several zooms.
func windows(r *Recording) []window {
	n := float64(r.events())
	peak, _ := r.peak()
	all := []window{
		{from: -1, to: n, width: 1600, height: 800},
		{from: -1, to: n, width: 7, height: 10},
		{from: n / 3, to: n / 2, width: 900, height: 300},
		{from: float64(peak) - 20, to: float64(peak) + 20, width: 1600, height: 4000},
		{from: 0, to: float64(r.duration()) + 1, width: 1000, height: 500, byTime: true},
		{from: float64(r.duration()) / 2, to: float64(r.duration()) / 1.9, width: 640, height: 500, byTime: true},
	}
	for i := range all {
		all[i].max = maxRects
	}
	return all
}

func TestBandsOfAColumnAddUpToTheActiveMemory(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		for _, w := range windows(r) {
			d := decode(t, r.bandsPicture(&w))
			event, requested := d.array(t, "event"), d.array(t, "requested")
			x0, x1, y, h := d.array(t, "x0"), d.array(t, "x1"), d.array(t, "y"), d.array(t, "h")
			sum, top := make([]float64, len(event)), make([]float64, len(event))
			least := d.header["min_bytes"].(float64)
			for i := range x0 {
				for c := int(x0[i]); c < int(x1[i]); c++ {
					sum[c] += h[i]
					top[c] = max(top[c], y[i]+h[i])
				}
			}
			for c := range event {
				active := float64(r.h.ActiveBytes(eventNumber(event[c])))
				if requested[c] != active {
					t.Fatalf("column %d of %+v: requested %v, want %v", c, w, requested[c], active)
				}
				// The heights of merged bands may be those of an earlier column, up to half a row off.
				if math.Abs(top[c]-active) > least || least == 1 && sum[c] != active {
					t.Fatalf("column %d of %+v: bands up to %v with a sum of %v, want %v", c, w, top[c], sum[c], active)
				}
			}
		}
	})
}

// eventNumber returns an event of an array of u32.
func eventNumber(x float64) int { return int(int32(uint32(x))) }

func TestPicturesShowThePeakAtEveryZoom(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		peak := int64(0)
		for event := -1; event < r.events(); event++ {
			peak = max(peak, r.h.ActiveBytes(event))
		}
		for _, width := range []int{1, 2, 3, 50, 4096} {
			w := window{from: -1, to: float64(r.events()), width: width, height: 100, max: maxRects}
			d := decode(t, r.bandsPicture(&w))
			if got := d.header["peak"].(float64); got != float64(peak) {
				t.Errorf("width %d: peak %v, want %d", width, got, peak)
			}
		}
	})
}

func TestZoomShowsEachBlockExactly(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		for i := 0; i < r.lives.Len(); i += r.lives.Len()/50 + 1 {
			b := r.h.Block(i)
			if b.Size == 0 || b.Start >= b.End {
				continue
			}
			below := int64(0)
			for k := range i {
				if r.lives.ActiveAt(k, int(b.Start)) {
					below += r.lives.Size(k)
				}
			}
			w := window{
				from: float64(b.Start), to: float64(b.Start) + 1, width: 100, height: 1000, max: maxRects,
				low: below, high: below + b.Size,
			}
			d := decode(t, r.bandsPicture(&w))
			block, y, h := d.array(t, "block"), d.array(t, "y"), d.array(t, "h")
			if len(block) != 1 || block[0] != float64(i) || y[0] != float64(below) || h[0] != float64(b.Size) {
				t.Fatalf("block %d: got the blocks %v at %v of %v bytes, want it at %d of %d", i, block, y, h, below, b.Size)
			}
			got := r.pickBand(int(b.Start), below+b.Size-1, nil)
			if got.Block == nil || got.Block.ID != i {
				t.Errorf("block %d: picked %+v", i, got)
			}
		}
	})
}

func TestPicturesHaveNoMoreRectanglesThanAllowed(t *testing.T) {
	r := recorded(t, "gpt2.oom")
	for _, most := range []int{minRects, 20_000} {
		w := window{from: -1, to: float64(r.events()), width: 4096, height: 4096, max: most}
		if n := len(decode(t, r.bandsPicture(&w)).array(t, "x0")); n > most || n == 0 {
			t.Errorf("%d bands, want 1 to %d", n, most)
		}
		w = window{from: -1, to: float64(r.events()), width: 4096, height: 4096, max: most}
		if n := len(decode(t, r.addressesPicture(&w)).array(t, "x0")); n > most || n == 0 {
			t.Errorf("%d rectangles of addresses, want 1 to %d", n, most)
		}
	}
}

func TestAddressesLieInSegments(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		w := window{from: -1, to: float64(r.events()), width: 500, height: 4096, max: maxRects}
		d := decode(t, r.addressesPicture(&w))
		event := d.array(t, "event")
		sx0, sx1, sy, sh := d.array(t, "sx0"), d.array(t, "sx1"), d.array(t, "sy"), d.array(t, "sh")
		reserved := make([]float64, len(event))
		for i := range sx0 {
			for c := int(sx0[i]); c < int(sx1[i]); c++ {
				reserved[c] += sh[i]
			}
		}
		for c := range event {
			want, _ := reservedIn(r.levels, eventNumber(event[c]), eventNumber(event[c]))
			if reserved[c] != float64(want) {
				t.Fatalf("column %d: segments of %v bytes, want %d", c, reserved[c], want)
			}
		}
		x0, x1, y, h := d.array(t, "x0"), d.array(t, "x1"), d.array(t, "y"), d.array(t, "h")
		block := d.array(t, "block")
		for i := range x0 {
			if block[i] == missing {
				continue
			}
			found := false
			for k := range sx0 {
				found = found || sx0[k] <= x0[i] && x1[i] <= sx1[k] && sy[k] <= y[i] && y[i]+h[i] <= sy[k]+sh[k]
			}
			if !found && !r.segments[0].Expandable {
				t.Fatalf("block %v lies in no segment", block[i])
			}
		}
	})
}

func TestFinalStateIsThatOfTheFile(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		d := decode(t, r.statePicture(r.events()-1))
		own := r.snapshot.SegmentsOf(r.h.Trace.Device)
		var total, active float64
		for i := range own {
			total += float64(own[i].TotalSize)
			active += float64(own[i].RequestedSize)
		}
		if got := d.header["reserved"].(float64); got != total {
			t.Errorf("reserved %v, want %v", got, total)
		}
		sum := 0.0
		for _, size := range d.array(t, "size") {
			sum += size
		}
		if sum != active || d.header["requested"].(float64) != active {
			t.Errorf("blocks of %v bytes, want %v", sum, active)
		}
		address, first := d.array(t, "seg_address"), d.array(t, "seg_first")
		blocks := d.array(t, "address")
		for i := range address {
			if n := int(first[i]); n < len(blocks) && blocks[n] < address[i] || n > 0 && blocks[n-1] >= address[i] {
				t.Errorf("segment %d begins with the block %d", i, n)
			}
		}
	})
}

func TestHoldersAndFlamesAddUp(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		for event := -1; event < r.events(); event += r.events()/7 + 1 {
			want := r.h.ActiveBytes(event)
			for _, k := range []holders.Key{holders.ByLine, holders.ByCategory, holders.ByStream} {
				x := r.holdersAt(event, []holders.Key{k}, 3, nil)
				sum := x.Rest.Bytes
				for _, one := range x.Holders {
					sum += one.Bytes
				}
				if sum != want || x.Bytes != want {
					t.Errorf("event %d: holders of %d bytes, want %d", event, sum, want)
				}
			}
			if got := r.flameAt(event, nil).Bytes; got != want {
				t.Errorf("event %d: flames of %d bytes, want %d", event, got, want)
			}
		}
	})
}

func TestEndTreeFindsTheActiveBlocks(t *testing.T) {
	eachTrace(t, func(t *testing.T, r *Recording) {
		for event := -1; event < r.events(); event += r.events()/40 + 1 {
			var want []uint32
			for i := range r.lives.Len() {
				if r.lives.ActiveAt(i, event) {
					want = append(want, uint32(i))
				}
			}
			if got := r.ends.active(r.lives, event, nil); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("event %d: %v, want %v", event, got, want)
			}
		}
	})
}

func TestFilteredBandsHaveTheMatchingBlocksOnly(t *testing.T) {
	r := recorded(t, "unet.stacks")
	match := r.search("conv")
	peak, _ := r.peak()
	want := int64(0)
	for i := range r.lives.Len() {
		if r.lives.ActiveAt(i, peak) && match(uint32(i)) {
			want += r.lives.Size(i)
		}
	}
	w := window{from: float64(peak), to: float64(peak) + 1, width: 1, height: 4096, max: maxRects, match: match}
	sum := 0.0
	for _, h := range decode(t, r.bandsPicture(&w)).array(t, "h") {
		sum += h
	}
	if want == 0 || sum != float64(want) {
		t.Errorf("bands of %v bytes, want %d", sum, want)
	}
}

func TestHolesArePinnedByTheBlocksOfTheirSegment(t *testing.T) {
	r := recorded(t, "unet.stacks")
	end := r.events() - 1
	for _, g := range r.segmentsAt(end) {
		y, _ := yOf(r.spans, g.Ptr)
		for at := y; at < y+g.Size; {
			switch got := r.pickAddress(end, at); {
			case got.Block != nil:
				at = got.Block.Y + got.Block.Size
			case got.Hole != nil:
				h := got.Hole
				if h.Y > at || h.Y+h.Size <= at || h.Size <= 0 {
					t.Fatalf("the hole at %d is %d to %d", at, h.Y, h.Y+h.Size)
				}
				at = h.Y + h.Size
			default:
				t.Fatalf("nothing at %d in segment %#x", at, g.Ptr)
			}
		}
	}
}

func TestContradictoryRecordingsHavePictures(t *testing.T) {
	const huge, last = 1 << 62, ^driver.Pointer(0)
	e := func(a mem.Action, ptr driver.Pointer, size int64) trace.Event {
		return trace.Event{Action: a, Ptr: ptr, Size: size}
	}
	events := []trace.Event{
		e(mem.ActionSegmentFree, 100, 50),
		e(mem.ActionSegmentAlloc, last-10, huge),
		e(mem.ActionAlloc, 100, huge),
		e(mem.ActionAlloc, 100, huge),
		e(mem.ActionAlloc, last, huge),
		e(mem.ActionAlloc, 5, huge),
		e(mem.ActionFreeCompleted, 77, 1),
		e(mem.ActionSegmentUnmap, 0, huge),
		e(mem.ActionOOM, 0, huge),
		e(mem.ActionFreeRequested, 5, 0),
	}
	s := &snapshot.Snapshot{Traces: []*trace.Trace{{Events: events, Streams: []uint64{0}, Metadata: []string{""}}}}
	all, err := newRecordings(s)
	if err != nil {
		t.Fatal(err)
	}
	r := all[0]
	infoOf(r)
	for _, w := range windows(r) {
		addresses := w
		r.bandsPicture(&w).encode()
		r.addressesPicture(&addresses).encode()
	}
	for event := -1; event < r.events(); event++ {
		r.statePicture(event).encode()
		r.pickBand(event, 1<<61, nil)
		r.pickAddress(event, 1<<61)
		r.holdersAt(event, []holders.Key{holders.ByLine}, 10, nil)
	}
}

// A long recording is shown before its steps and categories are known, and then again with them.
func TestStepsAndCategoriesComeLater(t *testing.T) {
	f, err := os.Open(generated(t, settleEvents+10_000))
	testkit.Must(t, err)
	defer f.Close()
	snap, err := snapshot.ReadCompact(f, snapshot.Limits{})
	testkit.Must(t, err)
	s := New(Options{})
	x := s.Open("generated", "")
	recordings, err := newRecordings(snap)
	testkit.Must(t, err)
	x.publish(recordings, nil)
	early := s.overview().Recordings[0]
	if !early.Settling || early.State != stateReady || len(early.Steps.List) > 0 {
		t.Errorf("at first: settling %v, %s, %d steps", early.Settling, early.State, len(early.Steps.List))
	}
	r := recordings[0]
	match, err := r.filter(url.Values{"category": {"temporaries"}})
	testkit.Must(t, err) // this waits for the categories
	temporaries := len(r.allBlocks(match))
	x.settle(recordings)
	late := s.overview().Recordings[0]
	if late.Settling || late.Generation == early.Generation || !r.settled.Load() {
		t.Errorf("then: settling %v, generation %d after %d", late.Settling, late.Generation, early.Generation)
	}
	all, err := holders.All(snap)
	testkit.Must(t, err)
	want := 0
	for _, b := range all[0].Blocks() {
		if b.Category == holders.Temporaries {
			want++
		}
	}
	testkit.Equal(t, "blocks of the category", temporaries, want)
	x.publish(nil, []*Recording{}) // of a snapshot that another has replaced
	testkit.Equal(t, "generation", s.overview().Recordings[0].Generation, late.Generation)
}
