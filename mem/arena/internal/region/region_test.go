package region

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// noKernels is a device that runs none.
type noKernels struct{ driver.Device }

func (noKernels) Kernels() driver.Kernels { return nil }

func fill(rng *rand.Rand, b []byte) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
}

// slideModel does moves in the bytes of a model.
func slideModel(model []byte, base driver.Pointer, moves []Move) {
	for _, m := range moves {
		copy(model[m.To-base:], model[m.From-base:m.From-base+driver.Pointer(m.Size)])
	}
}

// randomMoves is n runs, or fewer, within size bytes: of random sizes, with holes between them, some of which stay.
func randomMoves(rng *rand.Rand, base driver.Pointer, size int64, n int) []Move {
	mean := max(1, size/Grain/int64(n)/2)
	var moves []Move
	to, from := int64(0), int64(0) // in grains
	for len(moves) < n {
		from += rng.Int64N(2 * mean)
		if rng.IntN(4) == 0 { // something stays in between
			to += rng.Int64N(from - to + 1)
		}
		run := 1 + rng.Int64N(2*mean)
		if from+run > size/Grain {
			break
		}
		if to < from {
			moves = append(moves, Move{base + driver.Pointer(to*Grain), base + driver.Pointer(from*Grain), run * Grain})
			to += run
		} else {
			to = from + run
		}
		from += run
	}
	return moves
}

// compaction is n runs of about so many grains each, with holes of one to sixteen grains between them, brought
// together.
func compaction(rng *rand.Rand, base driver.Pointer, n int, grains int64) []Move {
	var moves []Move
	to, from := int64(0), int64(0)
	for range n {
		from += 1 + rng.Int64N(min(16, grains))
		run := 1 + rng.Int64N(2*grains-1)
		moves = append(moves, Move{base + driver.Pointer(to*Grain), base + driver.Pointer(from*Grain), run * Grain})
		to, from = to+run, from+run
	}
	return moves
}

// pagedMoves returns runs that shift by whole pages, most of them longer than one page.
func pagedMoves(rng *rand.Rand, base driver.Pointer, size, page int64) []Move {
	var moves []Move
	to, from := Grain*rng.Int64N(page/Grain), int64(0)
	for {
		shift := page * (1 + rng.Int64N(4))
		from = max(from, to+shift)
		from += (shift - (from-to)%shift) % shift // so that from - to is a multiple of shift
		run := Grain * (1 + rng.Int64N(5*page/Grain))
		if from+run > size {
			return moves
		}
		moves = append(moves, Move{base + driver.Pointer(to), base + driver.Pointer(from), run})
		to, from = to+run, from+run
		if rng.IntN(2) == 0 {
			skip := Grain * rng.Int64N(page/Grain)
			to, from = to+skip, from+skip
		}
	}
}

// checkMoved compares what is in a region with what was there before moves, of which the first n were done: what moved
// is at its new place, what did not at its old one, and what no move names as it was.
func checkMoved(t *testing.T, base driver.Pointer, before, got []byte, moves []Move, n int) {
	t.Helper()
	want, known := slices.Clone(before), make([]bool, len(before)/Grain)
	for i := range known {
		known[i] = true
	}
	set := func(p driver.Pointer, size int64, to bool) {
		for i := int64(p-base) / Grain; size > 0; i, size = i+1, size-Grain {
			known[i] = to
		}
	}
	for i, m := range moves {
		set(m.To, m.Size, false)
		if i < n {
			set(m.From, m.Size, false)
		}
	}
	slideModel(want, base, moves[:n])
	for i, m := range moves {
		if i < n {
			set(m.To, m.Size, true)
		} else {
			set(m.From, m.Size, true)
		}
	}
	for i := range known {
		if at := i * Grain; known[i] && !bytes.Equal(got[at:at+Grain], want[at:at+Grain]) {
			t.Fatalf("%d of %d moves done: the bytes at %d are not what they should be", n, len(moves), at)
		}
	}
}

// A place is a device and the ways of moving on it that a test is about.
type place struct {
	name      string
	open      func(t testing.TB) driver.Device
	page      int64
	remapFrom int64
}

const (
	testPage = 16 << 10
	never    = 1 << 62
)

func places() []place {
	hosts := func(wrap func(driver.Device) driver.Device) func(testing.TB) driver.Device {
		return func(t testing.TB) driver.Device {
			dev, err := host.Open(host.Options{Total: 1 << 30, Granularity: testPage})
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, dev.Close()) })
			return wrap(dev)
		}
	}
	sims := func(wrap func(driver.Device) driver.Device) func(testing.TB) driver.Device {
		return func(t testing.TB) driver.Device {
			dev := sim.New(sim.Options{Total: 1 << 30, Granularity: testPage, Completion: sim.AtRandom})
			t.Cleanup(func() {
				for _, report := range dev.Reports() {
					t.Error(report)
				}
				testkit.Must(t, dev.Close())
			})
			return wrap(dev)
		}
	}
	plain := func(d driver.Device) driver.Device { return d }
	none := func(d driver.Device) driver.Device { return noKernels{d} }
	code := func(d driver.Device) driver.Device { return newCompiled(d) }
	return []place{
		{"host/go kernels", hosts(plain), 0, never},
		{"host/copies", hosts(none), 0, never},
		{"host/compiled", hosts(code), 0, never},
		{"host/compiled, pages", hosts(code), testPage, never},
		{"host/remapped", hosts(code), testPage, 0},
		{"host/remapped, copies", hosts(none), 2 * testPage, 0},
		{"sim/go kernels", sims(plain), 0, never},
		{"sim/copies", sims(none), 0, never},
		{"sim/copies, pages", sims(none), testPage, never},
		{"sim/compiled", sims(code), 0, never},
		{"sim/remapped", sims(plain), testPage, 0},
		{"sim/remapped, copies", sims(none), testPage, 0},
	}
}

// region opens a region of which all has memory.
func (p place) region(t testing.TB, dev driver.Device, size, bounce int64) *Region {
	t.Helper()
	r, err := Open(dev, Options{Size: size, Page: p.page, Bounce: bounce})
	testkit.Must(t, err)
	r.remapFrom = p.remapFrom
	testkit.Must(t, r.Extend(r.Base()+driver.Pointer(r.Size())))
	return r
}

func available(t testing.TB, dev driver.Device) int64 {
	t.Helper()
	free, _, err := dev.Available()
	testkit.Must(t, err)
	return free
}

// TestMoves moves runs by every way there is, and compares every byte.
func TestMoves(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			rng := testkit.Rand(t)
			dev := p.open(t)
			free := available(t, dev)
			const size = 1 << 20
			r := p.region(t, dev, size, 128<<10)
			s := drivertest.NewStream(t, dev)
			var lists [][]Move
			for _, shift := range []int64{ // around chunks, windows, pages and the bounce area
				512, 32<<10 - 512, 32 << 10, 64 << 10, 64<<10 + 512, 128<<10 - 512, 128 << 10, 256<<10 + 512, 600 << 10,
			} {
				lists = append(lists, []Move{{r.Base(), r.Base() + driver.Pointer(shift), size - shift}})
			}
			for _, runs := range []int{1, 3, 40, 500} {
				lists = append(lists, randomMoves(rng, r.Base(), size, runs))
			}
			lists = append(lists, compaction(rng, r.Base(), 200, 4), nil)
			for range 10 {
				lists = append(lists, pagedMoves(rng, r.Base(), size, testPage))
			}
			before, got := make([]byte, size), make([]byte, size)
			for _, moves := range lists {
				fill(rng, before)
				testkit.Must(t, s.CopyIn(r.Base(), before))
				n, err := r.Move(s, moves)
				testkit.Must(t, err)
				testkit.Must(t, s.CopyOut(got, r.Base()))
				checkMoved(t, r.Base(), before, got, moves, len(moves))
				if n != len(moves) || r.Reserved() != size || r.Size() != size {
					t.Fatalf("%d of %d moves done, %d of %d bytes reserved", n, len(moves), r.Reserved(), r.Size())
				}
			}
			testkit.Must(t, s.Close())
			testkit.Must(t, r.Close())
			if now := available(t, dev); now != free {
				t.Errorf("%d bytes available after Close, %d before", now, free)
			}
		})
	}
}

// counted counts the copies on a stream.
type counted struct {
	driver.Stream
	copies int
}

func (c *counted) Copy(dst, src driver.Pointer, n int64) error {
	c.copies++
	return c.Stream.Copy(dst, src, n)
}

// A long run that moves a short way takes few copies, through the bounce area: not one for each length of the way.
func TestShortWaysTakeFewCopies(t *testing.T) {
	const size, bounce = 4 << 20, 128 << 10
	for _, shift := range []int64{512, 64 << 10} {
		dev := noKernels{drivertest.OpenSim(t, 16<<20)}
		r := place{}.region(t, dev, size, bounce)
		s := &counted{Stream: dev.DefaultStream()}
		_, err := r.Move(s, []Move{{r.Base(), r.Base() + driver.Pointer(shift), size - shift}})
		testkit.Must(t, err)
		if want := 2 * size / bounce; s.copies != want {
			t.Errorf("%d copies to move %d bytes by %d, want %d", s.copies, size-shift, shift, want)
		}
		testkit.Must(t, r.Close())
	}
}

// TestFullDevice moves a long run by every way there is while the device has nothing left beside the region.
func TestFullDevice(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			rng := testkit.Rand(t)
			dev := p.open(t)
			const size, shift = 10 << 20, 64 << 10
			r := p.region(t, dev, size, 128<<10)
			before, got := make([]byte, size), make([]byte, size)
			fill(rng, before)
			s := drivertest.NewStream(t, dev)
			testkit.Must(t, s.CopyIn(r.Base(), before))
			rest := make([]driver.Pointer, 0, 1)
			for free := available(t, dev); free > 0; free = available(t, dev) {
				q := drivertest.Alloc(t, dev, free)
				rest = append(rest, q)
			}
			moves := []Move{{r.Base(), r.Base() + shift, size - shift}}
			n, err := r.Move(s, moves)
			testkit.Must(t, err)
			testkit.Must(t, s.CopyOut(got, r.Base()))
			checkMoved(t, r.Base(), before, got, moves, n)
			for _, q := range rest {
				testkit.Must(t, dev.Free(q))
			}
			testkit.Must(t, r.Close())
		})
	}
}

// TestManyRuns moves ten thousand runs: on the compiled kernel's model in several launches, since the region is small.
func TestManyRuns(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			rng := testkit.Rand(t)
			dev := p.open(t)
			const size, runs = 4 << 20, 10_000
			r := p.region(t, dev, size+runs*Grain*2, 128<<10)
			if r.kernel != nil {
				r.kernel.rows = 900
			}
			before, got := make([]byte, r.Size()), make([]byte, r.Size())
			fill(rng, before)
			moves := randomMoves(rng, r.Base(), r.Size(), runs+runs/4)
			if len(moves) > runs {
				moves = moves[:runs]
			}
			s := drivertest.NewStream(t, dev)
			testkit.Must(t, s.CopyIn(r.Base(), before))
			n, err := r.Move(s, moves)
			testkit.Must(t, err)
			testkit.Must(t, s.CopyOut(got, r.Base()))
			checkMoved(t, r.Base(), before, got, moves, len(moves))
			if n != len(moves) || n < runs/2 {
				t.Errorf("%d of %d moves done", n, len(moves))
			}
			testkit.Must(t, r.Close())
		})
	}
}

// TestParts moves 20,000 runs by the model of the compiled kernel, in parts, each longer than the one before. An invalid
// move in a later part is found, too.
func TestParts(t *testing.T) {
	dev, err := host.Open(host.Options{Total: 1 << 30})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, dev.Close()) }()
	rng := testkit.Rand(t)
	for _, c := range []struct {
		rows int // maximum of a launch
		want []uint64
	}{
		{20_000, []uint64{4096, 8192, 7712}},
		{6000, []uint64{4096, 6000, 6000, 3904}},
	} {
		var parts []uint64
		r := place{}.region(t, compiled{dev, rng, &parts}, 20_000*2*Grain, 0)
		r.kernel.rows = min(r.kernel.rows, c.rows)
		var moves []Move
		before, got := make([]byte, r.Size()), make([]byte, r.Size())
		fill(rng, before)
		for at := range driver.Pointer(20_000) {
			moves = append(moves, Move{r.Base() + at*Grain, r.Base() + (2*at+1)*Grain, Grain})
		}
		s := dev.DefaultStream()
		testkit.Must(t, s.CopyIn(r.Base(), before))
		_, err := r.Move(s, moves)
		testkit.Must(t, err)
		testkit.Must(t, s.CopyOut(got, r.Base()))
		checkMoved(t, r.Base(), before, got, moves, len(moves))
		if !slices.Equal(parts, c.want) {
			t.Errorf("launches of %d rows, want %d", parts, c.want)
		}
		moves[4096].To -= Grain // where the last of the first part goes
		testkit.Contains(t, testkit.Panic(t, func() { _, _ = r.Move(s, moves) }), "region: move 4096 of 20000")
		testkit.Must(t, r.Close())
	}
}

// TestMovesInOrder uses a region's areas on one stream after another, which wait for each other, and closes one of
// them.
func TestMovesInOrder(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			rng := testkit.Rand(t)
			dev := p.open(t)
			const size = 2 << 20
			r := p.region(t, dev, size, 64<<10)
			before, got := make([]byte, size), make([]byte, size)
			fill(rng, before)
			streams := []driver.Stream{drivertest.NewStream(t, dev), drivertest.NewStream(t, dev), drivertest.NewStream(t, dev)}
			testkit.Must(t, streams[0].CopyIn(r.Base(), before[:size/2]))
			testkit.Must(t, streams[1].CopyIn(r.Base()+size/2, before[size/2:]))
			// The halves belong to two independent programs.
			low := []Move{{r.Base(), r.Base() + 512, size/2 - 512}}
			high := []Move{{r.Base() + size/2, r.Base() + size/2 + 1024, size/2 - 1024}}
			_, err := r.Move(streams[0], low)
			testkit.Must(t, err)
			_, err = r.Move(streams[1], high)
			testkit.Must(t, err)
			testkit.Must(t, streams[1].CopyOut(got[size/2:], r.Base()+size/2))
			testkit.Must(t, streams[0].CopyOut(got[:size/2], r.Base()))
			checkMoved(t, r.Base(), before, got, append(low, high...), 2)
			testkit.Must(t, streams[1].Close())
			_, err = r.Move(streams[2], nil)
			testkit.Must(t, err)
			testkit.Must(t, streams[2].CopyIn(r.Base(), before))
			_, err = r.Move(streams[2], low)
			testkit.Must(t, err)
			testkit.Must(t, streams[2].CopyOut(got, r.Base()))
			checkMoved(t, r.Base(), before, got, low, 1)
			testkit.Must(t, r.Close())
		})
	}
}

// TestExtendTrim follows the memory behind a region with pages, and one without.
func TestExtendTrim(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			dev := p.open(t)
			const size = 8*testPage - 512
			r, err := Open(dev, Options{Size: size, Page: p.page})
			testkit.Must(t, err)
			if want := roundUp(size, max(p.page, Grain)); r.Size() != want {
				t.Errorf("Size is %d, want %d", r.Size(), want)
			}
			whole := r.Base() + driver.Pointer(r.Size())
			for _, step := range []struct {
				do   func(driver.Pointer) error
				end  int64
				want int64 // bytes with pages, before they are rounded up to one
			}{
				{r.Extend, 0, 0},
				{r.Extend, 1, 1},
				{r.Extend, 2*testPage + 1, 2*testPage + 1},
				{r.Extend, testPage, 2*testPage + 1},
				{r.Trim, 5 * testPage, 2*testPage + 1},
				{r.Extend, 6 * testPage, 6 * testPage},
				{r.Trim, 3*testPage + 1, 3*testPage + 1},
				{r.Extend, r.Size(), r.Size()},
				{r.Trim, 1, 1},
				{r.Trim, 0, 0},
				{r.Extend, r.Size(), r.Size()},
			} {
				free := available(t, dev) + r.Reserved()
				testkit.Must(t, step.do(r.Base()+driver.Pointer(step.end)))
				want := r.Size()
				if p.page > 0 {
					want = roundUp(step.want, p.page)
				}
				if r.Reserved() != want || available(t, dev)+r.Reserved() != free {
					t.Fatalf("end %d: %d bytes reserved, want %d; %d available", step.end, r.Reserved(), want, available(t, dev))
				}
			}
			s := drivertest.NewStream(t, dev)
			testkit.Must(t, s.Fill(r.Base(), 1, r.Size())) // there is memory
			testkit.Must(t, s.Sync(context.Background()))
			testkit.Contains(t, testkit.Panic(t, func() { _ = r.Extend(whole + 1) }), "region: ", "outside")
			testkit.Contains(t, testkit.Panic(t, func() { _ = r.Trim(r.Base() - 1) }), "region: ", "outside")
			testkit.Must(t, r.Close())
			testkit.Must(t, r.Close())
		})
	}
}

// TestMisuse lists the calls that panic, and the options that Open refuses.
func TestMisuse(t *testing.T) {
	dev := sim.New(sim.Options{Total: 1 << 20, Granularity: testPage})
	r, err := Open(dev, Options{Size: 64 << 10})
	testkit.Must(t, err)
	k, err := Open(newCompiled(dev), Options{Size: 64 << 10})
	testkit.Must(t, err)
	s := drivertest.NewStream(t, dev)
	b := r.Base()
	for name, moves := range map[string][]Move{
		"up":                     {{b + 512, b, 512}},
		"nowhere":                {{b, b, 512}},
		"nothing":                {{b, b + 512, 0}},
		"not in grains":          {{b, b + 512, 100}},
		"from between grains":    {{b, b + 600, 512}},
		"before the start":       {{b - 512, b, 512}},
		"behind the end":         {{b, b + 512, 64 << 10}},
		"sources overlap":        {{b, b + 1024, 1024}, {b + 1024, b + 1536, 512}},
		"destinations overlap":   {{b, b + 1024, 1024}, {b + 512, b + 2048, 512}},
		"descending":             {{b + 1024, b + 2048, 512}, {b, b + 512, 512}},
		"huge":                   {{b, b + 512, 1<<63 - 512}},
		"far behind the end":     {{b, b + 1<<62, 512}},
		"to where another moved": {{b, b + 4096, 4096}, {b + 512, b + 8192, 512}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Contains(t, testkit.Panic(t, func() { _, _ = r.Move(s, moves) }), "region: ", "move")
			for i := range moves {
				moves[i].To += k.Base() - b
				moves[i].From += k.Base() - b
			}
			testkit.Contains(t, testkit.Panic(t, func() { _, _ = k.Move(s, moves) }), "region: ", "move")
		})
	}
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = Open(dev, Options{}) }), "region: ", "Open")
	testkit.Contains(t, testkit.Panic(t, func() { _, _ = Open(dev, Options{Size: 1, Page: -1}) }), "region: ", "Open")
	if _, err := Open(dev, Options{Size: 1, Page: 512}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("pages smaller than the granularity: %v, want ErrInvalid", err)
	}
	if _, err := Open(dev, Options{Size: 2 << 20}); !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("more than there is: %v, want ErrNoMemory", err)
	}
	none := sim.New(sim.Options{NoVirtualMemory: true})
	if _, err := Open(none, Options{Size: 1, Page: 2 << 20}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("pages where there are none: %v, want ErrUnsupported", err)
	}
	paged, err := Open(dev, Options{Size: 2 << 20, Page: testPage})
	testkit.Must(t, err)
	if err := paged.Extend(paged.Base() + 2<<20); !errors.Is(err, driver.ErrNoMemory) || paged.Reserved() != 0 {
		t.Errorf("Extend beyond what there is: %v, %d bytes reserved; want ErrNoMemory and none", err, paged.Reserved())
	}
	testkit.Must(t, paged.Close())
}
