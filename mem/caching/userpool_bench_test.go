package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/mem/caching"
)

// BenchmarkWarmPool is BenchmarkWarm of a Pool, which has to take the lock of its stream alone.
func BenchmarkWarmPool(b *testing.B) {
	a, dev := benchAllocator(b)
	p := a.(*caching.Allocator).NewPool(caching.PoolOptions{})
	s := dev.DefaultStream()
	b.ReportAllocs()
	for b.Loop() {
		block, err := p.Alloc(s, 512)
		if err != nil {
			b.Fatal(err)
		}
		p.Free(block)
	}
}

// BenchmarkPools makes a pool, uses it and closes it.
func BenchmarkPools(b *testing.B) {
	a, dev := benchAllocator(b)
	s := dev.DefaultStream()
	b.ReportAllocs()
	for b.Loop() {
		p := a.(*caching.Allocator).NewPool(caching.PoolOptions{})
		block, err := p.Alloc(s, 512)
		if err != nil {
			b.Fatal(err)
		}
		p.Free(block)
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
