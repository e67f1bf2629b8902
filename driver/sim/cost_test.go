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
)

func TestCurves(t *testing.T) {
	c := Curve{{10, 100}, {20, 200}, {40, 300}}
	for size, want := range map[int64]time.Duration{0: 100, 10: 100, 15: 150, 20: 200, 30: 250, 40: 300, 80: 500} {
		if got := c.At(size); got != want {
			t.Errorf("At(%d) is %v, want %v", size, got, want)
		}
	}
	if Curve(nil).At(5) != 0 || always(7).At(1<<50) != 7 {
		t.Error("curves of no point and of one")
	}
}

// TestH200Figures keeps the default model at what was measured.
func TestH200Figures(t *testing.T) {
	m := H200()
	pair := func(a, b Call, size int64) time.Duration { return m.Calls[a].At(size) + m.Calls[b].At(size) }
	for _, c := range []struct {
		what string
		got  time.Duration
		want time.Duration
	}{
		{"alloc and free of 2 MiB", pair(CallAlloc, CallFree, 2<<20), 55 * time.Microsecond},
		{"of 20 MiB", pair(CallAlloc, CallFree, 20<<20), 62 * time.Microsecond},
		{"of 256 MiB", pair(CallAlloc, CallFree, 256<<20), 137 * time.Microsecond},
		{"of 2 GiB", pair(CallAlloc, CallFree, 2<<30), 651 * time.Microsecond},
		{"create of 20 MiB", m.Calls[CallCreate].At(20 << 20), 7900},
		{"drop of 2 GiB", m.Calls[CallDrop].At(2 << 30), 462 * time.Microsecond},
		{"access to 512 pages", m.Access.At(2<<20) + 511*m.AccessNext, 12_659_700},
		{"unmap of 512 pages", m.Calls[CallUnmap].At(2<<20) + 511*m.UnmapNext, 7_583_800},
		{"mark", m.Calls[CallMark].At(0), 420},
		{"copy of 1 GiB", m.Calls[CallCopy].At(1<<30) / 1000 * 1000, 514 * time.Microsecond},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	for call, curve := range m.Calls {
		if len(curve) == 0 {
			t.Errorf("%v has no cost", Call(call))
		}
		for i := range curve {
			if i > 0 && (curve[i].Size <= curve[i-1].Size || curve[i].Cost < curve[i-1].Cost) {
				t.Errorf("%v: point %d is out of order", Call(call), i)
			}
		}
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
	if got, want := b.Now()-before, 3*1250+38_000+2*24_700*time.Nanosecond; got != want {
		t.Errorf("Map of three pages took %v, want %v", got, want)
	}
	before = b.Now()
	b.ok(vm.Unmap(r, 3*size))
	if got, want := b.Now()-before, 21_000+2*14_800*time.Nanosecond; got != want {
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
		"total=0":            "must not be 0",
		"total":              "total=",
		"granularity=3":      "power of two",
		"base=513":           "multiple",
		"seed=x":             "seed=x",
		"cost=free":          "h200 or none",
		"random=yes":         "takes no value",
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

func TestNewPanicsOnNonsense(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.HasPrefix(fmt.Sprint(v), "driver/sim: New: ") {
			t.Errorf("panic %v", v)
		}
	}()
	New(Options{Granularity: 3})
}
