package fit

import (
	"fmt"
	"testing"
)

// BenchmarkTakeGive takes from the last of many holes, the only one that is large enough, and gives it back: a list would
// look at all of them.
func BenchmarkTakeGive(b *testing.B) {
	for n := 1000; n <= 1_000_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := NewFirstFit[uint64](1, or)
			for i := range int64(n) {
				f.Give(i*1024, 512, 0)
			}
			f.Give(int64(n)*1024, 4096, 0)
			for b.Loop() {
				at, v, _ := f.Take(2048)
				f.Give(at, 2048, v)
			}
		})
	}
}

// BenchmarkChurn takes and gives spans all over the range, each a hole that comes or goes.
func BenchmarkChurn(b *testing.B) {
	for n := 1000; n <= 1_000_000; n *= 10 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := NewFirstFit[uint64](1, or)
			for i := range int64(n) {
				f.Give(i*1024, 512, 0)
			}
			i := uint64(0)
			for b.Loop() {
				i = i*6364136223846793005 + 1442695040888963407
				at := int64(i>>33) % int64(n) * 1024
				v, _ := f.TakeAt(at, 512)
				f.Give(at, 512, v)
			}
		})
	}
}
