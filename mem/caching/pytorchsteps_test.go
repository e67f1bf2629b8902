package caching_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
)

// step carries out one step of testdata/pytorch/steps.txt, which explains the verbs.
func (p *port) step(verb string, args []string) {
	p.t.Helper()
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		p.ok(err)
		return n
	}
	switch verb {
	case "alloc":
		s := p.s
		if len(args) == 3 {
			s = p.stream(args[2])
		}
		p.allocate(args[0], p.size(args[1]), s)
	case "free", "rawfree":
		p.free(args[0])
	case "use":
		p.used[args[0]] = append(p.used[args[0]], p.stream(args[1]))
	case "same":
		p.say("%t", p.addresses[args[0]] == p.addresses[args[1]])
	case "series":
		for i := range number(1) {
			p.allocate(args[0]+strconv.Itoa(i), p.size(args[2]), p.s)
		}
	case "freeseries":
		n := 0
		for p.blocks[args[0]+strconv.Itoa(n)] != (mem.Block{}) {
			n++
		}
		for i := range n {
			if i = i * number(1) % n; !slices.Contains(args[2:], strconv.Itoa(i)) {
				p.free(args[0] + strconv.Itoa(i))
			}
		}
	case "busy":
		s := p.stream(args[0])
		p.dev.Hold(s.ID())
		p.ok(s.Fill(p.scratch+driver.Pointer(s.ID())*512, 0, 1))
	case "sync":
		p.dev.Resume(p.stream(args[0]).ID())
	case "empty_cache":
		p.emptyCache()
	case "settings":
		if _, err := p.ParseConfigure(strings.Join(args, "")); err != nil {
			p.say("refused")
		}
	case "fraction":
		f, err := strconv.ParseFloat(args[0], 64)
		p.ok(err)
		p.limit(f)
	case "cap":
		p.limit(float64(p.size(args[0])) / float64(p.total))
	case "fraction?":
		text := strconv.FormatFloat(p.MemoryFraction(), 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		p.say("%s", text)
	case "observe":
		p.OnOutOfMemory(func(*mem.OutOfMemory) { p.say("observed") })
	case "caching":
		p.Enable(args[0] == "on")
	case "raw":
		block := p.alloc(p.size(args[0]))
		p.Free(block)
	case "segments":
		p.segments(args)
	case "reset_peak":
		p.ResetPeakStats()
	case "reset_accumulated":
		p.ResetAccumulatedStats()
	case "fuzz":
		p.fuzz(uint64(number(0)), number(1))
	default:
		if !p.poolStep(verb, args) && !p.historyStep(verb, args) && !p.hostStep(verb, args) {
			p.t.Fatalf("unknown step %q", verb)
		}
	}
}

func (p *port) limit(fraction float64) {
	if err := p.SetMemoryFraction(fraction); err != nil {
		p.say("refused")
	}
}

func (p *port) poolStep(verb string, args []string) bool {
	p.t.Helper()
	switch verb {
	case "pool":
		pool := p.NewPool(caching.PoolOptions{
			NoSplit: slices.Contains(args, "no_split"), UseOnOOM: slices.Contains(args, "use_on_oom"),
		})
		p.pools[args[0]], p.ids[args[0]] = pool, pool.ID()
	case "begin":
		p.scopes[args[0]] = p.pools[args[0]].Begin(nil)
	case "end":
		p.scopes[args[0]]()
	case "close":
		p.ok(p.pools[args[0]].Close())
	case "graph":
		p.BeginAllocateToPool(p.id(args[0]), func(driver.Stream) bool { return true })
	case "endgraph":
		p.EndAllocateToPool(p.id(args[0]))
	case "release":
		p.ReleasePool(p.id(args[0]))
	case "live":
		var live []driver.Pointer
		for _, name := range args[1:] {
			live = append(live, p.addresses[name])
		}
		p.say("%t", p.CheckPoolLive(p.id(args[0]), live) == nil)
	case "checkpoint":
		state, err := p.Checkpoint(p.id(args[1]))
		p.ok(err)
		p.states[args[0]] = state
	case "restore":
		delta, err := p.Restore(p.states[args[0]])
		p.ok(err)
		for name, ptr := range p.addresses {
			if block, ok := delta.At(ptr); ok {
				p.blocks[name] = block
			}
		}
	default:
		return false
	}
	return true
}

func (p *port) historyStep(verb string, args []string) bool {
	p.t.Helper()
	switch verb {
	case "metadata":
		p.recorder.SetMetadata(args[0])
	case "record":
		o := trace.HistoryOptions{Enabled: args[0] != "off"}
		o.Context = map[string]trace.Context{
			"state": trace.ContextState, "alloc": trace.ContextAlloc, "all": trace.ContextAll,
		}[args[0]]
		for _, name := range args[1:] {
			action, ok := mem.ParseAction(name)
			if !ok {
				p.t.Fatalf("no action %q", name)
			}
			o.Skip = append(o.Skip, action)
		}
		p.recorder.RecordHistory(o)
	case "trace":
		snap, err := snapshot.Of(p.Allocator, snapshot.Live{Recorder: p.recorder})
		p.ok(err)
		for _, recorded := range snap.Traces {
			if recorded != nil { // nothing is recorded
				p.entries(recorded)
			}
		}
	default:
		return false
	}
	return true
}

func (p *port) entries(recorded *trace.Trace) {
	for _, e := range recorded.Events {
		text := fmt.Sprintf("%v %d", e.Action, e.Size)
		if e.Stack != 0 {
			text += " with a stack"
		}
		if m := recorded.Metadata[e.Metadata]; m != "" {
			text += " " + m
		}
		p.say("%s", text)
	}
}

func (p *port) hostStep(verb string, args []string) bool {
	p.t.Helper()
	switch verb {
	case "pin":
		block, err := p.host.Alloc(p.size(args[1]))
		p.ok(err)
		p.pinned[args[0]] = block
	case "unpin":
		p.host.Free(p.pinned[args[0]])
		delete(p.pinned, args[0])
	case "empty_host_cache":
		p.ok(p.host.EmptyCache())
	case "reset_host":
		p.host.ResetPeakStats()
		p.host.ResetAccumulatedStats()
	default:
		return false
	}
	return true
}

// segments lists the snapshot's segments in an order that does not depend on addresses.
func (p *port) segments(pool []string) {
	p.t.Helper()
	var lines []string
	for _, s := range p.Snapshot() {
		name := "default"
		if s.Pool != (mem.PoolID{}) {
			name = "gone"
		}
		for known, id := range p.ids {
			if id == s.Pool {
				name = known
			}
		}
		if len(pool) > 0 && pool[0] != name {
			continue
		}
		var blocks []string
		for _, b := range s.Blocks {
			text := fmt.Sprintf("%v %d", b.State, b.Size)
			if b.State != mem.Inactive {
				text += fmt.Sprintf(" of %d", b.RequestedSize)
			}
			blocks = append(blocks, text)
		}
		kind := "small"
		if s.Large {
			kind = "large"
		}
		if s.Expandable {
			kind += " expandable"
		}
		stream := slices.IndexFunc(p.streams, func(known driver.Stream) bool { return known.ID() == s.Stream })
		lines = append(lines, fmt.Sprintf("%s s%d %s %d: %s", name, stream, kind, s.TotalSize, strings.Join(blocks, ", ")))
	}
	slices.Sort(lines)
	for _, line := range lines {
		p.say("%s", line)
	}
}

// fuzz allocates, frees and empties the cache at random, as record.py does with the same numbers.
func (p *port) fuzz(x uint64, steps int) {
	p.t.Helper()
	random := func(n int64) int64 {
		x = x*6364136223846793005 + 1442695040888963407
		return int64(x>>33) % n
	}
	type sized struct {
		block mem.Block
		size  int64
	}
	var live []sized
	var total int64
	free := func() {
		i := random(int64(len(live)))
		p.Free(live[i].block)
		total -= live[i].size
		live = slices.Delete(live, int(i), int(i)+1)
	}
	for range steps {
		for total >= 100*mib {
			free()
		}
		switch what := random(21); {
		case what < 10:
			size := 2*mib + random(18*mib)
			random(1) // the name of the block
			live = append(live, sized{p.alloc(size), size})
			total += size
		case what >= 20:
			p.emptyCache()
		case len(live) > 0:
			free()
		}
	}
}

var statGroups = []string{
	"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
	"inactive_split_bytes", "requested_bytes",
}

// changed lists the statistics that changed since the previous step.
func (p *port) changed() {
	stats := p.Stats().Map()
	told := map[string]bool{}
	for _, group := range statGroups {
		for _, pool := range []string{"all", "small_pool", "large_pool"} {
			line, changed := group+"."+pool, false
			for _, metric := range []string{"current", "peak", "allocated", "freed"} {
				key := group + "." + pool + "." + metric
				told[key] = true
				line += fmt.Sprintf(" %d", stats[key])
				changed = changed || stats[key] != p.before[key]
			}
			if changed {
				p.said = append(p.said, line)
			}
		}
	}
	p.said = append(p.said, differing("", stats, p.before, func(key string) bool {
		return told[key] || key == "max_split_size"
	})...)
	host := p.host.Stats().Map()
	p.said = append(p.said, differing("host ", host, p.hostBefore, func(key string) bool {
		return strings.Contains(key, "_time") || strings.HasPrefix(key, "bucket_") // not in PyTorch 2.11
	})...)
	p.before, p.hostBefore = stats, host
}

func differing(prefix string, now, before map[string]int64, skip func(string) bool) (lines []string) {
	for key, value := range now {
		if value != before[key] && !skip(key) {
			lines = append(lines, fmt.Sprintf("%s%s %d", prefix, key, value))
		}
	}
	slices.SortFunc(lines, cmp.Compare)
	return lines
}
