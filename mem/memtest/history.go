package memtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A history is a list of operations. Every subset of it is valid: an operation on a block that is not live does
// nothing.
type history []op

// An op is one operation. The streams that Free names, and all waits, follow from the operations before.
type op struct {
	kind   opKind
	block  int
	stream int
	size   int64
}

type opKind uint8

const (
	opAlloc    opKind = iota // block of size on stream
	opFree                   // block
	opWrite                  // block on stream
	opCheck                  // block on stream
	opJoin                   // block: its own stream waits for the others
	opSync                   // stream
	opSyncAll                // and look at the evidence
	opEmpty                  // the cache
	opHold                   // stream
	opResume                 // stream
	opSnapshot               // and statistics; resets peaks
	opMovable                // block
	opRefuse                 // block: its holder says no from now on, or yes again
	opCompact                // on stream
)

// text writes the operation as a line of a script. users are the streams that Free named.
func (o op) text(users []int) string {
	switch o.kind {
	case opAlloc:
		return fmt.Sprintf("alloc b%d %d on=s%d", o.block, o.size, o.stream)
	case opFree:
		var used strings.Builder
		for i, u := range users {
			fmt.Fprintf(&used, "%ss%d", []string{" used=", ","}[min(i, 1)], u)
		}
		return fmt.Sprintf("free b%d%s", o.block, &used)
	case opWrite:
		return fmt.Sprintf("write b%d on=s%d", o.block, o.stream)
	case opCheck:
		return fmt.Sprintf("check b%d on=s%d", o.block, o.stream)
	case opJoin:
		return fmt.Sprintf("join b%d", o.block)
	case opSync:
		return fmt.Sprintf("sync s%d", o.stream)
	case opSyncAll:
		return "sync"
	case opEmpty:
		return "empty_cache"
	case opHold:
		return fmt.Sprintf("hold s%d", o.stream)
	case opResume:
		return fmt.Sprintf("resume s%d", o.stream)
	case opSnapshot:
		return "snapshot"
	case opMovable:
		return fmt.Sprintf("movable b%d", o.block)
	case opRefuse:
		return fmt.Sprintf("refuse_or_not b%d", o.block)
	case opCompact:
		return fmt.Sprintf("compact on=s%d", o.stream)
	}
	return "unknown"
}

// A generator makes histories: blocks of all sizes and lifetimes, on all streams, while the number of live blocks rises
// and falls.
type generator struct {
	rng     *rand.Rand
	cfg     Config
	live    []int
	next    int
	target  int
	maxLive int
}

func generate(cfg Config, seed uint64, n, maxLive int) history {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x6d656d)), cfg: cfg, maxLive: maxLive}
	h := make(history, 0, n)
	for len(h) < n {
		h = append(h, g.op())
	}
	return h
}

func (g *generator) op() op {
	stream := g.stream()
	switch p := g.rng.IntN(100); {
	case p < 60 || len(g.live) == 0:
		if g.rng.IntN(40) == 0 {
			g.target = g.rng.IntN(g.maxLive + 1)
		}
		if grow := g.rng.IntN(100) < 50+30*sign(g.target-len(g.live)); grow || len(g.live) == 0 {
			g.live = append(g.live, g.next)
			g.next++
			return op{kind: opAlloc, block: g.next - 1, stream: stream, size: g.size()}
		}
		i := g.rng.IntN(len(g.live))
		if g.rng.IntN(3) == 0 {
			i = len(g.live) - 1
		}
		b := g.live[i]
		g.live = append(g.live[:i], g.live[i+1:]...)
		return op{kind: opFree, block: b}
	case p < 70:
		return op{kind: opWrite, block: g.some(), stream: stream}
	case p < 80:
		return op{kind: opCheck, block: g.some(), stream: stream}
	case p < 83:
		return op{kind: opJoin, block: g.some()}
	case p < 86:
		return op{kind: opSync, stream: stream}
	case p < 87:
		return op{kind: opSyncAll}
	case p < 88:
		return op{kind: opEmpty}
	case p < 89:
		return op{kind: opSnapshot}
	case p < 94:
		return op{kind: opHold, stream: stream}
	default:
		return op{kind: opResume, stream: stream}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

// some returns a live block, preferably a young one.
func (g *generator) some() int {
	n := len(g.live)
	return g.live[n-1-min(g.rng.IntN(n), g.rng.IntN(n))]
}

// stream returns a stream, preferably one of the first, so that some streams are busy and others idle.
func (g *generator) stream() int { return min(g.rng.IntN(g.cfg.Streams), g.rng.IntN(g.cfg.Streams)) }

// size returns a few bytes, a size uniform on a logarithmic scale, a size next to a round number, or one of a few sizes
// that recur.
func (g *generator) size() int64 {
	scale := 1
	for int64(1)<<scale < g.cfg.MaxBlock {
		scale++
	}
	round := int64(1) << g.rng.IntN(scale+1)
	var size int64
	switch g.rng.IntN(8) {
	case 0:
		size = 1 + g.rng.Int64N(2048)
	case 1, 2:
		size = round + g.rng.Int64N(3) - 1
	case 3, 4:
		size = []int64{512, 4096, 200_000, 1 << 20, 1<<20 + 1, 2 << 20, 6 << 20, 10 << 20}[g.rng.IntN(8)]
	default:
		size = round + g.rng.Int64N(round)
	}
	if size > g.cfg.MaxBlock {
		size = 1 + size%g.cfg.MaxBlock
	}
	return max(1, size)
}
