package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/trace"
)

// Tenants share an allocator under random histories: they allocate and free on several streams and in captures, streams
// are closed while their blocks are live, caches are emptied, blocks are moved, and tenants leave and join. Each fills
// its blocks with a byte of its own. No tenant gets another's byte, live blocks keep theirs, and quotas hold.
func TestTenants(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for rng, n := range histories(seed, 18, *ops) {
			h := tenantHistory(rng, n)
			plan := tenantProgram(h)
			ofPlan := subject{name: "planned", make: func(dev driver.Device) (mem.Allocator, error) { return ofPlan(t, dev, plan) }}
			for _, s := range append(subjects(), ofPlan) {
				run := func(h []tenantOp) error { return runTenants(s, h, p) }
				if run(h) != nil {
					h := testkit.Shrink(h, func(h []tenantOp) bool { return run(h) != nil })
					t.Errorf("%s: %v\n%+v", s.name, run(h), h)
				}
			}
		}
	})
}

type tenantVerb string

const (
	tenantAllocs   tenantVerb = "alloc"
	tenantFrees    tenantVerb = "free"
	tenantCaptures tenantVerb = "alloc in a capture"
	tenantLeaves   tenantVerb = "leave"
	streamCloses   tenantVerb = "close stream"
	cacheEmpties   tenantVerb = "empty cache"
	blocksMove     tenantVerb = "compact"
)

// A tenantOp is an operation that is possible in every state: its numbers are taken modulo what there is.
type tenantOp struct {
	verb                  tenantVerb
	tenant, stream, block int
	size                  int64
	refuses               bool // the block is not to be moved
}

func tenantHistory(rng *rand.Rand, n int) (h []tenantOp) {
	verbs := slices.Concat(
		slices.Repeat([]tenantVerb{tenantAllocs, tenantFrees}, 8),
		[]tenantVerb{tenantCaptures, tenantCaptures, tenantLeaves, streamCloses, cacheEmpties, blocksMove},
	)
	for range n {
		h = append(h, tenantOp{
			verbs[rng.IntN(len(verbs))], rng.IntN(numTenants), rng.IntN(numStreams), rng.IntN(1 << 20),
			1 + rng.Int64N(1<<(4+rng.IntN(20))), rng.IntN(3) == 0,
		})
	}
	return h
}

// tenantProgram is the program of a history in which no request is refused. A plan of it serves the requests until the
// first refusal, and departs from the history in other ways too.
func tenantProgram(h []tenantOp) *trace.Program {
	p := &trace.Program{Streams: numStreams, Pools: []mem.PoolID{{}}}
	var live []uint32
	for _, o := range h {
		switch {
		case o.verb == tenantAllocs:
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: uint32(p.Blocks), Size: o.size, Stream: uint32(o.stream)})
			live = append(live, uint32(p.Blocks))
			p.Blocks++
		case o.verb == tenantFrees && len(live) > 0:
			at := o.block % len(live)
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: live[at]})
			live = slices.Delete(live, at, at+1)
		}
	}
	return p
}

const (
	numTenants  = 3
	tenantTotal = 48 * mib // of all tenants
)

// A tenancy is a history that runs.
type tenancy struct {
	dev     *sim.Device
	base    mem.Allocator
	quotas  *layer.Quotas
	tenants [numTenants]member
	joined  int
	streams []driver.Stream
	live    []*tenantBlock
	buffer  []byte // what is read of a block at a time
}

// A member is a tenant and the byte that it writes.
type member struct {
	*layer.Tenant
	canary byte
}

// A tenantBlock is a live block, and its holder.
type tenantBlock struct {
	mem.Block
	owner   member
	s       driver.Stream // of its last work
	used    []driver.Stream
	refuses bool
	mover   driver.Stream // that s is still to wait for
}

func (b *tenantBlock) BeginMove() ([]driver.Stream, bool) { return b.used, !b.refuses }

func (b *tenantBlock) EndMove(to mem.Block, s driver.Stream) { b.Block, b.mover = to, s }

func runTenants(s subject, h []tenantOp, p *part) (err error) {
	dev := sim.New(sim.Options{Total: 256 * mib, Completion: sim.AtRandom, CallSites: true})
	td := layer.NewTenantDevice(dev)
	base, err := s.make(td)
	if err != nil {
		return err
	}
	r := &tenancy{
		dev: dev, base: base, quotas: layer.NewIsolatedQuotas(base, td, tenantTotal),
		streams: []driver.Stream{dev.DefaultStream()}, buffer: make([]byte, 256<<10),
	}
	for at := range numTenants {
		if err := r.join(at); err != nil {
			return err
		}
	}
	for len(r.streams) < numStreams {
		s, err := dev.NewStream(driver.StreamOptions{})
		if err != nil {
			return err
		}
		r.streams = append(r.streams, s)
	}
	for i := range h {
		if !r.possible(&h[i]) {
			continue
		}
		p.done.Add(1)
		if err := errors.Join(r.do(&h[i]), r.settle(), r.checkQuotas()); err != nil {
			return fmt.Errorf("operation %d, %+v: %w", i+1, h[i], err)
		}
	}
	for len(r.live) > 0 {
		if err := r.free(0); err != nil {
			return err
		}
	}
	closer, _ := mem.Find[interface{ Close() error }](base)
	return errors.Join(closer.Close(), errors.Join(dev.Reports()...), dev.Close())
}

// join makes a new tenant in the place of one that has left. Each has another reservation and limit.
func (r *tenancy) join(at int) (err error) {
	r.joined++
	reserved := int64(r.joined%4) * mib
	r.tenants[at].canary = byte(1 + r.joined%255)
	r.tenants[at].Tenant, err = r.quotas.Tenant(fmt.Sprint("tenant ", r.joined), reserved, reserved+int64(8+r.joined%3*16)*mib)
	return err
}

// possible reports whether an operation does something.
func (r *tenancy) possible(o *tenantOp) bool {
	switch o.verb {
	case tenantFrees:
		return len(r.live) > 0
	case tenantLeaves:
		return r.tenants[o.tenant].Live() == 0
	case tenantCaptures, streamCloses:
		return r.streams[o.stream] != r.dev.DefaultStream()
	case cacheEmpties:
		_, ok := mem.Find[mem.Trimmer](r.base)
		return ok
	case blocksMove:
		_, ok := mem.Find[mem.Compactor](r.base)
		return ok
	}
	return true
}

func (r *tenancy) do(o *tenantOp) error {
	s := r.streams[o.stream]
	switch o.verb {
	case tenantAllocs:
		b, err := r.alloc(o, s)
		if b == nil {
			return err
		}
		return r.accept(b)
	case tenantFrees:
		return r.free(o.block % len(r.live))
	case tenantCaptures:
		return r.capture(o, s)
	case tenantLeaves:
		return errors.Join(r.tenants[o.tenant].Leave(), r.join(o.tenant))
	case streamCloses:
		return r.closeStream(o.stream)
	case cacheEmpties:
		c, _ := mem.Find[mem.Trimmer](r.base)
		return c.EmptyCache()
	case blocksMove:
		c, _ := mem.Find[mem.Compactor](r.base)
		return c.Compact(s)
	}
	return nil
}

// alloc returns nil if there is no room. A refusal of the quota is an error within the tenant's reservation.
func (r *tenancy) alloc(o *tenantOp, s driver.Stream) (*tenantBlock, error) {
	t := r.tenants[o.tenant]
	b, err := t.Alloc(s, o.size)
	if refusal := (*layer.QuotaError)(nil); errors.As(err, &refusal) && t.Live()+refusal.Block <= t.Reserved() {
		return nil, fmt.Errorf("refused within %d reserved bytes: %w", t.Reserved(), err)
	}
	if errors.Is(err, mem.ErrNoMemory) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &tenantBlock{Block: b, owner: t, s: s, refuses: o.refuses}, nil
}

// accept checks the contents of a new block, fills it, and lets it be moved.
func (r *tenancy) accept(b *tenantBlock) error {
	if err := r.read(b, b.owner.canary, 0); err != nil {
		return fmt.Errorf("a new block: %w", err)
	}
	mem.Movable(b.owner, b.Block, b)
	r.live = append(r.live, b)
	return b.s.Fill(b.Ptr, b.owner.canary, b.Size)
}

// read checks that every byte of a block is one of two.
func (r *tenancy) read(b *tenantBlock, one, other byte) error {
	for at := int64(0); at < b.Size; at += int64(len(r.buffer)) {
		got := r.buffer[:min(int64(len(r.buffer)), b.Size-at)]
		if err := b.s.CopyOut(got, b.Ptr+driver.Pointer(at)); err != nil {
			return err
		}
		n := bytes.Count(got, []byte{one})
		if other != one {
			n += bytes.Count(got, []byte{other})
		}
		if n < len(got) {
			i := slices.IndexFunc(got, func(x byte) bool { return x != one && x != other })
			return fmt.Errorf("byte %d of %d of a block of %s is %#x", at+int64(i), b.Size, b.owner.Name(), got[i])
		}
	}
	return nil
}

// capture allocates two blocks while a stream captures. A graph would wipe memory of other tenants too late.
func (r *tenancy) capture(o *tenantOp, s driver.Stream) error {
	if err := r.dev.Graphs().Begin(s); err != nil {
		return err
	}
	var got []*tenantBlock
	var failed error
	for range 2 {
		b, err := r.alloc(o, s)
		if b != nil {
			got = append(got, b)
		}
		if !errors.Is(err, driver.ErrCapturing) {
			failed = errors.Join(failed, err)
		}
	}
	g, err := r.dev.Graphs().End(s)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	if n := g.Nodes(); n != 0 {
		return fmt.Errorf("the graph has %d pieces of work", n)
	}
	for _, b := range got {
		err = errors.Join(err, r.accept(b))
	}
	return errors.Join(err, g.Close())
}

// free frees a block, which must still be full of its tenant's bytes. Sometimes another stream writes there last.
func (r *tenancy) free(at int) error {
	b := r.live[at]
	r.live = slices.Delete(r.live, at, at+1)
	b.refuses = true
	if err := r.read(b, b.owner.canary, b.owner.canary); err != nil {
		return fmt.Errorf("a live block: %w", err)
	}
	if u := r.streams[at%len(r.streams)]; u != b.s {
		m, err := b.s.Mark()
		if err = errors.Join(err, u.WaitFor(b.s, m), u.Fill(b.Ptr, b.owner.canary, b.Size)); err != nil {
			return err
		}
		b.used = append(b.used, u)
	}
	b.owner.Free(b.Block, b.used...)
	return nil
}

// closeStream puts a new stream in the place of another. The blocks of that one are live, and used on the default
// stream from now on.
func (r *tenancy) closeStream(at int) (err error) {
	was := r.streams[at]
	if err := was.Close(); err != nil {
		return err
	}
	for _, b := range r.live {
		if b.s == was {
			b.s = r.dev.DefaultStream()
			b.used = append(b.used, b.s)
		}
	}
	r.streams[at], err = r.dev.NewStream(driver.StreamOptions{})
	return err
}

// settle lets the streams of moved blocks wait for the moves.
func (r *tenancy) settle() (err error) {
	for _, b := range r.live {
		if b.mover != nil && b.mover != b.s {
			m, failed := b.mover.Mark()
			err = errors.Join(err, failed, b.s.WaitFor(b.mover, m))
		}
		b.mover = nil
	}
	return err
}

// checkQuotas compares what the tenants count with the live blocks and their limits.
func (r *tenancy) checkQuotas() error {
	var sum int64
	for _, t := range r.tenants {
		var live int64
		for _, b := range r.live {
			if b.owner == t {
				live += b.Size
			}
		}
		stats := t.Stats()
		if stats.Live != live || live > t.Limit() || stats.Peak < live || stats.Wiped > 0 != (stats.Wipes > 0) {
			return fmt.Errorf("%s has %d live bytes, and says %+v", t.Name(), live, stats)
		}
		sum += max(live, t.Reserved())
	}
	if sum > tenantTotal {
		return fmt.Errorf("%d bytes are allocated or reserved, of %d", sum, int64(tenantTotal))
	}
	return nil
}
