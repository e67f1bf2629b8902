package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestCurves(t *testing.T) {
	c := Curve{{10, 100}, {20, 200}, {40, 300}}
	for size, want := range map[int64]time.Duration{0: 100, 10: 100, 15: 150, 20: 200, 30: 250, 40: 300, 80: 500} {
		if got := c.At(size); got != want {
			t.Errorf("At(%d) is %v, want %v", size, got, want)
		}
	}
	for _, p := range (Curve{{0, 0}, {49, 1}, {98, 2}}) { // 1/49 times 49 is less than 1 in float64
		if got := (Curve{{0, 0}, {49, 1}, {98, 2}}).At(p.Size); got != p.Cost {
			t.Errorf("At(%d) is %v, want %v", p.Size, got, p.Cost)
		}
	}
	if Curve(nil).At(5) != 0 || (Curve{{0, 7}}).At(1<<50) != 7 {
		t.Error("curves of no point and of one")
	}
	if got := (Curve{{0, 0}, {1, time.Minute}}).At(1 << 60); got != time.Hour {
		t.Errorf("a cost beyond bounds is %v, want an hour", got)
	}
}

// TestH200IsWhole checks that the default model has every part of a real device's model, without checking its figures.
func TestH200IsWhole(t *testing.T) {
	m := H200()
	for call, curve := range m.Calls {
		if len(curve) == 0 || curve[0].Cost == 0 {
			t.Errorf("%v has no cost", Call(call))
		}
	}
	if m.MapNext == 0 || m.UnmapNext == 0 || m.About == "" {
		t.Errorf("%v for a further page mapped, %v unmapped, about %q", m.MapNext, m.UnmapNext, m.About)
	}
	m.Calls[CallAlloc][0].Cost = time.Hour // a copy
	if again := H200(); again.Calls[CallAlloc][0].Cost == time.Hour {
		t.Error("changing one model changed another")
	}
}

func TestTimeAndCallsAddUp(t *testing.T) {
	b := newBench(t, Options{}, 2)
	vm, size := b.VirtualMemory(), b.Info().Granularity
	r, err := vm.Reserve(4 * size)
	b.ok(err)
	page, err := vm.Create(size)
	b.ok(err)
	before := b.Now()
	b.ok(vm.Map(r, page, page, page))
	if got, want := b.Now()-before, b.model.Calls[CallMap].At(size)+2*b.model.MapNext; got != want || got == 0 {
		t.Errorf("Map of three pages took %v, want %v", got, want)
	}
	before = b.Now()
	b.ok(vm.Unmap(r, 3*size))
	if got, want := b.Now()-before, b.model.Calls[CallUnmap].At(size)+2*b.model.UnmapNext; got != want || got == 0 {
		t.Errorf("Unmap of three pages took %v, want %v", got, want)
	}
	if _, err := b.Alloc(1 << 50); !errors.Is(err, driver.ErrNoMemory) {
		t.Error(err)
	}
	calls := b.Calls()
	if calls[CallAlloc].Count != 2 || calls[CallMap].Count != 1 || calls[CallNewStream].Count != 1 {
		t.Errorf("%+v", calls)
	}
	if sum := calls.Total(); sum.Time != b.Now() || sum.Count != 7 {
		t.Errorf("the total is %+v, the time %v", sum, b.Now())
	}
}

// scribble makes a random history of calls, most of them sensible, and returns everything that can be seen of it.
func scribble(t *testing.T, opts Options, seed uint64) string {
	d := New(opts)
	rng := rand.New(rand.NewPCG(seed, 4))
	var log strings.Builder
	s := []driver.Stream{d.DefaultStream()}
	var blocks []driver.Range
	var marks []driver.Mark
	note := func(err error) {
		if err != nil {
			fmt.Fprintln(&log, err)
		}
	}
	for range 300 {
		one := s[rng.IntN(len(s))]
		switch k := rng.IntN(10); {
		case k == 0 && len(s) < 8:
			n, err := d.NewStream(driver.StreamOptions{})
			note(err)
			s = append(s, n)
		case k <= 2 || len(blocks) == 0:
			size := 1 + rng.Int64N(1<<14)
			p, err := d.Alloc(size)
			if note(err); err == nil {
				blocks = append(blocks, driver.Range{Ptr: p, Size: size})
			}
		case k == 3:
			i := rng.IntN(len(blocks))
			note(d.Free(blocks[i].Ptr))
			blocks = slices.Delete(blocks, i, i+1)
		case k <= 6:
			r := blocks[rng.IntN(len(blocks))]
			note(one.Fill(r.Ptr, byte(k), r.Size))
		case k == 7:
			m, err := one.Mark()
			note(err)
			marks = append(marks, m)
		case len(marks) > 0:
			m := marks[rng.IntN(len(marks))]
			other := s[slices.IndexFunc(s, func(s driver.Stream) bool { return s.ID() == m.Stream })]
			if k == 8 {
				note(one.WaitFor(other, m))
				continue
			}
			ok, err := other.Reached(m)
			fmt.Fprintln(&log, m, ok, err)
		}
	}
	note(s[0].Sync(context.Background()))
	for _, r := range d.Reports() {
		fmt.Fprintln(&log, r)
	}
	fmt.Fprintln(&log, d.Hash(), d.Now(), d.Leaks(), d.Calls())
	note(d.Close())
	return log.String()
}

func TestSameSeedAndCallsSameHistory(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(150) {
		opts := Options{Total: 1 << 18, Seed: seed, Completion: Completion(seed % 3)}
		first := scribble(t, opts, seed)
		if again := scribble(t, opts, seed); again != first {
			t.Fatalf("seed %d: two histories:\n%s\nand\n%s", seed, first, again)
		}
		if other, ok := seen[first]; ok {
			t.Errorf("seeds %d and %d have the same history", seed, other)
		}
		seen[first] = seed
	}
}

func TestOpenArguments(t *testing.T) {
	d, err := driver.Open("sim:total=1GiB, granularity=64k,alignment=256,base=0x10000000,seed=7," +
		"cost=none,random,reportonly")
	if err != nil {
		t.Fatal(err)
	}
	o := d.(*Device).opts
	if o.Total != 1<<30 || o.Granularity != 64<<10 || o.Alignment != 256 || o.Base != 0x10000000 || o.Seed != 7 ||
		o.Completion != AtRandom || !o.ReportOnly || o.Unchecked {
		t.Errorf("%+v", o)
	}
	if p, err := d.Alloc(1 << 20); err != nil || p != 0x10000000 || d.(*Device).Now() != 0 {
		t.Errorf("%#x, %v, %v", p, err, d.(*Device).Now())
	}
	d, err = driver.Open("sim:held,unchecked,novm")
	if o := d.(*Device).opts; err != nil || o.Completion != OnDemand || !o.Unchecked || d.VirtualMemory() != nil {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"total=1GB1":         "total=1GB1",
		"total=0":            "want more than 0",
		"total":              "total=",
		"granularity=3":      "power of two",
		"base=513":           "multiple",
		"seed=x":             "seed=x",
		"cost=free":          "want h200, none or a file",
		"pinned=0":           "want more than 0",
		"random=yes":         "takes no value",
		"ordinal=-1":         "from 0",
		"ordinal=x":          "from 0",
		"speed=1":            "unknown setting",
		"total=1GiB,,held":   "unknown setting",
		"total=100000000TiB": "total",
	} {
		_, err := driver.Open("sim:" + args)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", args, err, want)
		}
	}
}

// Several simulated devices are told apart by their numbers, as the host's are.
func TestDefect24_SimulatedDevicesHaveOrdinals(t *testing.T) {
	for spec, want := range map[string]int{"sim": 0, "sim:ordinal=1": 1, "sim:ordinal= 3,total=1GiB": 3} {
		d, err := driver.Open(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Info().Ordinal; got != want {
			t.Errorf("%s: ordinal %d, want %d", spec, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewPanicsOnNonsense(t *testing.T) {
	for what, o := range map[string]Options{
		"granularity 3:":               {Granularity: 3},
		"granularity 2199023255552:":   {Granularity: 1 << 41},
		"alignment 24:":                {Alignment: 24},
		"alignment 2199023255552:":     {Alignment: 1 << 41},
		"alignment -512:":              {Alignment: -512},
		"total -1:":                    {Total: -1},
		"total 36028797018963969:":     {Total: MaxTotal + 1},
		"base 0x7f0000000200:":         {Base: 0x7f0000000200},
		"base 0x4000000000200000:":     {Base: 1<<62 + 2<<20},
		"pinned -1:":                   {Pinned: -1},
		"ordinal -1:":                  {Ordinal: -1},
		"completion 3: want AtOnce, A": {Completion: OnDemand + 1},
	} {
		testkit.WantPanic(t, what, "driver/sim: New: "+what, func() { New(o) })
	}
	for what, o := range map[string]Options{
		"the largest memory":  {Total: MaxTotal},
		"the largest granule": {Granularity: 1 << 40, Base: 1 << 40},
		"the highest base":    {Base: 1 << 62},
		"every alignment":     {Alignment: 1},
	} {
		if err := New(o).Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
