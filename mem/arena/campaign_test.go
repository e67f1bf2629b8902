package arena_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/arena"
)

var (
	ops  = flag.Int("ops", 20_000, "operations of TestCampaign and TestGPUCampaign, over all devices")
	seed = flag.Uint64("seed", 0, "of TestCampaign and TestGPUCampaign; 0: a fresh one")
)

// TestCampaign runs random histories in which blocks with and without holders, frozen ones and those of children come
// and go on several streams, while arenas compact by themselves and when told to. Contents survive everything.
func TestCampaign(t *testing.T) {
	from := testkit.SeedFlag(t, "seed", *seed)
	const size = 2 << 20
	configs := []struct {
		name string
		open func(t *testing.T) driver.Device
		cfg  arena.Config
	}{
		{"sim", openSim(sim.AtOnce), arena.Config{Size: size}},
		{"simLate", openSim(sim.AtRandom), arena.Config{Size: size, Round: 1024}},
		{"simPaged", openSim(sim.AtRandom), arena.Config{Size: size, Page: 64 << 10, Bounce: 64 << 10}},
		{"host", openHost, arena.Config{Size: size}},
		{"hostPaged", openHost, arena.Config{Size: 8 * size, Page: 2 << 20}},
	}
	for i, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			seed := from + uint64(i)
			t.Logf("seed %d (-seed %d -ops %d)", seed, from, *ops)
			campaign(t, c.open(t), c.cfg, seed, *ops/len(configs))
		})
	}
}

func openSim(c sim.Completion) func(t *testing.T) driver.Device {
	return func(t *testing.T) driver.Device {
		return closeDevice(t, sim.New(sim.Options{Total: 16 << 20, Granularity: 64 << 10, Completion: c, CallSites: true}))
	}
}

func openHost(t *testing.T) driver.Device { return drivertest.OpenDevice(t, "host:total=64MiB") }

// campaign runs a history of so many operations.
func campaign(t testing.TB, dev driver.Device, cfg arena.Config, seed uint64, n int) {
	w := newWorld(t, dev, cfg, seed)
	p, err := dev.Alloc(4096)
	w.must(err)
	w.baseLen -= 4096
	if free, _, err := dev.Available(); err == nil && w.sim == nil { // devices round
		w.baseLen = free + w.root.Stats().ReservedBytes.All.Current
	}
	scratch := [8]driver.Pointer{}
	for i := range scratch {
		scratch[i] = p + driver.Pointer(512*i)
	}
	denied := 0
	for step := range n {
		w.step(scratch, &denied)
		if step%64 == 0 {
			w.agree()
		}
		if t.Failed() {
			t.Fatalf("at operation %d", step)
		}
	}
	m := w.root.Moves()
	t.Logf("%d blocks moved in %d compactions of the root's, %d lifts, %d requests denied", w.moved, m.Compactions, w.lifts, denied)
	if n > 2000 && (w.moved == 0 || denied == 0 || m.Compactions == 0) {
		t.Error("that was no campaign")
	}
	w.finish()
	w.must(dev.Free(p))
}

// step does one random operation.
func (w *world) step(scratch [8]driver.Pointer, denied *int) {
	w.t.Helper()
	rng := w.rng
	at := rng.IntN(len(w.streams))
	s := w.streams[at]
	y := w.yards[rng.IntN(len(w.yards))]
	var b *block
	if len(w.blocks) > 0 {
		b = w.blocks[rng.IntN(len(w.blocks))]
	}
	switch op := rng.IntN(1000); {
	case op < 400:
		size := 1 + rng.Int64N(1+y.Size()>>rng.IntN(12)/3)
		b, err := w.alloc(y, s, size, rng.IntN(8) > 0)
		switch {
		case err == nil:
			b.refuses = rng.IntN(16) == 0
		case errors.Is(err, mem.ErrNoMemory):
			*denied++
			for range len(w.blocks) / 4 { // make way
				w.free(w.blocks[rng.IntN(len(w.blocks))])
			}
		default:
			w.must(err)
		}
	case op < 620:
		if b != nil {
			w.free(b)
		}
	case op < 740:
		if b != nil {
			w.fill(b, s)
		}
	case op < 820:
		if b != nil {
			w.read(b, s, scratch[at])
		}
	case op < 860:
		if b != nil {
			w.check(b, s)
			if b.refuses && rng.IntN(4) == 0 {
				b.refuses = false
			}
		}
	case op < 900:
		if err := y.Compact(s); err != nil && (y.held == 0 || !errors.Is(err, arena.ErrPinned)) {
			w.must(err)
		}
	case op < 910:
		w.must(y.EmptyCache())
	case op < 920:
		if w.root.held < 2 && rng.IntN(4) == 0 {
			w.root.held++
			w.holds = append(w.holds, w.root.Pin())
		} else {
			for len(w.holds) > 0 {
				w.holds[0].Release()
				w.holds[0].Release()
				w.holds = w.holds[1:]
				w.root.held--
			}
		}
	case op < 922:
		if err := w.freeze(y, s); err != nil && (y.held == 0 || !errors.Is(err, arena.ErrPinned)) {
			w.must(err)
		}
	case op < 930:
		if len(w.yards) > 5 {
			break
		}
		if _, err := w.child(y, 1+rng.Int64N(1+y.Size()/3)); err != nil && !errors.Is(err, mem.ErrNoMemory) {
			w.must(err)
		}
	case op < 936:
		if y != w.root {
			w.closeYard(y)
		}
	case op < 940: // a stream ends, and another begins, perhaps with its number
		if at > 0 {
			w.must(s.Close())
			w.streams[at] = w.newStream()
		}
	case w.sim == nil:
	case op < 970:
		w.sim.Hold(s.ID())
	default:
		w.sim.Resume(s.ID())
	}
}
