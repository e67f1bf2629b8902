package host

import (
	"context"
	"testing"
)

func BenchmarkFillAndSync(b *testing.B) {
	d, err := Open(Options{Total: 1 << 20})
	check(b, err)
	defer d.Close()
	p, err := d.Alloc(4096)
	check(b, err)
	s := d.DefaultStream()
	for b.Loop() {
		check(b, s.Fill(p, 1, 64))
		check(b, s.Sync(context.Background()))
	}
}

func BenchmarkQueue(b *testing.B) {
	d, err := Open(Options{Total: 1 << 20})
	check(b, err)
	defer d.Close()
	p, err := d.Alloc(4096)
	check(b, err)
	s := d.DefaultStream()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		check(b, s.Fill(p, 1, 64))
		if i%1024 == 1023 {
			check(b, s.Sync(context.Background()))
		}
	}
}

func BenchmarkAllocFree(b *testing.B) {
	d, err := Open(Options{Total: 1 << 30})
	check(b, err)
	defer d.Close()
	for b.Loop() {
		p, err := d.Alloc(2 << 20)
		check(b, err)
		check(b, d.Free(p))
	}
}

// BenchmarkFirstTouch writes fresh memory for the first time: what every block pays once.
func BenchmarkFirstTouch(b *testing.B) {
	const size = 256 << 20
	d, err := Open(Options{Total: 1 << 30})
	check(b, err)
	defer d.Close()
	s := d.DefaultStream()
	b.SetBytes(size)
	for b.Loop() {
		p, err := d.Alloc(size)
		check(b, err)
		check(b, s.Fill(p, 1, size))
		check(b, s.Sync(context.Background()))
		check(b, d.Free(p))
	}
}
