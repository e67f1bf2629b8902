package sim

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// A bench is a device with memory and streams to plant races on.
type bench struct {
	*Device
	t *testing.T
	s []driver.Stream // s[0] is the default stream
	p driver.Pointer  // 1 MiB
}

func newBench(t *testing.T, opts Options, streams int) *bench {
	b := &bench{Device: New(opts), t: t}
	var err error
	b.p, err = b.Alloc(1 << 20)
	b.ok(err)
	b.s = append(b.s, b.DefaultStream())
	for range streams - 1 {
		s, err := b.NewStream(driver.StreamOptions{})
		b.ok(err)
		b.s = append(b.s, s)
	}
	return b
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// race fails the test unless err holds a race, and returns it.
func (b *bench) race(err error) *RaceError {
	b.t.Helper()
	race := (*RaceError)(nil)
	if !errors.As(err, &race) {
		b.t.Fatalf("got %v, want a race", err)
	}
	return race
}

func (b *bench) mark(s driver.Stream) driver.Mark {
	b.t.Helper()
	m, err := s.Mark()
	b.ok(err)
	return m
}

// read and write launch kernels that touch 64 bytes at an offset.
func (b *bench) read(s driver.Stream, at int) error { return b.launch(s, "read", []int{at}, nil) }

func (b *bench) write(s driver.Stream, at int) error { return b.launch(s, "write", nil, []int{at}) }

func (b *bench) launch(s driver.Stream, name string, reads, writes []int) error {
	k := driver.Kernel{Name: name}
	for _, at := range reads {
		k.Reads = append(k.Reads, driver.Range{Ptr: b.p + driver.Pointer(at), Size: 64})
	}
	for _, at := range writes {
		k.Writes = append(k.Writes, driver.Range{Ptr: b.p + driver.Pointer(at), Size: 64})
	}
	return b.Kernels().Launch(s, k)
}

func TestBehaviour70TwoReadsPass(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.read(b.s[0], 0))
	b.ok(b.read(b.s[1], 0))
}

func TestBehaviour70WriteAfterUnsyncedReadFails(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.read(b.s[1], 0))
	seq := b.seq
	race := b.race(b.write(b.s[0], 32))
	if f := race.First; f.Stream != 1 || f.Kernel != "read" || f.Write || f.Seq != seq || f.Range.Ptr != b.p {
		t.Errorf("first is %+v", f)
	}
	if s := race.Second; s.Stream != 0 || s.Kernel != "write" || !s.Write || s.Seq != seq+1 || s.Range.Ptr != b.p+32 {
		t.Errorf("second is %+v", s)
	}
	if want := (driver.Range{Ptr: b.p + 32, Size: 32}); race.Range != want {
		t.Errorf("they share %+v, want %+v", race.Range, want)
	}
	want := `race on [0x7f0000000020, +32): write of [0x7f0000000020, +64) by kernel "write" on stream 0 (call 4) does ` +
		`not come after read of [0x7f0000000000, +64) by kernel "read" on stream 1 (call 3); order them with Mark and ` +
		`WaitFor, or wait for the first with Sync`
	if got := race.Error(); got != want {
		t.Errorf("message\n%s\nwant\n%s", got, want)
	}
	if got := b.Reports(); len(got) != 1 || got[0].Error() != want {
		t.Errorf("reports: %v", got)
	}
	// Other bytes are other matters, and what was refused did not happen.
	b.ok(b.write(b.s[0], 64))
	b.ok(b.write(b.s[1], 0))
}

func TestBehaviour70RecordAndWaitFixes(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.read(b.s[1], 0))
	b.ok(b.s[0].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.write(b.s[0], 0))
	// The write is not ordered before what stream 1 does next.
	b.race(b.read(b.s[1], 0))
	b.ok(b.s[1].WaitFor(b.s[0], b.mark(b.s[0])))
	b.ok(b.read(b.s[1], 0))
}

func TestBehaviour70HostWaitsFix(t *testing.T) {
	for name, wait := range map[string]func(b *bench){
		"Sync":    func(b *bench) { b.ok(b.s[1].Sync(context.Background())) },
		"CopyOut": func(b *bench) { b.ok(b.s[1].CopyOut(make([]byte, 1), b.p+4096)) },
		"Close":   func(b *bench) { b.ok(b.s[1].Close()) },
		"Free": func(b *bench) {
			p, err := b.Alloc(1)
			b.ok(err)
			b.ok(b.Free(p))
		},
		"Reached": func(b *bench) {
			if ok, err := b.s[1].Reached(b.mark(b.s[1])); !ok || err != nil {
				t.Fatal(ok, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{}, 2)
			b.ok(b.write(b.s[1], 0))
			b.race(b.write(b.s[0], 0))
			wait(b)
			b.ok(b.write(b.s[0], 0))
		})
	}
}

func TestBehaviour70CompletionIsNotOrder(t *testing.T) {
	b := newBench(t, Options{Completion: OnDemand}, 2)
	b.ok(b.write(b.s[1], 0))
	m := b.mark(b.s[1])
	if ok, err := b.s[1].Reached(m); ok || err != nil {
		t.Fatalf("a mark of a held stream: reached %v, %v", ok, err)
	}
	b.race(b.write(b.s[0], 0))
	b.Complete(m) // no call has asked
	b.race(b.write(b.s[0], 0))
	if ok, err := b.s[1].Reached(m); !ok || err != nil {
		t.Fatalf("a mark that is complete: reached %v, %v", ok, err)
	}
	b.ok(b.write(b.s[0], 0))
}

func TestBehaviour71WorkAfterTheRecordIsNotCovered(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.write(b.s[1], 0))
	m := b.mark(b.s[1])
	b.ok(b.write(b.s[1], 1024))
	b.ok(b.s[0].WaitFor(b.s[1], m))
	b.ok(b.write(b.s[0], 0))
	b.race(b.write(b.s[0], 1024))
}

func TestBehaviour71AFreshMarkCoversNothing(t *testing.T) {
	b := newBench(t, Options{}, 2)
	b.ok(b.write(b.s[1], 0))
	b.ok(b.s[0].WaitFor(b.s[1], driver.Mark{Stream: b.s[1].ID()}))
	b.race(b.write(b.s[0], 0))
}

func TestBehaviour71AnotherRecordReplaces(t *testing.T) {
	b := newBench(t, Options{}, 2)
	m := b.mark(b.s[1])
	b.ok(b.write(b.s[1], 0))
	b.ok(b.s[0].WaitFor(b.s[1], m))
	b.race(b.write(b.s[0], 0))
	m = b.mark(b.s[1])
	b.ok(b.s[0].WaitFor(b.s[1], m))
	b.ok(b.write(b.s[0], 0))
}

func TestBehaviour72ChainOfTenStreamsPasses(t *testing.T) {
	b := newBench(t, Options{}, 10)
	b.ok(b.write(b.s[0], 0))
	for i := 1; i < 10; i++ {
		b.ok(b.s[i].WaitFor(b.s[i-1], b.mark(b.s[i-1])))
	}
	b.ok(b.write(b.s[9], 0))
}

func TestBehaviour72TenReadsNineWaited(t *testing.T) {
	b := newBench(t, Options{}, 11)
	var marks []driver.Mark
	for _, s := range b.s[1:] {
		b.ok(b.read(s, 0))
		marks = append(marks, b.mark(s))
	}
	for i, m := range marks[:9] {
		b.ok(b.s[0].WaitFor(b.s[i+1], m))
	}
	if race := b.race(b.write(b.s[0], 0)); race.First.Stream != 10 || len(b.Reports()) != 1 {
		t.Errorf("%v, and %d reports", race, len(b.Reports()))
	}
	b.ok(b.s[0].WaitFor(b.s[10], marks[9]))
	b.ok(b.write(b.s[0], 0))
}

func TestBehaviour72AnErrorForEachBadBuffer(t *testing.T) {
	b := newBench(t, Options{}, 2)
	var at []int
	for i := range 7 {
		at = append(at, i*64)
		b.ok(b.write(b.s[1], i*64))
	}
	err := b.launch(b.s[0], "all", append(at[:4:4], 4096), append(at[4:], 8192))
	joined, ok := errors.Unwrap(err).(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 7 || len(b.Reports()) != 7 {
		t.Fatalf("%v, and %d reports, want 7 errors", err, len(b.Reports()))
	}
	for i, r := range b.Reports() {
		if race := b.race(r); race.Second.Range.Ptr != b.p+driver.Pointer(i*64) || race.Second.Write != (i >= 4) {
			t.Errorf("report %d: %v", i, r)
		}
	}
}

func TestBehaviour72WaitMergesClocksPointwise(t *testing.T) {
	b := newBench(t, Options{}, 4)
	b.ok(b.write(b.s[1], 0))
	b.ok(b.write(b.s[2], 64))
	old := b.mark(b.s[2])
	b.ok(b.write(b.s[2], 128))
	// Stream 3 learns of stream 1 and of the newer state of stream 2; an older mark does not take that away.
	b.ok(b.s[3].WaitFor(b.s[1], b.mark(b.s[1])))
	b.ok(b.s[3].WaitFor(b.s[2], b.mark(b.s[2])))
	b.ok(b.s[3].WaitFor(b.s[2], old))
	for at := 0; at <= 128; at += 64 {
		b.ok(b.write(b.s[3], at))
	}
	// Stream 0 learns of all through stream 3.
	b.ok(b.s[0].WaitFor(b.s[3], b.mark(b.s[3])))
	for at := 0; at <= 128; at += 64 {
		b.ok(b.write(b.s[0], at))
	}
}

func TestBehaviour72AnOldMarkKeepsItsClock(t *testing.T) {
	b := newBench(t, Options{}, 4)
	b.ok(b.write(b.s[1], 0))
	b.ok(b.write(b.s[2], 64))
	b.ok(b.s[0].WaitFor(b.s[1], b.mark(b.s[1])))
	old := b.mark(b.s[0])
	b.ok(b.s[0].WaitFor(b.s[2], b.mark(b.s[2])))
	b.ok(b.s[3].WaitFor(b.s[0], old))
	b.ok(b.write(b.s[3], 0))
	b.race(b.write(b.s[3], 64)) // stream 0 learnt of that after the mark
}

// A mark covers what its stream had waited for by then, and not what the stream waits for later.
func TestMarkBeforeALaterWait(t *testing.T) {
	b := newBench(t, Options{}, 5)
	s, first, second, other := b.s[1], b.s[2], b.s[3], b.s[4]
	b.ok(b.write(first, 0))
	b.ok(b.write(second, 64))
	b.ok(s.WaitFor(first, b.mark(first)))
	b.ok(b.read(s, 0))
	early := b.mark(s)
	b.ok(s.WaitFor(second, b.mark(second)))
	b.ok(b.read(s, 64))
	b.ok(other.WaitFor(s, early))
	b.ok(b.write(other, 0))
	b.race(b.write(other, 64))
}
