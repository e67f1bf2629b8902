package packed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestColumnsHaveTheirNumbers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var p Packer
	type packedColumn struct {
		Column
		want []uint64
	}
	var all []packedColumn
	for i := range 1000 {
		v := make([]uint64, 1+random.IntN(300))
		width := random.IntN(65)
		base, step := random.Uint64(), random.Uint64N(1000)
		for j := range v {
			v[j] = base + random.Uint64()&(1<<width-1)
			if i%3 == 0 {
				v[j] = uint64(j)*step + random.Uint64N(8)
			}
			if i%5 == 0 {
				v[j] = []uint64{0, 1 << 40, math.MaxUint64}[random.IntN(3)]
			}
			if i%7 == 0 {
				v[j] <<= 9
			}
		}
		want := slices.Clone(v)
		all = append(all, packedColumn{p.Column(v, i%2 == 0, i%4 < 2), want})
	}
	for i, x := range all {
		v := make([]uint64, len(x.want))
		x.Read(p.Bytes, 0, v)
		if !slices.Equal(v, x.want) {
			t.Fatalf("column %d: %v, want %v", i, v, x.want)
		}
		k := random.IntN(len(v))
		least, most := x.Range()
		for _, y := range x.want {
			if int64(y) < least || int64(y) > most {
				t.Fatalf("column %d: %d is not from %d to %d", i, int64(y), least, most)
			}
		}
		x.Read(p.Bytes, k, v[k:])
		if !slices.Equal(v[k:], x.want[k:]) || x.At(p.Bytes, k) != x.want[k] {
			t.Fatalf("column %d from %d: %v and %d, want %v", i, k, v[k:], x.At(p.Bytes, k), x.want[k:])
		}
	}
}

func TestSequences(t *testing.T) {
	var s Sequence
	want := make([]int64, 3*PartLength+7)
	for i := range want {
		want[i] = int64(i%100-50) * 512
	}
	s.Append(want[:2*PartLength])
	s.Append(want[2*PartLength:])
	for _, part := range []int{1, 3} {
		s.Change(part, func(numbers []int64) { numbers[6] = -1 << 60 })
		want[part*PartLength+6] = -1 << 60
	}
	got := make([]uint64, len(want)-3)
	s.Read(3, got)
	for i, x := range got {
		if int64(x) != want[3+i] {
			t.Fatalf("number %d is %d, want %d", 3+i, int64(x), want[3+i])
		}
	}
	if s.Len() != len(want) {
		t.Errorf("%d numbers, want %d", s.Len(), len(want))
	}
}
