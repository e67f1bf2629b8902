package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// BenchmarkAllocFree replaces one of n live allocations at random.
func BenchmarkAllocFree(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := New(Options{Unchecked: true, Total: 1 << 45})
			rng := rand.New(rand.NewPCG(1, 1))
			live := make([]driver.Pointer, n)
			for i := range live {
				live[i], _ = d.Alloc(1 + rng.Int64N(4<<20))
			}
			b.ReportAllocs()
			for b.Loop() {
				i := rng.IntN(n)
				testkit.Must(b, d.Free(live[i]))
				p, err := d.Alloc(1 + rng.Int64N(4<<20))
				testkit.Must(b, err)
				live[i] = p
			}
		})
	}
}

func BenchmarkMapUnmap(b *testing.B) {
	d := New(Options{Unchecked: true})
	vm, size := d.VirtualMemory(), d.Info().Granularity
	p, err := vm.Reserve(1 << 40)
	testkit.Must(b, err)
	page, err := vm.Create(size)
	testkit.Must(b, err)
	for i := range int64(10_000) {
		testkit.Must(b, vm.Map(p+driver.Pointer(2*i*size), page))
	}
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(b, vm.Map(p+driver.Pointer(5001*size), page))
		testkit.Must(b, vm.Unmap(p+driver.Pointer(5001*size), size))
	}
}

// BenchmarkPendingMarks takes a mark, asks for it, completes the oldest of 10,000 and asks for that.
func BenchmarkPendingMarks(b *testing.B) {
	d := New(Options{Unchecked: true, Completion: OnDemand})
	s := d.DefaultStream()
	var marks []driver.Mark
	for range 10_000 {
		m, err := s.Mark()
		testkit.Must(b, err)
		marks = append(marks, m)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		m, err := s.Mark()
		testkit.Must(b, err)
		if ok, _ := s.Reached(m); ok {
			b.Fatal("reached")
		}
		d.Complete(marks[i])
		if ok, _ := s.Reached(marks[i]); !ok {
			b.Fatal("not reached")
		}
		marks[i] = m
		i = (i + 1) % len(marks)
	}
}

// BenchmarkStreams opens a held stream beside 10,000 others, takes a mark, completes it and closes the stream.
func BenchmarkStreams(b *testing.B) {
	d := New(Options{Unchecked: true, Completion: OnDemand})
	for range 10_000 {
		_, err := d.NewStream(driver.StreamOptions{})
		testkit.Must(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := d.NewStream(driver.StreamOptions{})
		testkit.Must(b, err)
		m, err := s.Mark()
		testkit.Must(b, err)
		d.Complete(m)
		testkit.Must(b, s.Close())
	}
}

func BenchmarkFill(b *testing.B) {
	for _, unchecked := range []bool{true, false} {
		b.Run(fmt.Sprintf("unchecked=%v", unchecked), func(b *testing.B) {
			d := New(Options{Unchecked: unchecked})
			p, err := d.Alloc(64 << 20)
			testkit.Must(b, err)
			s := d.DefaultStream()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				testkit.Must(b, s.Fill(p+driver.Pointer(i%64<<20), byte(i), 1<<20))
			}
		})
	}
}
