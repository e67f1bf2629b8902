package ring

import "github.com/ashlar-go/ashlar/collective/internal/comm"

// plan returns the pass of a call and counts the call.
func (t *transport) plan(m *member) *pass {
	p := &pass{call: Call{Kind: m.Kind, Type: m.Type, N: m.N}}
	var peer *link
	switch m.Kind {
	case comm.Send:
		peer = t.links[m.Peer]
		peer.sent++
		p.call.Number = peer.sent
	case comm.Recv:
		peer = t.links[m.Peer]
		peer.received++
		p.call.Number = peer.received
	case comm.AllReduce, comm.Broadcast, comm.AllGather, comm.ReduceScatter:
		t.number++
		p.call.Number = t.number
	}
	if reduces(m.Kind) {
		p.call.Op = m.Op
	}
	if peer != nil || m.Kind == comm.Broadcast {
		p.call.Peer = m.Peer
	}
	if peer != nil {
		p.with = []*link{peer}
	} else {
		for _, l := range t.links {
			if l != nil {
				p.with = append(p.with, l)
			}
		}
	}

	size := m.Type.Size()
	if t.size == 1 {
		copy(m.dst, m.src) // a broadcast has only one operand
		return p
	}
	switch m.Kind {
	case comm.Send:
		p.to = peer
		p.straight(m, m.src)
	case comm.Recv:
		p.from = peer
		p.straight(m, m.dst)
	case comm.Broadcast:
		if m.Peer != t.rank {
			p.from = t.prev
		}
		if m.Peer != t.next.peer {
			p.to = t.next
		}
		p.straight(m, m.dst)
	case comm.AllReduce:
		t.allReduce(p, m, layout{n: m.N, ranks: t.size, size: size, pieces: pieces((m.N+t.size-1)/t.size, size)})
	case comm.AllGather:
		t.allGather(p, m, layout{n: m.N * t.size, ranks: t.size, size: size, pieces: pieces(m.N, size)})
	case comm.ReduceScatter:
		t.reduceScatter(p, m, layout{n: m.N * t.size, ranks: t.size, size: size, pieces: pieces(m.N, size)})
	}
	return p
}

// straight sends b, receives it, or does both: it forwards what it receives.
func (p *pass) straight(m *member, b []byte) {
	y := layout{n: m.N, ranks: 1, size: m.Type.Size(), pieces: pieces(m.N, m.Type.Size())}
	if p.to != nil {
		p.out, p.data = y.pieces, func(f int) []byte { return y.piece(b, 0, f) }
		if p.from == nil {
			p.lag = p.out
		}
	}
	if p.from != nil {
		p.frames, p.place = y.pieces, func(f int) destination { return destination{dst: y.piece(b, 0, f)} }
	}
}

// ringPlan makes p receive from the rank before and send to the rank after, so that a frame is sent one step after it
// was received.
func (t *transport) ringPlan(p *pass, steps int, y layout) {
	p.to, p.from = t.next, t.prev
	p.out, p.frames, p.lag = steps*y.pieces, steps*y.pieces, y.pieces
}

// allReduce: in step s this rank sends part rank-s and receives part rank-s-1. In the first size-1 steps it adds its
// own share to the received part. Then part rank+1 is complete, and complete parts follow. A complete part has gone
// around the ring since this rank sent its share of it, so it may overwrite that share.
func (t *transport) allReduce(p *pass, m *member, y layout) {
	t.ringPlan(p, 2*(t.size-1), y)
	adding := t.size - 1
	ops, _ := reducerFor(m.Op, m.Type, t.size)
	p.data = func(f int) []byte {
		step, i := f/y.pieces, f%y.pieces
		if step == 0 {
			return y.piece(m.src, t.rank, i)
		}
		return y.piece(m.dst, t.around(-(step % t.size)), i)
	}
	p.place = func(f int) destination {
		step, i := f/y.pieces, f%y.pieces
		part := t.around(-(step + 1) % t.size)
		to := destination{dst: y.piece(m.dst, part, i)}
		if step < adding {
			to.own, to.fold = y.piece(m.src, part, i), ops.at(step, adding)
		}
		return to
	}
}

// allGather: in step s this rank sends part rank-s and receives part rank-s-1.
func (t *transport) allGather(p *pass, m *member, y layout) {
	t.ringPlan(p, t.size-1, y)
	copy(m.dst[t.rank*len(m.src):], m.src)
	p.data = func(f int) []byte { return y.piece(m.dst, t.around(-(f / y.pieces)), f%y.pieces) }
	p.place = func(f int) destination {
		return destination{dst: y.piece(m.dst, t.around(-(f/y.pieces)-1), f%y.pieces)}
	}
}

// reduceScatter: in step s this rank sends part rank-s-1 and receives part rank-s-2, to which it adds its own share.
// Its own part comes last. A part received in one step is sent in the next, from two alternating blocks: a frame may
// enter a block after the frame of two steps ago has been sent.
func (t *transport) reduceScatter(p *pass, m *member, y layout) {
	steps := t.size - 1
	t.ringPlan(p, steps, y)
	p.hold = y.pieces
	var partial [2][]byte
	for i := range min(2, steps-1) {
		partial[i] = make([]byte, len(m.dst))
	}
	part := layout{n: m.N, ranks: 1, size: y.size, pieces: y.pieces}
	ops, _ := reducerFor(m.Op, m.Type, t.size)
	p.data = func(f int) []byte {
		step, i := f/y.pieces, f%y.pieces
		if step == 0 {
			return y.piece(m.src, t.around(-1), i)
		}
		return part.piece(partial[(step-1)%2], 0, i)
	}
	p.place = func(f int) destination {
		step, i := f/y.pieces, f%y.pieces
		own := y.piece(m.src, t.around(-step-2), i)
		to := destination{dst: part.piece(m.dst, 0, i), own: own, fold: ops.at(step, steps)}
		if step < steps-1 {
			to.dst = part.piece(partial[step%2], 0, i)
		}
		return to
	}
}

// at returns the function for a step.
func (f reducer) at(step, steps int) reduceFunc {
	switch step {
	case steps - 1:
		return f.last
	case 0:
		return f.first
	}
	return f.mid
}

// A layout divides n elements into one part for each rank, as evenly as possible, and every part into the same number
// of pieces.
type layout struct {
	n, ranks int
	size     int // bytes of an element
	pieces   int
}

// pieces returns the number of frames for a part of n elements.
func pieces(n, size int) int {
	most := pieceBytes / size
	return n/most + min(1, n%most)
}

// piece returns piece i of a part of b.
func (y layout) piece(b []byte, part, i int) []byte {
	from, to := cut(y.n, y.ranks, part)
	first, end := cut(to-from, y.pieces, i)
	return b[(from+first)*y.size : (from+end)*y.size]
}

// cut returns the begin and the end of part i of n elements in k even parts. The first n%k parts are longer by one.
func cut(n, k, i int) (from, to int) {
	least, more := n/k, n%k
	return i*least + min(i, more), (i+1)*least + min(i+1, more)
}
