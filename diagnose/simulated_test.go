package diagnose_test

import (
	"fmt"
	"testing"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

const mib = 1 << 20

// A program allocates on a simulated GPU, and is recorded.
type program struct {
	t    *testing.T
	dev  *sim.Device
	pool *caching.Allocator
	a    mem.Allocator
	full bool // a request failed

	recorder *trace.Recorder
}

// alloc allocates a number of MiB. After the first request that fails, it does nothing.
func (p *program) alloc(size int64) (b mem.Block) {
	if p.full {
		return b
	}
	b, err := p.a.Alloc(p.dev.DefaultStream(), size*mib)
	p.full = err != nil
	return b
}

func (p *program) free(b mem.Block) {
	if b != (mem.Block{}) {
		p.a.Free(b)
	}
}

// recorded records a program on a GPU of 8000 MiB.
func recorded(t *testing.T, cfg caching.Config, run func(p *program)) *snapshot.Snapshot {
	t.Helper()
	return recordedOn(t, 8000*mib, cfg, run)
}

// recordedOn records a program on a GPU of a size in bytes.
func recordedOn(t *testing.T, total int64, cfg caching.Config, run func(p *program)) *snapshot.Snapshot {
	t.Helper()
	dev := sim.New(sim.Options{Unchecked: true, Total: total})
	c, err := caching.New(dev, cfg)
	testkit.Must(t, err)
	r := trace.NewRecorder(trace.RecorderOptions{Context: trace.ContextAll})
	p := &program{t: t, dev: dev, pool: c, a: r.Attach(c), recorder: r}
	run(p)
	s, err := snapshot.Of(p.a, snapshot.Live{Recorder: r})
	testkit.Must(t, err)
	s.Limits = nil // PyTorch's files lack them
	testkit.Must(t, dev.Close())
	return s
}

// steps is a loop that allocates and frees in each step, and keeps some of it.
func steps(p *program, n int, keep func(step int) (mib int64)) {
	weights := p.alloc(64)
	for step := range n {
		input := p.alloc(20)
		var activations []mem.Block
		for layer := range 10 {
			activations = append(activations, p.alloc(int64(12+layer)))
		}
		if size := keep(step); size > 0 {
			p.alloc(size)
		}
		gradients := p.alloc(64)
		for _, b := range activations {
			p.free(b)
		}
		p.free(gradients)
		p.free(input)
	}
	p.free(weights)
}

// Loops that look like leaks and are none, leaks without annotations, and causes in other forms than those of the
// recordings.
func TestVerdictsOfSimulatedPrograms(t *testing.T) {
	limited := caching.Default()
	limited.Limit = 2000 * mib
	for _, c := range []struct {
		name, want string
		cfg        caching.Config
		run        func(p *program)
	}{
		{"a list that fills the GPU", "[too_much]", caching.Default(), func(p *program) {
			for !p.full {
				p.alloc(300)
			}
		}},
		{"a list that fills the limit", "[limit]", limited, func(p *program) {
			for !p.full {
				p.alloc(150)
			}
		}},
		{"one request above the limit", "[limit]", limited, func(p *program) { p.alloc(3000) }},
		{"layers whose outputs are kept", "[too_much]", caching.Default(), func(p *program) {
			for !p.full {
				product := p.alloc(200)
				p.alloc(200)
				p.free(product)
			}
		}},
		{"steps that keep something", "[leak]", caching.Default(), func(p *program) {
			steps(p, 30, func(int) int64 { return 8 })
		}},
		{"steps that keep something until the limit", "[leak]", limited, func(p *program) {
			steps(p, 300, func(int) int64 { return 32 })
		}},
		{"steps that keep nothing", "[none]", caching.Default(), func(p *program) {
			steps(p, 30, func(int) int64 { return 0 })
		}},
		{"steps of which the first keep something", "[none]", caching.Default(), func(p *program) {
			steps(p, 30, func(step int) int64 { return max(0, int64(8*(4-step))) })
		}},
		{"a queue of bounded length", "[none]", caching.Default(), func(p *program) {
			var queue []mem.Block
			steps(p, 40, func(int) int64 {
				if queue = append(queue, p.alloc(16)); len(queue) > 5 {
					p.free(queue[0])
					queue = queue[1:]
				}
				return 0
			})
		}},
		{"a process beside this one", "[other_processes]", caching.Default(), func(p *program) {
			_, err := p.dev.Alloc(5000 * mib)
			testkit.Must(p.t, err)
			for range 20 {
				p.alloc(300)
			}
		}},
		{"holes on a full GPU", "[fragmentation]", caching.Default(), func(p *program) {
			var long []mem.Block
			for range 9 {
				long = append(long, p.alloc(800))
			}
			for _, b := range long {
				p.free(b)
			}
			for range 9 {
				p.alloc(410)
			}
			p.alloc(900)
		}},
		{"holes under a limit that the reserved memory is far from", "[fragmentation]", limited, func(p *program) {
			var long []mem.Block
			for range 8 {
				long = append(long, p.alloc(200))
			}
			for _, b := range long {
				p.free(b)
			}
			for range 8 {
				p.alloc(101)
			}
			p.alloc(500)
		}},
		{"pools that hold most of the memory", "[private_pools]", caching.Default(), func(p *program) {
			for n := range uint64(4) {
				id := mem.PoolID{n + 1, 0}
				p.pool.BeginAllocateToPool(id, func(driver.Stream) bool { return true })
				p.alloc(1)
				var freed []mem.Block
				for range 4 {
					freed = append(freed, p.alloc(100))
				}
				for _, b := range freed {
					p.free(b)
				}
				p.pool.EndAllocateToPool(id)
			}
			p.alloc(50)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := explain(t, recorded(t, c.cfg, c.run), diagnose.Options{Memory: 8000 * mib})
			if got := fmt.Sprint(causes(r)); got != c.want {
				t.Errorf("verdict %s, want %s: %q\n%+v\n%+v\n%+v", got, c.want, r.Answer, r.Verdicts, r.Barrier, r.Growth)
			}
			checkReport(t, r)
		})
	}
}

// Without the memory of the GPU, other processes are blamed if the process could have the size of no GPU that has its
// workspace of cuBLAS.
func TestSizesOfGPUs(t *testing.T) {
	const older, hopper = 8_519_680, 32 * mib
	for _, c := range []struct {
		total, beside int64 // MiB
		workspace     int64
		want          string
	}{
		{81_150, 500, hopper, "[too_much]"},
		{81_150, 40_000, hopper, "[other_processes]"}, // what remains is an A100's
		{143_156, 700, hopper, "[too_much]"},
		{40_440, 600, older, "[too_much]"},
		{24_210, 600, older, "[too_much]"},
		{24_210, 6_500, older, "[other_processes]"},
	} {
		s := recordedOn(t, c.total*mib, caching.Default(), func(p *program) {
			_, err := p.dev.Alloc(c.beside * mib)
			testkit.Must(t, err)
			_, err = p.a.Alloc(p.dev.DefaultStream(), c.workspace)
			testkit.Must(t, err)
			for !p.full {
				p.alloc(c.total / 20)
			}
		})
		r := explain(t, s, diagnose.Options{})
		if got := fmt.Sprint(causes(r)); got != c.want || r.Verdicts[0].Confidence != diagnose.Likely {
			t.Errorf("%+v: %s, %+v", c, got, r.Verdicts)
		}
	}
}
