package layer_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
)

// TestAdaptorScripts runs testdata/*.txt, a file for each adaptor; testdata/README has the commands.
func TestAdaptorScripts(t *testing.T) {
	golden.Run(t, "testdata/*.txt", func(t *testing.T, c *golden.Case) string {
		p := &play{T: t, dev: sim.New(sim.Options{Base: playBase, Total: 256 << 20, Alignment: 256}), blocks: map[string]mem.Block{}}
		defer p.dev.Close()
		other := drivertest.NewStream(t, p.dev)
		p.streams = map[string]driver.Stream{"s0": p.dev.DefaultStream(), "s1": other}
		p.base = direct.New(p.dev, direct.Config{})
		p.a = p.base
		for line, f := range c.Commands() {
			if !p.command(f) {
				t.Fatalf("%s:%d: unknown command: %q", c.Path, line, f)
			}
		}
		for name := range p.blocks {
			p.call(name, func() error { p.a.Free(p.blocks[name]); return nil })
		}
		for _, r := range p.dev.Reports() {
			fmt.Fprintf(&p.out, "%v\n", r)
		}
		return p.out.String()
	})
}

const playBase = 1 << 24 // addresses are printed without

// A play is a script that is run.
type play struct {
	*testing.T
	dev     *sim.Device
	streams map[string]driver.Stream
	base, a mem.Allocator
	tenants *layer.Quotas
	blocks  map[string]mem.Block
	log     bytes.Buffer
	out     strings.Builder
}

func (p *play) say(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// call returns the text of an error or a panic.
func (p *play) call(name string, f func() error) bool {
	var err error
	if text := testkit.PanicText(func() { err = f() }); text != "" {
		p.say("%s: panic: %s", name, text)
		return false
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n  ") // an out-of-memory error goes on with figures
		p.say("%s: %s", name, strings.ReplaceAll(first, "\n", "\n  "))
	}
	return err == nil
}

func (p *play) size(text string) int64 {
	n, err := bytesize.Parse(text)
	testkit.Must(p.T, err)
	return n
}

// layer puts an adaptor on the stack.
func (p *play) layer(f []string) {
	arg := func(i int) int64 { return p.size(f[i]) }
	under := func(name string) mem.Allocator { // a second allocator, with a limit
		return layer.NewLimiter(p.base, p.size(name))
	}
	switch f[0] {
	case "limit":
		p.a = layer.NewLimiter(p.a, arg(1))
	case "align":
		p.a = layer.NewAligner(p.a, arg(1), layer.AlignerOptions{Above: arg(2)})
	case "zero":
		p.a = layer.NewZeroer(p.a)
	case "guard":
		p.a = layer.NewGuard(p.a, layer.GuardOptions{Zone: arg(1)})
	case "log":
		p.a = layer.NewLogger(p.a, &p.log, nil)
	case "retry":
		p.a = layer.NewRetry(p.a, layer.RetryOptions{Steps: []layer.Step{func(_ driver.Stream, size int64) error {
			p.say("spill for %d", size)
			victim, ok := p.blocks["victim"]
			if !ok {
				return errors.New("nothing to spill")
			}
			delete(p.blocks, "victim")
			p.a.Free(victim)
			return nil
		}, func(driver.Stream, int64) error {
			p.say("last resort")
			return nil
		}}})
	case "fallback":
		p.a = layer.NewFallback(p.a, under(f[1]))
	case "binning":
		p.a = layer.NewBinning(p.a, layer.Bin{Size: arg(1), Allocator: layer.NewSlabs(p.a, arg(1), arg(2))})
	case "slab":
		p.a = layer.NewSlabs(p.a, arg(1), arg(2))
	case "prefetch":
		p.a = layer.NewPrefetcher(p.a, func(s driver.Stream, at driver.Pointer, size int64) error {
			p.say("fetch 0x%x+%d on s%d", uint64(at-playBase), size, s.ID())
			return nil
		})
	case "measure":
		p.a = layer.NewCounter(p.a)
	case "tracked":
		p.a = layer.NewSizeTracker(p.a, layer.SizeTrackerOptions{Empty: len(f) > 1})
	case "quotas":
		p.tenants = layer.NewQuotas(p.a, arg(1))
	default:
		p.Fatalf("no layer %q", f[0])
	}
}

func (p *play) alloc(name string, f func() (mem.Block, error)) {
	p.call(name, func() error {
		b, err := f()
		if err == nil {
			p.blocks[name] = b
			p.say("%s = 0x%x+%d", name, uint64(b.Ptr-playBase), b.Size)
		}
		return err
	})
}

func (p *play) command(f []string) bool {
	name := ""
	if len(f) > 1 {
		name = f[1]
	}
	b := p.blocks[name]
	switch f[0] {
	case "caching":
		a, err := caching.New(p.dev, caching.Default())
		testkit.Must(p.T, err)
		p.base, p.a = a, a
	case "layer":
		p.layer(f[1:])
	case "tenant":
		t, err := p.tenants.Tenant(name, p.size(f[2]), p.size(f[3]))
		if p.call(name, func() error { return err }) {
			p.a = t
		}
	case "alloc":
		p.alloc(name, func() (mem.Block, error) { return p.a.Alloc(p.streams[f[3]], p.size(f[2])) })
	case "free":
		var used []driver.Stream
		for _, s := range f[2:] {
			used = append(used, p.streams[s])
		}
		p.call(name, func() error { p.a.Free(b, used...); return nil })
	case "raw": // block size stream alignment
		p.alloc(name, func() (mem.Block, error) {
			return p.a.(*layer.SizeTracker).AllocRaw(p.streams[f[3]], p.size(f[4]), p.size(f[2]), mem.AllocOptions{})
		})
	case "with": // block size stream wishes
		o := mem.AllocOptions{NoRetry: slices.Contains(f, "noretry"), Logged: slices.Contains(f, "logged")}
		p.alloc(name, func() (mem.Block, error) { return mem.AllocWith(p.a, p.streams[f[3]], p.size(f[2]), o) })
	case "sizes":
		t := p.a.(*layer.SizeTracker)
		p.call(name, func() error {
			p.say("%s: asked for %d, has %d, number %d", name, t.RequestedSize(b), t.AllocatedSize(b), t.AllocationID(b))
			return nil
		})
	case "tracked":
		p.say("%+v", p.a.(*layer.SizeTracker).Usage())
	case "retire":
		p.call("retire", func() error {
			p.a.(*layer.SizeTracker).Retire(func(s mem.Usage) { p.say("the last block is back: %+v", s) })
			return nil
		})
	case "forget": // so that the end does not free it again
		delete(p.blocks, name)
	case "fill": // block offset length byte
		at, err := strconv.ParseInt(f[2], 10, 64)
		testkit.Must(p.T, err)
		v, err := strconv.ParseUint(f[4], 16, 8)
		testkit.Must(p.T, err)
		testkit.Must(p.T, p.dev.DefaultStream().Fill(b.Ptr+driver.Pointer(at), byte(v), p.size(f[3])))
	case "peek": // block offset length
		got := make([]byte, p.size(f[3]))
		testkit.Must(p.T, p.dev.DefaultStream().CopyOut(got, b.Ptr+driver.Pointer(p.size(f[2]))))
		p.say("%s holds %x", name, got)
	case "check":
		g, _ := mem.Find[*layer.Guard](p.a)
		if p.call("check", g.Check) {
			p.say("all sound")
		}
	case "push", "pop", "counts":
		m, _ := mem.Find[*layer.Counter](p.a)
		p.call(f[0], func() error {
			p.say("%s %+v", f[0], map[string]func() mem.Usage{"push": m.Push, "pop": m.Pop, "counts": m.Usage}[f[0]]())
			return nil
		})
	case "log":
		p.out.Write(p.log.Bytes())
		p.log.Reset()
	case "trim":
		t, _ := mem.Find[mem.Trimmer](p.a)
		p.call("trim", t.EmptyCache)
	case "below":
		s := p.base.(mem.StatsReporter).Stats()
		p.say("below: %d blocks, %d bytes", s.Allocation.All.Current, s.AllocatedBytes.All.Current)
	default:
		return false
	}
	return true
}
