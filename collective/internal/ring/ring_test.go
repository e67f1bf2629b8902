package ring

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

var ops = []comm.Op{comm.Sum, comm.Prod, comm.Max, comm.Min, comm.Avg}

// small returns numbers whose sums and products over a few ranks are exact in every type.
func small(rank, n int, op comm.Op) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64((i*7 + rank*rank + i/5*rank) % 2)
		if op == comm.Prod {
			values[i]++
		}
	}
	return values
}

// naive combines the numbers of all ranks.
func naive(op comm.Op, t dtype.DType, ranks [][]float64) []byte {
	out := slices.Clone(ranks[0])
	for _, r := range ranks[1:] {
		for i, v := range r {
			switch op {
			case comm.Sum, comm.Avg:
				out[i] += v
			case comm.Prod:
				out[i] *= v
			case comm.Max:
				out[i] = max(out[i], v)
			case comm.Min:
				out[i] = min(out[i], v)
			}
		}
	}
	if op == comm.Avg {
		for i := range out {
			if out[i] /= float64(len(ranks)); t.Size() < 8 || t == dtype.Complex64 {
				out[i] = float64(float32(out[i]))
			}
		}
	}
	return encode(t, out)
}

// known lists the operations.
func known(op comm.Op, t dtype.DType) bool {
	switch {
	case t == dtype.Bool:
		return op == comm.Max || op == comm.Min
	case t.IsComplex():
		return op != comm.Max && op != comm.Min
	}
	return true
}

func TestEveryKindTypeAndSize(t *testing.T) {
	for _, setup := range setups {
		for ranks := 1; ranks <= 5; ranks++ {
			if setup.name != setups[0].name && (ranks == 3 || ranks == 4) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", setup.name, ranks), func(t *testing.T) {
				each(start(t, ranks, setup.open, setup.join), func(n *node) {
					for _, typ := range dtype.All() {
						for _, count := range []int{0, 1, 13} {
							if count == 0 && typ != dtype.Float32 { // no element has no type
								continue
							}
							some := ops
							if setup.name != setups[0].name || ranks != 3 { // how bytes travel is nothing to the operations
								some = []comm.Op{ops[(int(typ)+count+ranks)%len(ops)]}
							}
							everyOp(n, some, ranks, typ, count)
						}
					}
				})
			})
		}
	}
}

func everyOp(n *node, ops []comm.Op, ranks int, typ dtype.DType, count int) {
	for _, op := range ops {
		if known(op, typ) {
			newSample(ranks, typ, count, op).everyKind(n)
			continue
		}
		unsupported(n, n.Queue(n.stream, comm.Call{Kind: comm.AllReduce, Op: op, Type: typ}))
		unsupported(n, n.Queue(n.stream, comm.Call{Kind: comm.ReduceScatter, Op: op, Type: typ}))
	}
}

// What takes several frames: two for each part of an all-reduce, four for one of the rest.
func TestLarge(t *testing.T) {
	x := newSample(3, dtype.Float32, 3*pieceBytes/4+3, comm.Sum)
	for _, setup := range setups[:3] {
		t.Run(setup.name, func(t *testing.T) { each(start(t, 3, setup.open, setup.join), x.everyKind) })
	}
}

// A rank may be late in a reduce-scatter: data that it has yet to pass on is not overwritten by later data.
func TestLateRank(t *testing.T) {
	const ranks, count, late = 6, 400_000, 3
	x := newSample(ranks, dtype.Int32, count, comm.Sum)
	links := tcpLinks(t, ranks)
	for i, c := range links[late] {
		if c != nil {
			links[late][i] = slow{c}
		}
	}
	nodes := start(t, ranks, openHost, func(_ testing.TB, devs []driver.Device) []comm.Transport {
		transports := make([]comm.Transport, ranks)
		for i, dev := range devs {
			transports[i] = New(dev, i, ranks, links[i])
		}
		return transports
	})
	each(nodes, func(n *node) {
		a, b := n.memory(x.wide[n.rank]), n.memory(make([]byte, 4*count))
		check(t, n.do(comm.Call{Kind: comm.ReduceScatter, Type: x.typ, N: count, Src: a, Dst: b}))
		same(t, "reduce-scatter", n.rank, n.read(b, 4*count), x.parts[n.rank*4*count:][:4*count])
	})
}

// A slow connection lets all others go first, often.
type slow struct{ net.Conn }

func (c slow) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		for range 100 {
			runtime.Gosched()
		}
		n, err := c.Conn.Write(b[done:min(len(b), done+16<<10)])
		if done += n; err != nil {
			return done, err
		}
	}
	return len(b), nil
}

// A sample is the input of calls and their expected result.
type sample struct {
	typ   dtype.DType
	count int
	op    comm.Op
	own   [][]byte // count elements of each rank
	wide  [][]byte // and count for each rank
	total []byte   // op of own
	parts []byte   // op of wide
}

// period is the number of elements after which large samples repeat: no multiple of how they are cut.
const period = 1009

func repeat(b []byte, size int) []byte {
	return bytes.Repeat(b, size/max(1, len(b))+1)[:size]
}

func newSample(ranks int, typ dtype.DType, count int, op comm.Op) *sample {
	x := &sample{typ: typ, count: count, op: op}
	var own, wide [][]float64
	for r := range ranks {
		own, wide = append(own, small(r, min(count, period), op)), append(wide, small(r, min(count*ranks, period), op))
		x.own = append(x.own, repeat(encode(typ, own[r]), count*typ.Size()))
		x.wide = append(x.wide, repeat(encode(typ, wide[r]), ranks*count*typ.Size()))
	}
	x.total = repeat(naive(op, typ, own), count*typ.Size())
	x.parts = repeat(naive(op, typ, wide), ranks*count*typ.Size())
	return x
}

// everyKind makes calls of all kinds.
func (x *sample) everyKind(n *node) {
	ranks, size := len(x.own), len(x.total)
	next, prev, root := (n.rank+1)%ranks, (n.rank+ranks-1)%ranks, ranks-1
	all, shares := bytes.Join(x.own, nil), make([]byte, 0, size*ranks)
	for r, b := range x.wide {
		shares = append(shares, b[r*size:][:size]...)
	}

	own, place, sum := n.memory(x.own[n.rank]), n.memory(x.own[n.rank]), n.memory(make([]byte, size))
	wide, part, many := n.memory(x.wide[n.rank]), n.memory(make([]byte, size)), n.memory(make([]byte, size*ranks))
	gathered, got := n.memory(x.wide[n.rank]), n.memory(make([]byte, size))
	share := n.operand(gathered.Ptr+driver.Pointer(size*n.rank), size)
	slot := n.operand(wide.Ptr+driver.Pointer(size*n.rank), size)
	queue := func(calls ...comm.Call) {
		for i := range calls {
			calls[i].Type, calls[i].N = x.typ, x.count
		}
		check(n.t, n.Queue(n.stream, calls...))
	}
	expect := func(what string, o comm.Operand, want []byte) {
		what = fmt.Sprintf("%s (%v) of %d %v", what, x.op, x.count, x.typ)
		same(n.t, what, n.rank, n.read(o, len(want)), want)
	}
	queue(comm.Call{Kind: comm.AllReduce, Op: x.op, Src: own, Dst: sum})
	queue(comm.Call{Kind: comm.AllReduce, Op: x.op, Src: place, Dst: place})
	queue(comm.Call{Kind: comm.ReduceScatter, Op: x.op, Src: wide, Dst: part})
	queue(comm.Call{Kind: comm.AllGather, Src: own, Dst: many})
	queue(comm.Call{Kind: comm.AllGather, Src: share, Dst: gathered})
	queue(comm.Call{Kind: comm.Send, Src: own, Peer: next}, comm.Call{Kind: comm.Recv, Dst: got, Peer: prev})
	expect("all-reduce", sum, x.total)
	expect("all-reduce in place", place, x.total)
	expect("reduce-scatter", part, x.parts[n.rank*size:][:size])
	expect("source of reduce-scatter", wide, x.wide[n.rank])
	expect("all-gather", many, all)
	expect("all-gather in place", gathered, shares)
	expect("recv", got, x.own[prev])

	queue(comm.Call{Kind: comm.ReduceScatter, Op: x.op, Src: wide, Dst: slot})
	queue(comm.Call{Kind: comm.Broadcast, Src: got, Dst: got, Peer: root})
	expect("reduce-scatter in place", slot, x.parts[n.rank*size:][:size])
	expect("broadcast", got, x.own[(root+ranks-1)%ranks])
	n.free(own, place, sum, wide, part, many, gathered, got)
}

// The order of additions is the documented one, whatever the timing, and all ranks have the same bits.
func TestOrderOfAdditions(t *testing.T) {
	const ranks, count = 4, 30_001
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		inputs := make([][]byte, ranks)
		for r := range inputs {
			values := make([]float64, count)
			for i := range values {
				values[i] = rng.NormFloat64() * math.Exp2(float64(rng.IntN(20)))
			}
			inputs[r] = encode(typ, values)
		}
		want := make([]byte, len(inputs[0]))
		for part := range ranks {
			from, to := cut(count, ranks, part)
			for i := from; i < to; i++ {
				at := i * typ.Size()
				acc := float32(typ.Load(inputs[part][at:]).Float64())
				for r := 1; r < ranks; r++ {
					acc += float32(typ.Load(inputs[(part+r)%ranks][at:]).Float64())
					dtype.ScalarOf(acc).Put(want[at:], typ)
					acc = float32(typ.Load(want[at:]).Float64())
				}
			}
		}
		for _, setup := range setups {
			t.Run(fmt.Sprint(typ, "/", setup.name), func(t *testing.T) {
				each(start(t, ranks, setup.open, setup.join), func(n *node) {
					a := n.memory(inputs[n.rank])
					check(t, n.do(comm.Call{Kind: comm.AllReduce, Type: typ, N: count, Src: a, Dst: a}))
					same(t, setup.name, n.rank, n.read(a, len(want)), want)
				})
			})
		}
	}
}

// The behaviour of the types at the limits of their ranges.
func TestEdgesOfTypes(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		typ        dtype.DType
		op         comm.Op
		a, b, want float64
	}{
		{dtype.Int8, comm.Sum, 100, 100, -56},
		{dtype.Uint8, comm.Prod, 16, 17, 16},
		{dtype.Int32, comm.Avg, -4, 1, -1}, // toward zero
		{dtype.Uint8, comm.Avg, 200, 58, 1},
		{dtype.Float32, comm.Max, nan, 1, nan},
		{dtype.Float32, comm.Min, 1, nan, nan},
		{dtype.Float16, comm.Max, nan, inf, nan},
		{dtype.Float64, comm.Min, math.Copysign(0, -1), 0, math.Copysign(0, -1)},
		{dtype.Float16, comm.Sum, 65504, 65504, inf},
		{dtype.Float16, comm.Avg, 65504, 65504, 65504}, // the sum is rounded after it is divided
		{dtype.Float8E4M3FN, comm.Sum, 448, 448, nan},
		{dtype.BFloat16, comm.Sum, 256, 1, 256},
		{dtype.Int64, comm.Max, -5, 3, 3},
		{dtype.Bool, comm.Max, 0, 1, 1},
		{dtype.Bool, comm.Min, 0, 1, 0},
	} {
		t.Run(fmt.Sprint(c.typ, "/", c.op), func(t *testing.T) {
			each(start(t, 2, openHost, joinLocal), func(n *node) {
				a := n.memory(encode(c.typ, []float64{[]float64{c.a, c.b}[n.rank]}))
				check(t, n.do(comm.Call{Kind: comm.AllReduce, Op: c.op, Type: c.typ, N: 1, Src: a, Dst: a}))
				got := c.typ.Load(n.read(a, c.typ.Size())).Convert(dtype.Float64).Float64()
				if math.Float64bits(got) != math.Float64bits(c.want) && !(math.IsNaN(got) && math.IsNaN(c.want)) {
					t.Errorf("%v and %v give %v, want %v", c.a, c.b, got, c.want)
				}
			})
		})
	}
}

// Complex numbers multiply as such.
func TestComplexProduct(t *testing.T) {
	nodes := start(t, 3, openHost, joinLocal)
	each(nodes, func(n *node) {
		b := make([]byte, 16)
		dtype.ScalarOf(complex(1, 2)).Put(b, dtype.Complex128)
		a := n.memory(b)
		check(t, n.do(comm.Call{Kind: comm.AllReduce, Op: comm.Prod, Type: dtype.Complex128, N: 1, Src: a, Dst: a}))
		if got := dtype.Complex128.Load(n.read(a, 16)).Complex128(); got != complex(-11, -2) {
			t.Errorf("rank %d: (1+2i)^3 is %v", n.rank, got)
		}
	})
}

// An average of narrow floats is among the numbers that it is of, although their sum is beyond the type.
func TestAverageIsNoOverflow(t *testing.T) {
	for _, c := range []struct {
		typ   dtype.DType
		value float64
	}{
		// What is 2 to 6 times as much has so few digits in every type that nothing is rounded.
		{dtype.Float16, 1 << 15},
		{dtype.Float16, 1},
		{dtype.BFloat16, -1 << 127},
		{dtype.Float8E4M3FN, 1 << 8},
		{dtype.Float8E4M3FN, 1},
		{dtype.Float8E5M2, 1 << 15},
		{dtype.Float8E5M2, -1},
	} {
		for ranks := 2; ranks <= 6; ranks++ {
			t.Run(fmt.Sprintf("%d times %v %v", ranks, c.typ, c.value), func(t *testing.T) {
				own := encode(c.typ, []float64{c.value})
				each(start(t, ranks, openHost, joinLocal), func(n *node) {
					a, b, all := n.memory(own), n.memory(make([]byte, len(own))), n.memory(bytes.Repeat(own, ranks))
					check(t, n.do(comm.Call{Kind: comm.AllReduce, Op: comm.Avg, Type: c.typ, N: 1, Src: a, Dst: a}))
					check(t, n.do(comm.Call{Kind: comm.ReduceScatter, Op: comm.Avg, Type: c.typ, N: 1, Src: all, Dst: b}))
					same(t, "all-reduce", n.rank, n.read(a, len(own)), own)
					same(t, "reduce-scatter", n.rank, n.read(b, len(own)), own)
				})
			})
		}
	}
}

// More ranks than an int8 can count: Avg still divides by their number.
func TestAverageOfManyRanks(t *testing.T) {
	f, _ := reducerFor(comm.Avg, dtype.Int8, 130)
	dst := make([]byte, 3)
	f.last(dst, []byte{100, 0, 0x80}, []byte{27, 0, 0}) // 127, 0 and -128 by 130
	same(t, "avg", 0, dst, []byte{0, 0, 0})
}
