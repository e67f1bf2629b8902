package backendtest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
)

// A mutant is the model with something done after each of its calls: to its results, its inputs, or the scratch memory.
type mutant struct {
	model
	after func(q backend.Queue, results, inputs []backend.Array)
	now   sync.Mutex // one call at a time, so that what is done after it is not seen by others
}

func (m *mutant) done(q backend.Queue, err error, results []*backend.Array, inputs ...*backend.Array) error {
	some := func(all []*backend.Array) (there []backend.Array) {
		for _, a := range all {
			if a != nil && elements(a.Shape) > 0 {
				there = append(there, *a)
			}
		}
		return there
	}
	m.now.Lock()
	defer m.now.Unlock()
	m.after(q, some(results), some(inputs)) // of a call that is refused, too
	return err
}

type arrays = []*backend.Array

func (m *mutant) Fill(q backend.Queue, dst backend.Array, value dtype.Scalar) error {
	return m.done(q, m.model.Fill(q, dst, value), arrays{&dst})
}

func (m *mutant) Copy(q backend.Queue, dst, src backend.Array) error {
	return m.done(q, m.model.Copy(q, dst, src), arrays{&dst}, &src)
}

func (m *mutant) Arange(q backend.Queue, dst backend.Array, start, step dtype.Scalar) error {
	return m.done(q, m.model.Arange(q, dst, start, step), arrays{&dst})
}

func (m *mutant) Random(q backend.Queue, dst backend.Array, r backend.Random) error {
	return m.done(q, m.model.Random(q, dst, r), arrays{&dst})
}

func (m *mutant) Unary(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) error {
	return m.done(q, m.model.Unary(q, op, dst, x), arrays{&dst}, &x)
}

func (m *mutant) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	return m.done(q, m.model.Binary(q, op, dst, x, y), arrays{&dst}, &x, &y)
}

func (m *mutant) Where(q backend.Queue, dst, cond, x, y backend.Array) error {
	return m.done(q, m.model.Where(q, dst, cond, x, y), arrays{&dst}, &cond, &x, &y)
}

func (m *mutant) Reduce(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) error {
	return m.done(q, m.model.Reduce(q, op, dst, x), arrays{&dst}, &x)
}

func (m *mutant) ArgReduce(q backend.Queue, least bool, dst, x backend.Array, axis int) error {
	return m.done(q, m.model.ArgReduce(q, least, dst, x, axis), arrays{&dst}, &x)
}

func (m *mutant) Softmax(q backend.Queue, log bool, dst, x backend.Array, axis int) error {
	return m.done(q, m.model.Softmax(q, log, dst, x, axis), arrays{&dst}, &x)
}

func (m *mutant) Norm(q backend.Queue, rms bool, dst, x backend.Array, n int, weight, bias *backend.Array, eps float64) error {
	return m.done(q, m.model.Norm(q, rms, dst, x, n, weight, bias, eps), arrays{&dst}, &x, weight, bias)
}

func (m *mutant) Gather(q backend.Queue, dst, x, index backend.Array, axis int) error {
	return m.done(q, m.model.Gather(q, dst, x, index, axis), arrays{&dst}, &x, &index)
}

func (m *mutant) IndexSelect(q backend.Queue, dst, x, index backend.Array, axis int) error {
	return m.done(q, m.model.IndexSelect(q, dst, x, index, axis), arrays{&dst}, &x, &index)
}

func (m *mutant) ScatterAdd(q backend.Queue, dst, index, src backend.Array, axis int) error {
	return m.done(q, m.model.ScatterAdd(q, dst, index, src, axis), arrays{&dst}, &index, &src)
}

func (m *mutant) Sort(q backend.Queue, descending bool, values, indices *backend.Array, x backend.Array, axis int) error {
	return m.done(q, m.model.Sort(q, descending, values, indices, x, axis), arrays{values, indices}, &x)
}

func (m *mutant) TopK(q backend.Queue, least bool, values, indices *backend.Array, x backend.Array, axis int) error {
	return m.done(q, m.model.TopK(q, least, values, indices, x, axis), arrays{values, indices}, &x)
}

func (m *mutant) MatMul(q backend.Queue, dst, a, b backend.Array) error {
	return m.done(q, m.model.MatMul(q, dst, a, b), arrays{&dst}, &a, &b)
}

// flip changes the highest bit of a byte of an array's memory.
func flip(q backend.Queue, a backend.Array, at int) {
	if a.Ptr == 0 {
		a.Bytes[at] ^= 0x80
		return
	}
	b := []byte{0}
	if err := q.Stream.CopyOut(b, a.Ptr+driver.Pointer(at)); err != nil {
		panic(err)
	}
	b[0] ^= 0x80
	if err := q.Stream.CopyIn(a.Ptr+driver.Pointer(at), b); err != nil {
		panic(err)
	}
}

// lastPlace returns the offset of the last element of an array.
func lastPlace(a backend.Array) int {
	last := 0
	layoutOf(a).walk(func(_ int, _ []int, place int) { last = place })
	return last
}

// TestMutants: the check of each call detects every fault that a mutant introduces after that call.
func TestMutants(t *testing.T) {
	for what, after := range map[string]func(q backend.Queue, results, inputs []backend.Array){
		"a wrong element": func(q backend.Queue, results, _ []backend.Array) {
			for _, a := range results {
				flip(q, a, (lastPlace(a)+1)*a.DType.Size()-1)
			}
		},
		"a byte written beside the elements": func(q backend.Queue, results, _ []backend.Array) {
			for _, a := range results {
				used := map[int]bool{}
				layoutOf(a).walk(func(_ int, _ []int, place int) { used[place] = true })
				for place := range extent(a) / a.DType.Size() {
					if !used[place] {
						flip(q, a, place*a.DType.Size())
						return
					}
				}
			}
		},
		"an input written": func(q backend.Queue, _, inputs []backend.Array) {
			for _, a := range inputs {
				flip(q, a, lastPlace(a)*a.DType.Size())
			}
		},
		"scratch kept": func(q backend.Queue, _, _ []backend.Array) {
			if _, err := q.Scratch.Alloc(q.Stream, 64); err != nil {
				panic(err)
			}
		},
	} {
		for _, c := range checks {
			if c.name == "Failed" && what == "a byte written beside the elements" {
				continue // too few calls for one of them to have gaps
			}
			if what == "an input written" && slices.Contains([]string{"Fill", "Arange", "Random"}, c.name) {
				continue // there is none
			}
			report := attempt(t, c.name, func() backend.Backend { return &mutant{after: after} })
			if report == "" {
				t.Errorf("%s: %s was not found", c.name, what)
			}
			if !strings.Contains(report, fmt.Sprintf("seed %d", *seed)) {
				t.Errorf("%s: %s: the report does not name the seed: %s", c.name, what, report)
			}
		}
	}
}

// attempt runs a check as though it were a test, up to its first failure, and returns that.
func attempt(t testing.TB, name string, b func() backend.Backend) string {
	t.Helper()
	for _, c := range checks {
		if c.name == name {
			r := &recorder{TB: t}
			r.guard(func() {
				runCheck(r, Config{Open: open("host", b), Seed: *seed, Rounds: 1}, c.name, c.run)
			})
			for _, f := range slices.Backward(r.cleanups) {
				r.guard(f)
			}
			return r.first
		}
	}
	t.Fatalf("there is no check %q", name)
	return ""
}

// A recorder stands in for a test, and ends the goroutine that reports a failure.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	first    string
	cleanups []func()
}

func (r *recorder) guard(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	if r.first == "" {
		r.first = fmt.Sprintf(format, args...)
	}
	r.mu.Unlock()
	runtime.Goexit()
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

// A liar computes one method in a way of its own.
type liar struct {
	model
	unary   func(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) (bool, error)
	reduce  func(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) (bool, error)
	matmul  func(q backend.Queue, dst, a, b backend.Array) (bool, error)
	binary  func(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) (bool, error)
	softmax func(q backend.Queue, log bool, dst, x backend.Array, axis int) (bool, error)
	failed  func(err error) error
}

func (l *liar) Unary(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) error {
	if l.unary != nil {
		if did, err := l.unary(q, op, dst, x); did {
			return err
		}
	}
	return l.model.Unary(q, op, dst, x)
}

func (l *liar) Binary(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) error {
	if l.binary != nil {
		if did, err := l.binary(q, op, dst, x, y); did {
			return err
		}
	}
	return l.model.Binary(q, op, dst, x, y)
}

func (l *liar) Reduce(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) error {
	if l.reduce != nil {
		if did, err := l.reduce(q, op, dst, x); did {
			return err
		}
	}
	return l.model.Reduce(q, op, dst, x)
}

func (l *liar) MatMul(q backend.Queue, dst, a, b backend.Array) error {
	if l.matmul != nil {
		if did, err := l.matmul(q, dst, a, b); did {
			return err
		}
	}
	return l.model.MatMul(q, dst, a, b)
}

func (l *liar) Softmax(q backend.Queue, log bool, dst, x backend.Array, axis int) error {
	if l.softmax != nil {
		if did, err := l.softmax(q, log, dst, x, axis); did {
			return err
		}
	}
	return l.model.Softmax(q, log, dst, x, axis)
}

func (l *liar) Failed() error {
	err := l.model.Failed()
	if l.failed != nil {
		return l.failed(err)
	}
	return err
}

// TestLiars: results that are nearly right are detected too.
func TestLiars(t *testing.T) {
	tf32 := func(x float64) float64 { return format{8, 10, false}.round(x) }
	for _, c := range []struct {
		check, what string
		liar        func() *liar
	}{
		{"Gather", "no error for wrong indices", func() *liar {
			return &liar{failed: func(error) error { return nil }}
		}},
		{"ScatterAdd", "an error without its size", func() *liar {
			return &liar{failed: func(err error) error {
				if e, ok := err.(*backend.IndexError); ok {
					e.Size = 0
				}
				return err
			}}
		}},
		{"Unary", "exp as 2 to the power of a float32 product", func() *liar {
			return &liar{unary: func(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) (bool, error) {
				if op != backend.Exp || dst.DType != dtype.Float32 {
					return false, nil
				}
				a := load(q, x)
				return true, store(q, dst, func(i int, b []byte) {
					putFloat(dst.DType, b, math.Exp2(float64(float32(a.float(i))*float32(math.Log2E))))
				})
			}}
		}},
		{"Unary", "log2 of float64s near 1 as a quotient of rounded logarithms", func() *liar {
			return &liar{unary: func(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) (bool, error) {
				if op != backend.Log2 || dst.DType != dtype.Float64 {
					return false, nil
				}
				a := load(q, x)
				return true, store(q, dst, func(i int, b []byte) { putFloat(dst.DType, b, math.Log2(a.float(i))) })
			}}
		}},
		{"Unary", "round with ties away from zero", func() *liar {
			return &liar{unary: func(q backend.Queue, op backend.UnaryOp, dst, x backend.Array) (bool, error) {
				if op != backend.Round {
					return false, nil
				}
				a := load(q, x)
				return true, store(q, dst, func(i int, b []byte) { putFloat(dst.DType, b, math.Round(a.float(i))) })
			}}
		}},
		{"Binary", "bfloat16 cut off instead of rounded", func() *liar {
			return &liar{binary: func(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) (bool, error) {
				if op != backend.Add || dst.DType != dtype.BFloat16 {
					return false, nil
				}
				a, c := load(q, x), load(q, y)
				return true, store(q, dst, func(i int, b []byte) {
					putBits(b, formats[dtype.Float32].encode(a.float(i)+c.float(i))>>16)
				})
			}}
		}},
		{"Binary", "remainder with the sign of x", func() *liar {
			return &liar{binary: func(q backend.Queue, op backend.BinaryOp, dst, x, y backend.Array) (bool, error) {
				if op != backend.Mod || dst.DType != dtype.Float32 {
					return false, nil
				}
				a, c := load(q, x), load(q, y)
				return true, store(q, dst, func(i int, b []byte) {
					putFloat(dst.DType, b, math.Mod(a.float(i), c.float(i)))
				})
			}}
		}},
		{"Reduce", "float32s added one after the other", func() *liar {
			return &liar{reduce: func(q backend.Queue, op backend.ReduceOp, dst, x backend.Array) (bool, error) {
				if op != backend.Sum || dst.DType != dtype.Float32 {
					return false, nil
				}
				a, all := load(q, x), groups(x.Shape, func(k int) bool { return dst.Shape[k] == 1 })
				return true, store(q, dst, func(i int, b []byte) {
					var sum float32
					for _, e := range all[i] {
						sum += float32(a.float(e))
					}
					putFloat(dst.DType, b, float64(sum))
				})
			}}
		}},
		{"MatMul", "products of TF32", func() *liar {
			return &liar{matmul: func(q backend.Queue, dst, a, b backend.Array) (bool, error) {
				if dst.DType != dtype.Float32 || len(dst.Shape) != 2 {
					return false, nil
				}
				x, y, n := load(q, a), load(q, b), a.Shape[1]
				return true, store(q, dst, func(i int, out []byte) {
					sum := 0.0
					for j := range n {
						sum += tf32(x.float(i/dst.Shape[1]*n+j)) * tf32(y.float(j*dst.Shape[1]+i%dst.Shape[1]))
					}
					putFloat(dst.DType, out, sum)
				})
			}}
		}},
		{"Softmax", "the logarithm of a result that is 0", func() *liar {
			return &liar{softmax: func(q backend.Queue, log bool, dst, x backend.Array, axis int) (bool, error) {
				if !log {
					return false, nil
				}
				want := softmaxAnswers(false, load(q, x), axis)
				return true, store(q, dst, func(i int, b []byte) {
					putFloat(dst.DType, b, math.Log(computed(dst.DType).round(want[i].value)))
				})
			}}
		}},
	} {
		if attempt(t, c.check, func() backend.Backend { return c.liar() }) == "" {
			t.Errorf("%s: not found: %s", c.check, c.what)
		}
	}
}
