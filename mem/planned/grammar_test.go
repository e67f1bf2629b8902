package planned_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/planned"
)

// sketch makes a plan from the input. Its slots share no memory and are right, until the input asks for one that is not:
// apart is false then.
func sketch(in *testkit.Input) (p *planned.Plan, apart bool) {
	p, apart = &planned.Plan{Trace: string(in.Bytes(in.N(4))), Room: in.N(4) * 50}, true
	odd := func(n *int64) { *n, apart = in.Odd(), false }
	if in.N(8) == 7 {
		odd(&p.Device.Alignment)
	}
	number := 0
	for range 1 + in.N(3) {
		s := planned.StreamPlan{Stream: number, Loop: -1}
		number++
		if in.N(3) == 2 {
			s.Shared = []int{number}
			number++
		}
		slots := 1 + in.N(6)
		if in.N(2) == 1 {
			s.Loop = in.N(slots)
		}
		for i := range slots {
			size := int64(1 + in.N(200)*37)
			room := (size + size*int64(p.Room)/100 + 511) / 512 * 512
			slot := planned.Slot{Size: size, Offset: s.Size, End: i + 1 + in.N(slots-i), Stream: in.N(1 + len(s.Shared))}
			s.Size += room
			if i < s.Loop && in.N(3) == 2 || s.Loop < 0 && in.N(5) == 4 {
				slot.End = planned.Forever
			}
			switch in.N(12) {
			case 9: // it may overlap others
				slot.Offset, apart = int64(in.N(8))*512, false
			case 10:
				slot.End, apart = int(in.Byte()), false
			case 11:
				odd(testkit.Choose(in, &slot.Size, &slot.Offset, &s.Size))
			}
			s.Slots = append(s.Slots, slot)
		}
		p.Streams = append(p.Streams, s)
	}
	return p, apart
}

// collides runs a stream's plan for four rounds and looks at each unit of 512 bytes: do two live blocks have the same one?
func collides(p *planned.Plan, s *planned.StreamPlan) bool {
	owner := map[int64]int{} // the time at which the block in a unit is freed
	for time := 0; ; time++ {
		i := time
		if n := len(s.Slots); time >= n {
			if s.Loop < 0 || time >= 4*n {
				return false
			}
			i = s.Loop + (time-n)%(n-s.Loop)
		}
		slot := s.Slots[i]
		if slot.Offset < 0 {
			continue
		}
		end := slot.Offset + slot.Size + slot.Size*int64(p.Room)/100
		for unit := slot.Offset / 512; unit*512 < end; unit++ {
			if owner[unit] > time {
				return true
			}
			owner[unit] = time + slot.End - i
		}
	}
}

// A plan that is accepted never puts two live blocks in the same memory, and is read as it was written. One whose blocks
// are apart is accepted. One that is refused cannot be read either.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{1, 'a', 1, 0, 1, 0, 2, 1, 1, 30, 0, 0, 0, 0, 40, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 2, 3, 0, 9, 1, 0, 9, 2, 5, 1, 0, 9, 2, 7, 0, 0, 0})
	f.Add([]byte{0, 2, 7, 3, 1, 0, 1, 1, 0, 11, 0, 0, 11, 5, 1, 11, 3, 3})
	f.Fuzz(func(t *testing.T, input []byte) {
		p, apart := sketch(&testkit.Input{Rest: input})
		wrong := p.Check()
		if wrong != nil && apart {
			t.Fatalf("%+v is refused: %v", p, wrong)
		}
		got, err := planned.Read(bytes.NewReader(written(t, p)))
		if wrong != nil {
			if refusal := (*planned.FileError)(nil); !errors.As(err, &refusal) {
				t.Fatalf("%+v (%v) is read: %v", p, wrong, err)
			}
			return
		}
		testkit.Must(t, err)
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("%+v is read as %+v", p, got)
		}
		for i := range p.Streams {
			if s := &p.Streams[i]; s.Size < 1<<20 && collides(p, s) {
				t.Fatalf("two live blocks have the same memory: room %d, %+v", p.Room, s)
			}
		}
	})
}
