package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
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
			checkTenants(t, tenantHistory(rng, n), p)
		}
	})
}

// TestTenantsAfterFaults is TestTenants where calls of the device fail. Operations may then fail. What holds without
// failures holds with them, and no memory is lost.
func TestTenantsAfterFaults(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, p *part) {
		for rng, n := range histories(seed, 19, *ops) {
			h := tenantHistory(rng, n)
			addFaults(rng, h)
			checkTenants(t, h, p)
		}
	})
}

// checkTenants runs a history on all allocators.
func checkTenants(t *testing.T, h []tenantOp, p *part) {
	t.Helper()
	plan := tenantProgram(h)
	ofPlan := subject{name: "planned", make: func(dev driver.Device) (mem.Allocator, error) {
		return ofPlan(t, dev, plan)
	}}
	for _, s := range append(subjects(), ofPlan) {
		run := func(h []tenantOp) error { return runTenants(s, h, p) }
		if run(h) != nil {
			h := testkit.Shrink(h, func(h []tenantOp) bool { return run(h) != nil })
			t.Errorf("%s: %v\n%+v", s.name, run(h), h)
		}
	}
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
	refuses               bool         // the block is not to be moved
	faults                []fault.Rule // by which calls of the device fail in the calls of the allocator
}

func tenantHistory(rng *rand.Rand, n int) (h []tenantOp) {
	verbs := slices.Concat(
		slices.Repeat([]tenantVerb{tenantAllocs, tenantFrees}, 8),
		[]tenantVerb{tenantCaptures, tenantCaptures, tenantLeaves, streamCloses, cacheEmpties, blocksMove},
	)
	for range n {
		h = append(h, tenantOp{
			verbs[rng.IntN(len(verbs))], rng.IntN(numTenants), rng.IntN(numStreams), rng.IntN(1 << 20),
			1 + rng.Int64N(1<<(4+rng.IntN(20))), rng.IntN(3) == 0, nil,
		})
	}
	return h
}

// addFaults makes calls of the device, or of one kind, fail in some operations: one of them, all from one on, or some,
// in one operation or in several that follow each other.
func addFaults(rng *rand.Rand, h []tenantOp) {
	kinds := []intercept.Kind{
		"", "", "", "", intercept.Fill, intercept.Copy, intercept.Mark, intercept.Reached, intercept.WaitFor, intercept.Sync,
		intercept.Alloc, intercept.Free, intercept.NewStream, intercept.CloseStream, intercept.Capturing,
		intercept.Create, intercept.Drop, intercept.Map, intercept.Unmap,
	}
	codes := []error{nil, nil, driver.ErrNoMemory, driver.ErrInvalid}
	for at := rng.IntN(4); at < len(h); at += rng.IntN(6) {
		rule := fault.Rule{Kind: kinds[rng.IntN(len(kinds))], Code: codes[rng.IntN(len(codes))], Seed: rng.Uint64()}
		n := 1
		switch rng.IntN(3) {
		case 0:
			rule.Nth, rule.Onwards = 1+rng.Int64N(6), rng.IntN(2) == 0
		case 1:
			rule.Rate, n = 0.25, 1+rng.IntN(8)
		default: // all calls
			n = 1 + rng.IntN(4)
		}
		for ; n > 0 && at < len(h); n-- {
			h[at].faults = []fault.Rule{rule}
			at++
		}
	}
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
	dev     *fault.Device
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
	simulated := sim.New(sim.Options{Total: 256 * mib, Completion: sim.AtRandom, CallSites: true})
	dev := fault.Wrap(simulated)
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
		if err := r.free(0, &tenantOp{}); err != nil {
			return err
		}
	}
	closer, _ := mem.Find[interface{ Close() error }](base)
	err = closer.Close()
	for _, s := range r.streams[1:] {
		err = errors.Join(err, s.Close())
	}
	held := simulated.Leaks()
	held.Streams = nil // a wipe in a capture may have kept one that it could not close
	if !held.Empty() {
		err = errors.Join(err, fmt.Errorf("at the end the device holds %v", held))
	}
	return errors.Join(err, errors.Join(simulated.Reports()...), dev.Close())
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
		return r.free(o.block%len(r.live), o)
	case tenantCaptures:
		return r.capture(o, s)
	case tenantLeaves:
		return errors.Join(r.tenants[o.tenant].Leave(), r.join(o.tenant))
	case streamCloses:
		return r.closeStream(o.stream)
	case cacheEmpties:
		c, _ := mem.Find[mem.Trimmer](r.base)
		_, err := r.call(o, c.EmptyCache)
		return err
	case blocksMove:
		c, _ := mem.Find[mem.Compactor](r.base)
		_, err := r.call(o, func() error { return c.Compact(s) })
		return err
	}
	return nil
}

// call makes a call of the allocator, in which calls of the device fail by the operation's rules. If that is why it
// fails, it has not succeeded, and err is nil.
func (r *tenancy) call(o *tenantOp, f func() error) (succeeded bool, err error) {
	r.dev.SetRules(r.rules(o)...)
	err = f()
	failed := r.dev.Failed() > 0
	r.dev.SetRules()
	if failed && errors.As(err, new(*driver.Error)) {
		return false, nil
	}
	return err == nil, err
}

// rules returns the operation's rules. Of the calls in which blocks may be moved, one fails: if a move fails and cannot
// be undone either, bytes are lost, as mem/arena documents.
func (r *tenancy) rules(o *tenantOp) []fault.Rule {
	if _, moves := mem.Find[mem.Compactor](r.base); !moves || o.verb == tenantFrees || len(o.faults) == 0 {
		return o.faults
	}
	rule := o.faults[0]
	return []fault.Rule{{Kind: rule.Kind, Nth: max(1, rule.Nth), Code: rule.Code}}
}

// alloc returns nil if there is no room, or calls of the device failed. A refusal of the quota is an error within the
// tenant's reservation.
func (r *tenancy) alloc(o *tenantOp, s driver.Stream) (*tenantBlock, error) {
	t := r.tenants[o.tenant]
	var b mem.Block
	succeeded, err := r.call(o, func() (err error) { b, err = t.Alloc(s, o.size); return err })
	if refusal := (*layer.QuotaError)(nil); errors.As(err, &refusal) && t.Live()+refusal.Block <= t.Reserved() {
		return nil, fmt.Errorf("refused within %d reserved bytes: %w", t.Reserved(), err)
	}
	if errors.Is(err, mem.ErrNoMemory) {
		return nil, nil
	}
	if !succeeded {
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
func (r *tenancy) free(at int, o *tenantOp) error {
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
	_, err := r.call(o, func() error { b.owner.Free(b.Block, b.used...); return nil })
	return err
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
