package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem"
)

// A suite is one check at work.
type suite struct {
	testing.TB
	rig     Rig
	queue   backend.Queue // with the watched allocator
	memory  mem.Allocator // for operands
	scratch *scratchAllocator
	rng     *rand.Rand
	seed    uint64
	rounds  int
	failed  map[string]bool // what has been reported: one failure for each operation and type is enough
	foreign bool            // Failed is not this suite's to ask: others work on the same backend
}

// An operand is an array of a trial.
type operand struct {
	role     string
	layout   layout
	array    backend.Array
	before   []byte // what its memory holds at first
	elements []byte // its elements, in row-major order
	judge    verdict
	block    mem.Block
}

// A verdict says what is wrong with an element of a result, as what it should have been; "" if it is right.
type verdict func(i int, got []byte) string

// A trial is one call of the backend. Make one, add the operands, then call.
type trial struct {
	s        *suite
	name     string
	note     string // what else a failure should say of the call
	operands []*operand
	wrong    *backend.IndexError // of which Op and Size must be in what Failed returns
	indices  []int64             // one of which Failed returns
}

func (s *suite) trial(format string, args ...any) *trial {
	return &trial{s: s, name: fmt.Sprintf(format, args...)}
}

// A maker writes element i of an operand.
type maker func(i int, b []byte)

// input adds an operand of random layout, with elements from make.
func (t *trial) input(role string, d dtype.DType, shape []int, make maker) *operand {
	return t.add(role, d, t.s.layout(shape, true), make)
}

// output adds an operand that the call is to write to: its elements are random bytes at first.
func (t *trial) output(role string, d dtype.DType, shape []int, judge verdict) *operand {
	o := t.add(role, d, t.s.layout(shape, false), nil)
	o.judge = judge
	return o
}

// add adds an operand with a layout.
func (t *trial) add(role string, d dtype.DType, l layout, make maker) *operand {
	size := d.Size()
	o := &operand{role: role, layout: l, before: garbage(t.s.rng, l.span*size)}
	if make != nil {
		l.walk(func(i int, _ []int, place int) { make(i, o.before[place*size:][:size]) })
	}
	o.elements = o.read(o.before, size)
	o.array = backend.Array{DType: d, Offset: l.offset, Shape: l.shape, Strides: l.strides}
	t.operands = append(t.operands, o)
	t.upload(o)
	return o
}

// upload finds memory for an operand: the device's or, where the backend reaches it, now and then Go's own; none now
// and then if there is no element.
func (t *trial) upload(o *operand) {
	visible := t.s.rig.Device.Visible()
	switch {
	case elements(o.layout.shape) == 0 && t.s.oneIn(2):
		o.before = nil
		return
	case visible != nil && t.s.oneIn(4):
		o.array.Bytes = slices.Clone(o.before)
		return
	}
	var err error
	if o.block, err = t.s.memory.Alloc(t.s.queue.Stream, int64(len(o.before))); err != nil {
		t.s.Fatalf("memory for a trial: %v", err)
	}
	o.array.Ptr = o.block.Ptr
	if visible != nil {
		if o.array.Bytes, err = visible.Bytes(o.block.Ptr, int64(len(o.before))); err != nil {
			t.s.Fatalf("Visible.Bytes: %v", err)
		}
	}
	if err := t.s.queue.Stream.CopyIn(o.block.Ptr, o.before); err != nil {
		t.s.Fatalf("CopyIn: %v", err)
	}
}

// garbage returns n random bytes.
func garbage(rng *rand.Rand, n int) []byte {
	b := make([]byte, n+7)
	for i := 0; i < n; i += 8 {
		putBits(b[i:], rng.Uint64())
	}
	return b[:n:n]
}

// read returns the elements in memory, in row-major order.
func (o *operand) read(memory []byte, size int) []byte {
	all := make([]byte, 0, elements(o.layout.shape)*size)
	o.layout.walk(func(_ int, _ []int, place int) { all = append(all, memory[place*size:][:size]...) })
	return all
}

// at returns the bytes of element i.
func (o *operand) at(i int) []byte {
	size := o.array.DType.Size()
	return o.elements[i*size:][:size]
}

func (o *operand) float(i int) float64 { return float(o.array.DType, o.at(i)) }
func (o *operand) integer(i int) int64 { return integer(o.array.DType, o.at(i)) }

// call makes the call, waits for its work and looks at everything that it could have changed.
func (t *trial) call(call func(q backend.Queue) error) {
	s := t.s
	s.Helper()
	err := call(s.queue)
	if sync := s.queue.Stream.Sync(context.Background()); sync != nil {
		s.Fatalf("%v\nSync: %v", t, sync)
	}
	if err != nil {
		t.fail("the call failed: %v", err)
	} else if !s.foreign {
		t.checkFailed()
	}
	for _, wrong := range s.scratch.problems(s.queue.Stream) {
		t.fail("%s", wrong)
	}
	for _, o := range t.operands {
		after := t.after(o)
		if err != nil {
			o.judge = nil // nothing may have been queued
		}
		t.checkOperand(o, after)
		s.memory.Free(o.block)
	}
}

// unsupported makes a call that may be refused as unsupported, and then must have done nothing.
func (t *trial) unsupported(call func(q backend.Queue) error) {
	t.s.Helper()
	t.call(func(q backend.Queue) error {
		err := call(q)
		if !errors.Is(err, driver.ErrUnsupported) {
			return err
		}
		for _, o := range t.operands {
			o.judge = nil
		}
		return nil
	})
}

// checkFailed asks the backend what its work found wrong.
func (t *trial) checkFailed() {
	err := t.s.rig.Backend.Failed()
	if t.wrong == nil {
		if err != nil {
			t.fail("Failed: %v", err)
		}
		return
	}
	var got *backend.IndexError
	switch {
	case !errors.As(err, &got):
		t.fail("Failed: %v, want an *IndexError: %v", err, t.wrong)
	case got.Op != t.wrong.Op || got.Size != t.wrong.Size || !slices.Contains(t.indices, got.Index):
		t.fail("Failed: %v, want %s with an axis of length %d and one of the indices %v", got, t.wrong.Op, t.wrong.Size,
			t.indices)
	}
	if again := t.s.rig.Backend.Failed(); again != nil {
		t.fail("Failed, asked again: %v, want nil", again)
	}
}

// after returns what an operand's memory holds now.
func (t *trial) after(o *operand) []byte {
	if o.array.Ptr == 0 {
		return o.array.Bytes
	}
	after := make([]byte, len(o.before))
	if err := t.s.queue.Stream.CopyOut(after, o.array.Ptr); err != nil {
		t.s.Fatalf("%v\nCopyOut: %v", t, err)
	}
	return after
}

// checkOperand judges the elements of a result, and compares everything else with what was there before.
func (t *trial) checkOperand(o *operand, after []byte) {
	t.s.Helper()
	size := o.array.DType.Size()
	want := slices.Clone(o.before)
	if o.judge != nil {
		bad, first := 0, ""
		o.layout.walk(func(i int, index []int, place int) {
			got := after[place*size:][:size]
			if wrong := o.judge(i, got); wrong != "" {
				if bad++; bad == 1 {
					first = fmt.Sprintf("%s%v is %s, want %s%s", o.role, index, text(o.array.DType, got), wrong,
						t.inputs(i))
				}
			}
			copy(want[place*size:], got)
		})
		if bad > 0 {
			t.fail("%d of %d elements are wrong; the first: %s", bad, elements(o.layout.shape), first)
		}
	}
	if !bytes.Equal(after, want) {
		at := 0
		for after[at] == want[at] {
			at++
		}
		t.fail("byte %d of the memory of %s was changed from %#x to %#x (element %d from its start)",
			at, o.role, want[at], after[at], at/size)
	}
}

// inputs shows element i of the operands that have the result's number of elements.
func (t *trial) inputs(i int) string {
	var b strings.Builder
	for _, o := range t.operands {
		if o.judge == nil && (i+1)*o.array.DType.Size() <= len(o.elements) {
			fmt.Fprintf(&b, "\n  element %d of %s: %s", i, o.role, text(o.array.DType, o.at(i)))
		}
	}
	return b.String()
}

// fail reports what is wrong, once for each name of a trial, and stops the check when nothing seems to be right.
func (t *trial) fail(format string, args ...any) {
	t.s.Helper()
	if t.s.failed[t.name] {
		return
	}
	t.s.failed[t.name] = true
	t.s.Errorf("%v\n%s", t, fmt.Sprintf(format, args...))
	if len(t.s.failed) == maxReports {
		t.s.Fatalf("%d operations and types have failed: the rest is not tried", maxReports)
	}
}

const maxReports = 25

func (t *trial) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (seed %d)", t.name, t.note, t.s.seed)
	for _, o := range t.operands {
		where := "the device's memory"
		if o.array.Ptr == 0 {
			where = "Go's memory"
		}
		fmt.Fprintf(&b, "\n  %s: %s in %s", o.role, describe(o.array), where)
	}
	return b.String()
}
