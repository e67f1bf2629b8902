package host

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

func BenchmarkFillAndSync(b *testing.B) {
	d, err := Open(Options{Total: 1 << 20})
	testkit.Must(b, err)
	defer d.Close()
	p, err := d.Alloc(4096)
	testkit.Must(b, err)
	s := d.DefaultStream()
	for b.Loop() {
		testkit.Must(b, s.Fill(p, 1, 64))
		testkit.Must(b, s.Sync(context.Background()))
	}
}

func BenchmarkQueue(b *testing.B) {
	d, err := Open(Options{Total: 1 << 20})
	testkit.Must(b, err)
	defer d.Close()
	p, err := d.Alloc(4096)
	testkit.Must(b, err)
	s := d.DefaultStream()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		testkit.Must(b, s.Fill(p, 1, 64))
		if i%1024 == 1023 {
			testkit.Must(b, s.Sync(context.Background()))
		}
	}
}

func BenchmarkAllocFree(b *testing.B) {
	d, err := Open(Options{Total: 1 << 30})
	testkit.Must(b, err)
	defer d.Close()
	for b.Loop() {
		p, err := d.Alloc(2 << 20)
		testkit.Must(b, err)
		testkit.Must(b, d.Free(p))
	}
}

// BenchmarkFirstTouch writes fresh memory for the first time: what every block pays once.
func BenchmarkFirstTouch(b *testing.B) {
	const size = 256 << 20
	d, err := Open(Options{Total: 1 << 30})
	testkit.Must(b, err)
	defer d.Close()
	s := d.DefaultStream()
	b.SetBytes(size)
	for b.Loop() {
		p, err := d.Alloc(size)
		testkit.Must(b, err)
		testkit.Must(b, s.Fill(p, 1, size))
		testkit.Must(b, s.Sync(context.Background()))
		testkit.Must(b, d.Free(p))
	}
}
