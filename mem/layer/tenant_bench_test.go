package layer_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// BenchmarkTenantsTrain replays recordings of training over one allocator. Each request is a tenant's: of one alone, of
// two that take turns request by request ("split"), or of two that both run the whole recording, one request of each
// after the other ("beside"). It reports how much of the memory that was allocated is wiped, and the time of the wipes
// on an H200, which fills 4.6 TB/s, as a part of the time of the recording, or of both.
func BenchmarkTenantsTrain(b *testing.B) {
	for _, recording := range []string{"resnet", "gpt2"} {
		s, err := snapshot.ReadFile("../../testdata/traces/" + recording + ".pickle.zst")
		testkit.Must(b, err)
		p, err := s.Program(0, trace.ProgramOptions{})
		testkit.Must(b, err)
		for _, spec := range []string{"paged", "caching"} {
			for name, c := range map[string]struct {
				owner  func(block uint32) int
				copies int
			}{
				"alone":  {func(uint32) int { return 0 }, 1},
				"split":  {func(block uint32) int { return int(block % 2) }, 1},
				"beside": {func(uint32) int { return 0 }, 2},
			} {
				b.Run(recording+"/"+spec+"/"+name, func(b *testing.B) {
					for b.Loop() {
						train(b, p, spec, c.owner, c.copies, recordedMicros(s))
					}
				})
			}
		}
	}
}

// recordedMicros returns the time of a recording.
func recordedMicros(s *snapshot.Snapshot) float64 {
	events := s.Traces[0].Events
	return float64(events[len(events)-1].TimeUS - events[0].TimeUS)
}

// train replays a program. The nth copy of it belongs to the nth tenant after the owner of a block.
func train(b *testing.B, p *trace.Program, spec string, owner func(uint32) int, copies int, micros float64) {
	dev := sim.New(sim.Options{Total: 140 << 30})
	defer dev.Close()
	td := layer.NewTenantDevice(dev)
	tenants := tenantsOf(b, layer.NewIsolatedQuotas(openShared(b, td, spec), td, 1<<40), 2)
	s := dev.DefaultStream()
	blocks := make([][2]mem.Block, p.Blocks)
	var allocated int64
	for _, op := range p.Ops {
		for n := range copies {
			tenant := tenants[(owner(op.Block)+n)%2]
			switch op.Kind {
			case trace.OpAlloc:
				block, err := tenant.Alloc(s, op.Size)
				testkit.Must(b, err)
				blocks[op.Block][n] = block
				allocated += block.Size
			case trace.OpFree, trace.OpComplete:
				tenant.Free(blocks[op.Block][n])
			}
		}
	}
	var wiped int64
	for _, t := range tenants {
		wiped += t.Stats().Wiped
	}
	b.ReportMetric(100*float64(wiped)/float64(allocated), "%-of-allocated")
	b.ReportMetric(float64(wiped)/(1<<30), "wiped-GiB")
	b.ReportMetric(100*float64(wiped)/4.6e6/(micros*float64(copies)), "%-of-time")
}

// BenchmarkTenant compares a tenant's warm requests with those of the allocator below, and with a Zeroer's.
func BenchmarkTenant(b *testing.B) {
	for _, size := range []int64{1 << 10, 1 << 20, 64 << 20} {
		dev := drivertest.OpenSim(b, 1<<30)
		td := layer.NewTenantDevice(dev)
		base := newCaching(b, td)
		for _, c := range []struct {
			name string
			a    mem.Allocator
		}{
			{"below", base},
			{"quota", tenantsOf(b, layer.NewQuotas(base, 1<<40), 1)[0]},
			{"isolated", tenantsOf(b, layer.NewIsolatedQuotas(base, td, 1<<40), 1)[0]},
		} {
			b.Run(c.name+"/"+mem.FormatSize(size), func(b *testing.B) {
				s := dev.DefaultStream()
				for b.Loop() {
					block, err := c.a.Alloc(s, size)
					if err != nil {
						b.Fatal(err)
					}
					c.a.Free(block)
				}
			})
		}
	}
}

// BenchmarkWipe reports the bytes a second that pass from one tenant to another, on a host device.
func BenchmarkWipe(b *testing.B) {
	benchmarkWipe(b, drivertest.OpenDevice(b, "host:total=256MiB"), 64<<20)
}

func benchmarkWipe(b *testing.B, dev driver.Device, size int64) {
	td := layer.NewTenantDevice(dev)
	tenants := tenantsOf(b, layer.NewIsolatedQuotas(newCaching(b, td), td, 1<<40), 2)
	s := dev.DefaultStream()
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		block, err := tenants[i%2].Alloc(s, size)
		if err != nil {
			b.Fatal(err)
		}
		tenants[i%2].Free(block)
		if err := s.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
